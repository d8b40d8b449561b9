// Matrix products through cuBLASLt: bias and relu inside where the library can, algorithms chosen once by its
// heuristic.

#include "runtime/device/cuda/matmul/matmul.h"
#include "runtime/device/cuda/cuda_kernels.h"
#include "runtime/device/cuda/in_dtype.h"
#include "runtime/device/cuda/matmul/integer_matmul.h"

namespace dtrain::cuda {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return CUDA_R_32F;
    case DType::f64:
      return CUDA_R_64F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    default:
      refuse_dtype("matmul", dtype);
  }
}

UniqueLtLayout make_matrix(cudaDataType_t type, std::int64_t rows, std::int64_t columns, std::int64_t leading,
                           std::int64_t batch, std::int64_t batch_stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  check(cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(rows),
                                   static_cast<std::uint64_t>(columns), leading),
        "describe a matrix");
  UniqueLtLayout owned(layout);
  const auto count = static_cast<std::int32_t>(batch);
  check(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
        "describe a batch of matrices");
  check(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &batch_stride,
                                         sizeof batch_stride),
        "describe a batch of matrices");
  return owned;
}

template <class Value>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
  check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value),
        "describe a matrix product");
}

template <class Value>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const Value& value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
        "set a preference for matrix products");
}

cublasLtEpilogue_t epilogue_of(const MatmulKey& key) {
  if (key.bias) return key.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
  return key.relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT;
}

}  // namespace

MatmulPlans::MatmulPlans(const Context& context)
    : context_(context), workspace_(context.memory, kWorkspaceBytes) {
  cublasLtHandle_t handle = nullptr;
  check(cublasLtCreate(&handle), "start cuBLASLt");
  handle_.reset(handle);
}

// An empty plan says that the library has no algorithm for the key.
MatmulPlans::Plan MatmulPlans::make_plan(const MatmulKey& key, const void* bias) const {
  const cudaDataType_t type = data_type(key.dtype);
  const bool tf32 = key.dtype == DType::f32 && context_.options.tf32;
  const cublasComputeType_t compute = key.dtype == DType::f64 ? CUBLAS_COMPUTE_64F
                                      : tf32                  ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                              : CUBLAS_COMPUTE_32F;
  Plan plan;
  cublasLtMatmulDesc_t operation = nullptr;
  check(cublasLtMatmulDescCreate(&operation, compute, key.dtype == DType::f64 ? CUDA_R_64F : CUDA_R_32F),
        "describe a matrix product");
  plan.operation.reset(operation);
  set(operation, CUBLASLT_MATMUL_DESC_TRANSA, key.first.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(operation, CUBLASLT_MATMUL_DESC_TRANSB, key.second.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(key));
  if (key.bias) {
    set(operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type);
    set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);  // the heuristic looks at its alignment
  }
  // As they lie in memory: a transposed operand has its extents swapped.
  const auto operand = [&](const Operand& o, std::int64_t rows, std::int64_t columns) {
    return make_matrix(type, o.transposed ? columns : rows, o.transposed ? rows : columns, o.leading,
                       key.batch, o.batch_stride);
  };
  plan.first = operand(key.first, key.n, key.k);
  plan.second = operand(key.second, key.k, key.m);
  plan.out =
      make_matrix(data_type(key.out_dtype), key.n, key.m, key.out_leading, key.batch, key.out_batch_stride);

  cublasLtMatmulPreference_t wishes = nullptr;
  check(cublasLtMatmulPreferenceCreate(&wishes), "set a preference for matrix products");
  const UniqueLtPreference owned(wishes);
  set(wishes, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  set(wishes, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<std::uint32_t>(key.first.alignment));
  set(wishes, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<std::uint32_t>(key.second.alignment));
  set(wishes, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<std::uint32_t>(key.out_alignment));
  set(wishes, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<std::uint32_t>(key.out_alignment));
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_.get(), operation, plan.first.get(), plan.second.get(),
                                     plan.out.get(), plan.out.get(), wishes, 1, &best, &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && found == 0)) return {};
  check(status, "choose an algorithm for a matrix product");
  plan.algorithm = best.algo;
  plan.usable = true;
  return plan;
}

bool MatmulPlans::run(const MatmulKey& key, const void* first, const void* second, const void* bias,
                      void* out) {
  auto found = plans_.find(key);
  if (found == plans_.end()) found = plans_.emplace(key, make_plan(key, bias)).first;
  Plan& plan = found->second;
  if (!plan.usable) return false;
  if (key.bias) set(plan.operation.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  const float one = 1, beta = key.accumulate ? 1.0F : 0.0F;
  const double one64 = 1, beta64 = beta;
  const bool wide = key.dtype == DType::f64;
  check(cublasLtMatmul(handle_.get(), plan.operation.get(), wide ? static_cast<const void*>(&one64) : &one,
                       first, plan.first.get(), second, plan.second.get(),
                       wide ? static_cast<const void*>(&beta64) : &beta, out, plan.out.get(), out,
                       plan.out.get(), &plan.algorithm, workspace_.data(), kWorkspaceBytes, context_.stream),
        "multiply matrices");
  return true;
}

void CudaKernels::matmul(const View& a, const View& b, const View& bias, Activation activation,
                         bool accumulate, const View& out) {
  // A gradient of f32 takes sums of products of bf16 or f16 as they are: rounded to that on the way, small
  // ones would be lost in a total of several passes.
  const bool wide_out =
      out.dtype == DType::f32 && is_half(a.dtype) && bias.data == nullptr && activation == Activation::none;
  if ((out.dtype != a.dtype && !wide_out) || (bias.data != nullptr && bias.dtype != a.dtype)) {
    const InDtype own_bias(*this, context_.memory, bias, a.dtype, true);
    InDtype own_out(*this, context_.memory, out, a.dtype, accumulate);
    matmul(a, b, own_bias.view(), activation, accumulate, own_out.view());
    return own_out.finish();
  }
  const bool relu = activation == Activation::relu, has_bias = bias.data != nullptr;
  if (!out.is_contiguous()) refuse("matmul", "argument out expected a contiguous array");
  if (out.numel() == 0) return;
  if (a.dtype == DType::i64) return integer_matmul(context_, a, b, accumulate, out);
  if (a.shape[2] == 0) {
    if (!accumulate) fill(out, 0.0);
    if (has_bias || relu) add_bias(out, 2, bias, activation);
    return;
  }
  MatmulKey key{.m = a.shape[1], .n = b.shape[2], .k = a.shape[2], .batch = a.shape[0]};
  // Rows that are dense in neither direction are copied; the copy lives until its last use is queued.
  const auto dense = [&](const View& view, Operand& operand, std::optional<Scratch>& memory) {
    if (as_operand(view, operand)) return view.data;
    memory.emplace(context_.memory, static_cast<std::size_t>(view.numel()) * size_of(view.dtype));
    const View packed{memory->data(), view.dtype, view.shape, contiguous_strides(view.shape)};
    copy(view, packed);
    as_operand(packed, operand);
    return packed.data;
  };
  std::optional<Scratch> a_copy, b_copy;
  const void* const second = dense(a, key.second, a_copy);
  const void* const first = dense(b, key.first, b_copy);
  key.out_leading = key.n;
  key.out_batch_stride = key.batch == 1 ? 0 : key.m * key.n;
  key.out_alignment = alignment_of(out.data);
  key.dtype = a.dtype;
  key.out_dtype = out.dtype;
  key.accumulate = accumulate;
  // The epilogue reads the bias in vectors, and there is none in double.
  const bool inside = a.dtype != DType::f64 && (!has_bias || alignment_of(bias.data) >= 16) &&
                      (!has_bias || bias.strides[0] == 1 || key.n == 1);
  key.bias = has_bias && inside;
  key.relu = relu && inside;
  if (matmuls_->run(key, first, second, bias.data, out.data)) {
    if (!inside && (has_bias || relu)) add_bias(out, 2, bias, activation);
    return;
  }
  key.bias = key.relu = false;
  if (!matmuls_->run(key, first, second, nullptr, out.data)) {
    refuse("matmul", "cuBLASLt has no algorithm for " + a.shape.to_string() + " x " + b.shape.to_string() +
                         " of " + std::string(name_of(a.dtype)));
  }
  if (has_bias || relu) add_bias(out, 2, bias, activation);
}

}  // namespace dtrain::cuda
