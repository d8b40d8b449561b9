// cuBLASLt as far as a program with plain matrix products needs it: column-major matrices, strided batches,
// bias and relu in the epilogue.
#include <cublasLt.h>

#include <cstring>
#include <type_traits>
#include <vector>

#include "emulation/cudart/enter.h"
#include "emulation/math/gemm.h"

namespace emulation {
namespace {

struct Layout {
  cudaDataType_t type;
  std::int32_t batch;
  std::uint64_t rows, columns;
  std::int64_t leading, batch_stride;
};

struct Product {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  std::int32_t transpose_a, transpose_b;
  cublasLtEpilogue_t epilogue;
  cudaDataType_t bias_type;
  const void* bias;
};

/// Our struct inside the library's opaque one.
template <class Mine, class Opaque>
Mine& inside(Opaque* opaque) {
  static_assert(sizeof(Mine) <= sizeof(Opaque) && std::is_trivially_copyable_v<Mine>);
  return *reinterpret_cast<Mine*>(opaque);
}
const Layout& of(cublasLtMatrixLayout_t layout) { return inside<Layout>(layout); }

template <class Value>
bool set(Value& value, const void* from, std::size_t bytes) {
  if (bytes != sizeof value) return false;
  std::memcpy(&value, from, bytes);
  return true;
}

bool element_of(cudaDataType_t type, Element& element) {
  switch (type) {
    case CUDA_R_32F:
      element = Element::f32;
      return true;
    case CUDA_R_64F:
      element = Element::f64;
      return true;
    case CUDA_R_16BF:
      element = Element::bf16;
      return true;
    case CUDA_R_16F:
      element = Element::f16;
      return true;
    default:
      return false;
  }
}

bool adds_bias(cublasLtEpilogue_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
}
bool has_relu(cublasLtEpilogue_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_RELU || epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
}

// What the library refuses: other epilogues, an epilogue in double, shapes that do not fit together.
cublasStatus_t check(const Product& product, const Layout& a, const Layout& b, const Layout& d) {
  Element element;
  if (!element_of(a.type, element) || a.type != b.type || !element_of(d.type, element)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const bool plain = product.epilogue == CUBLASLT_EPILOGUE_DEFAULT;
  if (!plain && !adds_bias(product.epilogue) && !has_relu(product.epilogue))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!plain && product.compute == CUBLAS_COMPUTE_64F) return CUBLAS_STATUS_NOT_SUPPORTED;
  if ((a.type == CUDA_R_64F) != (product.compute == CUBLAS_COMPUTE_64F)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (adds_bias(product.epilogue)) {
    if (product.bias == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    if (reinterpret_cast<std::uintptr_t>(product.bias) % 16 != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const bool ta = product.transpose_a != CUBLAS_OP_N, tb = product.transpose_b != CUBLAS_OP_N;
  const std::uint64_t rows = ta ? a.columns : a.rows, inner = ta ? a.rows : a.columns;
  const std::uint64_t columns = tb ? b.rows : b.columns, inner_b = tb ? b.columns : b.rows;
  if (rows != d.rows || columns != d.columns || inner != inner_b) return CUBLAS_STATUS_INVALID_VALUE;
  for (const Layout* layout : {&a, &b, &d}) {
    if (layout->leading < static_cast<std::int64_t>(layout->rows) || layout->batch != d.batch) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

struct Operands {
  const void *a, *b, *c;
  void* d;
};

const std::byte* shift(const void* data, std::int64_t elements, Element type) {
  return static_cast<const std::byte*>(data) + elements * static_cast<std::int64_t>(size_of(type));
}

// Column-major D = op(A) op(B) is row-major Dᵀ = op(B)ᵀ op(A)ᵀ.
template <class C>
void compute(const Product& product, const Layout& a, const Layout& b, const Layout& c, const Layout& d,
             const Operands& at, C alpha, C beta) {
  Element in{}, out{}, bias{};
  element_of(a.type, in);
  element_of(d.type, out);
  if (!element_of(product.bias_type, bias)) bias = out;
  const bool ta = product.transpose_a != CUBLAS_OP_N, tb = product.transpose_b != CUBLAS_OP_N;
  const auto n = static_cast<std::int64_t>(d.rows), m = static_cast<std::int64_t>(d.columns);
  const auto k = static_cast<std::int64_t>(ta ? a.rows : a.columns);
  const bool tf32 = product.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  std::vector<C> result(static_cast<std::size_t>(m * n));
  for (std::int64_t i = 0; i < d.batch; ++i) {
    const Matrix first{in, shift(at.b, i * b.batch_stride, in), tb ? 1 : b.leading, tb ? b.leading : 1, tf32};
    const Matrix second{in, shift(at.a, i * a.batch_stride, in), ta ? 1 : a.leading, ta ? a.leading : 1,
                        tf32};
    multiply(m, n, k, first, second, result.data(), false);
    for (std::int64_t row = 0; row < m; ++row) {
      for (std::int64_t column = 0; column < n; ++column) {
        C value = alpha * result[static_cast<std::size_t>(row * n + column)];
        if (beta != C{}) value += beta * load<C>(out, at.c, i * c.batch_stride + row * c.leading + column);
        if (adds_bias(product.epilogue)) value += load<C>(bias, product.bias, column);
        if (has_relu(product.epilogue) && value < C{}) value = C{};
        store<C>(out, at.d, i * d.batch_stride + row * d.leading + column, value);
      }
    }
  }
}

Arithmetic arithmetic_of(const Product& product, const Layout& a) {
  if (a.type == CUDA_R_64F) return Arithmetic::f64;
  if (a.type == CUDA_R_16BF) return Arithmetic::bf16;
  if (a.type == CUDA_R_16F) return Arithmetic::f16;
  return product.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? Arithmetic::tf32 : Arithmetic::f32;
}

/// Matrices that a batch shares count once.
std::uint64_t bytes_of(const Layout& matrix) {
  Element element{};
  element_of(matrix.type, element);
  const auto batch = static_cast<std::uint64_t>(matrix.batch_stride == 0 ? 1 : matrix.batch);
  return batch * matrix.rows * matrix.columns * size_of(element);
}

Work work_of(const Product& product, const Layout& a, const Layout& b, const Layout& d, bool adds) {
  Work work{"cublasLtMatmul", bytes_of(a) + bytes_of(b) + (adds ? bytes_of(d) : 0), bytes_of(d)};
  const std::uint64_t inner = product.transpose_a != CUBLAS_OP_N ? a.rows : a.columns;
  work.operations = 2.0 * static_cast<double>(d.rows * d.columns * inner) * d.batch;
  work.arithmetic = arithmetic_of(product, a);
  return work;
}

cublasStatus_t multiply_on(cudaStream_t handle, Product product, const Layout& a, const Layout& b,
                           const Layout& c, const Layout& d, const Operands& at, const void* alpha,
                           const void* beta) {
  if (enter() != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  Machine& machine = Machine::get();
  const auto lock = machine.lock();
  const auto stream = machine.find(handle);
  if (!stream || (stream->capture && stream->capture->invalid)) return CUBLAS_STATUS_EXECUTION_FAILED;
  ++machine.counts().launches;
  const auto run = [&](auto zero) {
    using C = decltype(zero);
    const C first = *static_cast<const C*>(alpha), second = *static_cast<const C*>(beta);
    machine.queue(stream, at_once(Kind::library, "cublasLtMatmul", [=, &machine] {
                    compute<C>(product, a, b, c, d, at, first, second);
                    if (machine.work().is_on()) machine.work().add(work_of(product, a, b, d, second != C{}));
                  }));
  };
  product.scale == CUDA_R_64F ? run(double{}) : run(float{});
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace
}  // namespace emulation

struct cublasLtContext {};

using emulation::inside;
using emulation::Layout;
using emulation::Product;

extern "C" {

size_t CUBLASWINAPI cublasLtGetVersion(void) { return CUBLAS_VERSION; }
const char* CUBLASWINAPI cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    default:
      return "CUBLAS_STATUS";
  }
}
const char* CUBLASWINAPI cublasLtGetStatusString(cublasStatus_t status) {
  return cublasLtGetStatusName(status);
}

cublasStatus_t CUBLASWINAPI cublasLtCreate(cublasLtHandle_t* handle) {
  if (emulation::enter() != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                                       uint64_t rows, uint64_t columns, int64_t leading) {
  *layout = new cublasLtMatrixLayoutOpaque_t{};
  inside<Layout>(*layout) = {type, 1, rows, columns, leading, 0};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                             cublasLtMatrixLayoutAttribute_t attribute,
                                                             const void* value, size_t bytes) {
  Layout& mine = inside<Layout>(layout);
  bool good = false;
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) good = emulation::set(mine.batch, value, bytes);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
    good = emulation::set(mine.batch_stride, value, bytes);
  return good ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product,
                                                     cublasComputeType_t compute, cudaDataType_t scale) {
  *product = new cublasLtMatmulDescOpaque_t{};
  inside<Product>(*product) = {compute,    scale,  CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT,
                               CUDA_C_32F, nullptr};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  delete product;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                                           cublasLtMatmulDescAttributes_t attribute,
                                                           const void* value, size_t bytes) {
  Product& mine = inside<Product>(product);
  bool good = false;
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA) good = emulation::set(mine.transpose_a, value, bytes);
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSB) good = emulation::set(mine.transpose_b, value, bytes);
  if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE) good = emulation::set(mine.epilogue, value, bytes);
  if (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER) good = emulation::set(mine.bias, value, bytes);
  if (attribute == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE) good = emulation::set(mine.bias_type, value, bytes);
  return good ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t{};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
// One algorithm fits every wish.
cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                                 cublasLtMatmulPreferenceAttributes_t,
                                                                 const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                                           cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                           cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                                           cublasLtMatmulPreference_t, int wanted,
                                                           cublasLtMatmulHeuristicResult_t results[],
                                                           int* found) {
  *found = 0;
  const cublasStatus_t status =
      emulation::check(inside<Product>(product), emulation::of(a), emulation::of(b), emulation::of(d));
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  results[0] = {};
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void* alpha,
                                           const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                                           cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                                           cublasLtMatrixLayout_t c_layout, void* d,
                                           cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t*,
                                           void*, size_t, cudaStream_t stream) {
  const Product& mine = inside<Product>(product);
  const Layout &first = emulation::of(a_layout), &second = emulation::of(b_layout),
               &out = emulation::of(d_layout);
  const cublasStatus_t status = emulation::check(mine, first, second, out);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  return emulation::multiply_on(stream, mine, first, second, emulation::of(c_layout), out, {a, b, c, d},
                                alpha, beta);
}

}  // extern "C"
