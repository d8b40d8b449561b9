#include "runtime/device/cuda/convolution/cudnn_graph.h"

#include <algorithm>
#include <array>

#include "runtime/device/cuda/convolution/cudnn_plan.h"

namespace dtrain::cuda {
namespace {

/// The tensors' ids.
enum Id : std::int64_t { kInput = 1, kWeight, kBias, kOutput, kSum, kSquares, kConvolved, kBiased };

using Extent = std::array<std::int64_t, 4>;

/// Makes descriptors that the plan keeps. After a refusal, which it notes, nothing more is asked.
class Builder {
 public:
  explicit Builder(ConvSumsPlan& plan) : plan_(plan) {}

  cudnnBackendDescriptor_t begin(cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t made = nullptr;
    if (refused_ || !accept(cudnnBackendCreateDescriptor(type, &made))) return nullptr;
    plan_.parts.emplace_back(made);
    return made;
  }
  template <class T>
  void set(cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
           const T* values, std::int64_t count) {
    if (!refused_) accept(cudnnBackendSetAttribute(to, name, type, count, values));
  }
  template <class T>
  void set(cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
           const T& value) {
    set(to, name, type, &value, 1);
  }
  void refer(cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t other) {
    set(to, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, other);
  }
  cudnnBackendDescriptor_t finish(cudnnBackendDescriptor_t descriptor) {
    if (!refused_) accept(cudnnBackendFinalize(descriptor));
    return descriptor;
  }
  /// How many there are; at most `room` of them are written to `values`.
  template <class T>
  std::int64_t get(cudnnBackendDescriptor_t from, cudnnBackendAttributeName_t name,
                   cudnnBackendAttributeType_t type, std::int64_t room, T* values) {
    std::int64_t count = 0;
    if (!refused_) accept(cudnnBackendGetAttribute(from, name, type, room, &count, values));
    return refused_ ? 0 : count;
  }
  bool refused() const noexcept { return refused_; }

 private:
  bool accept(cudnnStatus_t status) {
    if (status == CUDNN_STATUS_SUCCESS) return true;
    plan_.refusal = cudnnGetErrorString(status);
    refused_ = true;
    return false;
  }

  ConvSumsPlan& plan_;
  bool refused_ = false;
};

/// The operations of the graph, each behind the one whose result it takes.
class Graph {
 public:
  Graph(Builder& builder, const ConvSumsKey& key) : b_(builder), key_(key) {
    const ConvKey& conv = key.convolution;
    const cudnnDataType_t type = data_type(conv.dtype);
    // cuDNN has statistics of halves and of floats. Those of bf16 are taken before it is rounded.
    const bool of_output = conv.dtype == DType::f16;
    const bool direct = of_output && !key.bias;
    const cudnnBackendDescriptor_t output = tensor(kOutput, type, conv.output);
    const cudnnBackendDescriptor_t convolved = direct ? output : between(kConvolved);
    convolve(convolved);
    cudnnBackendDescriptor_t summed = convolved;
    if (key.bias) {
      const Extent extent = {1, conv.weight[0], 1, 1};
      const cudnnBackendDescriptor_t bias = tensor(kBias, data_type(*key.bias), extent.data());
      summed = of_output ? output : between(kBiased);
      pointwise(CUDNN_POINTWISE_ADD, convolved, bias, summed);
    }
    if (!of_output) pointwise(CUDNN_POINTWISE_IDENTITY, summed, nullptr, output);
    statistics(summed);
  }

  cudnnBackendDescriptor_t finish(cudnnHandle_t handle) {
    const cudnnBackendDescriptor_t graph = b_.begin(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    b_.set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
    b_.set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations_.data(),
           static_cast<std::int64_t>(operations_.size()));
    return b_.finish(graph);
  }

 private:
  /// Channels-last, of extents N, C, H, W.
  cudnnBackendDescriptor_t tensor(std::int64_t id, cudnnDataType_t type, const std::int64_t* extent,
                                  bool is_virtual = false) {
    const Extent step = {extent[1] * extent[2] * extent[3], 1, extent[3] * extent[1], extent[1]};
    const cudnnBackendDescriptor_t made = b_.begin(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    b_.set(made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
    b_.set(made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, extent, 4);
    b_.set(made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, step.data(), 4);
    b_.set(made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
    b_.set(made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64,
           static_cast<std::int64_t>(kSumsAlignment));
    if (is_virtual) b_.set(made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, true);
    return b_.finish(made);
  }
  /// What is never written to memory, in float.
  cudnnBackendDescriptor_t between(std::int64_t id) {
    return tensor(id, CUDNN_DATA_FLOAT, key_.convolution.output, true);
  }

  void convolve(cudnnBackendDescriptor_t output) {
    const ConvKey& conv = key_.convolution;
    const Conv2dGeometry& g = conv.geometry;
    const std::array<std::int64_t, 2> pad = {g.pad_h, g.pad_w}, stride = {g.stride_h, g.stride_w},
                                      dilation = {g.dilation_h, g.dilation_w};
    const cudnnBackendDescriptor_t how = b_.begin(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    b_.set(how, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    b_.set(how, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
    b_.set(how, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, std::int64_t{2});
    b_.set(how, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, pad.data(), 2);
    b_.set(how, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, pad.data(), 2);
    b_.set(how, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, stride.data(), 2);
    b_.set(how, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, dilation.data(), 2);
    b_.finish(how);
    const cudnnDataType_t type = data_type(conv.dtype);
    const cudnnBackendDescriptor_t input = tensor(kInput, type, conv.input),
                                   weight = tensor(kWeight, type, conv.weight);
    const cudnnBackendDescriptor_t made = begin(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    b_.set(made, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1.0F);
    b_.set(made, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 0.0F);
    b_.refer(made, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, how);
    b_.refer(made, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, input);
    b_.refer(made, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, weight);
    b_.refer(made, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, output);
    b_.finish(made);
  }

  /// `other` null: of one operand.
  void pointwise(cudnnPointwiseMode_t mode, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t other,
                 cudnnBackendDescriptor_t y) {
    const cudnnBackendDescriptor_t how = b_.begin(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    b_.set(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
    b_.set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    b_.finish(how);
    const cudnnBackendDescriptor_t made = begin(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    b_.refer(made, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    b_.refer(made, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (other != nullptr) b_.refer(made, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, other);
    b_.refer(made, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    b_.finish(made);
  }

  void statistics(cudnnBackendDescriptor_t of) {
    const Extent extent = {1, key_.convolution.weight[0], 1, 1};
    const cudnnBackendDescriptor_t sum = tensor(kSum, CUDNN_DATA_FLOAT, extent.data()),
                                   squares = tensor(kSquares, CUDNN_DATA_FLOAT, extent.data());
    const cudnnBackendDescriptor_t made = begin(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
    b_.set(made, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, CUDNN_GENSTATS_SUM_SQSUM);
    b_.set(made, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    b_.refer(made, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, of);
    b_.refer(made, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sum);
    b_.refer(made, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, squares);
    b_.finish(made);
  }

  /// An operation of the graph.
  cudnnBackendDescriptor_t begin(cudnnBackendDescriptorType_t type) {
    operations_.push_back(b_.begin(type));
    return operations_.back();
  }

  Builder& b_;
  const ConvSumsKey& key_;
  std::vector<cudnnBackendDescriptor_t> operations_;
};

/// The configurations that cuDNN's heuristic names for the graph, best first.
std::vector<cudnnBackendDescriptor_t> proposals(Builder& builder, cudnnBackendDescriptor_t graph) {
  const cudnnBackendDescriptor_t heuristic = builder.begin(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  builder.refer(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  builder.set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
  builder.finish(heuristic);
  const auto get = [&](std::int64_t room, cudnnBackendDescriptor_t* to) {
    return builder.get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, room, to);
  };
  std::vector<cudnnBackendDescriptor_t> found(static_cast<std::size_t>(get(0, nullptr)));
  for (auto& one : found) one = builder.begin(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  if (!found.empty()) {
    const std::int64_t given = get(static_cast<std::int64_t>(found.size()), found.data());
    found.resize(std::min(found.size(), static_cast<std::size_t>(given)));
  }
  return found;
}

/// Whether the same call gives the same bits, with sums in float.
bool is_exact(Builder& builder, cudnnBackendDescriptor_t configuration) {
  cudnnBackendDescriptor_t engine = builder.begin(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  builder.get(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  const std::int64_t count = builder.get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                         CUDNN_NUMERICAL_NOTE_TYPE_COUNT, notes.data());
  const auto end = notes.begin() + std::min<std::int64_t>(count, CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  return !builder.refused() && std::none_of(notes.begin(), end, [](cudnnBackendNumericalNote_t note) {
    return note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ||
           note == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION;
  });
}

/// Makes a plan of the configuration the result's, if it will do.
bool take(cudnnHandle_t handle, cudnnBackendDescriptor_t configuration, std::size_t most_workspace_bytes,
          ConvSumsPlan& result) {
  Builder builder(result);
  if (!is_exact(builder, configuration)) return false;
  const cudnnBackendDescriptor_t plan = builder.begin(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  builder.set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle);
  builder.refer(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
  builder.finish(plan);
  std::int64_t bytes = 0;
  builder.get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes);
  if (builder.refused() || bytes < 0 || static_cast<std::size_t>(bytes) > most_workspace_bytes) return false;
  result.workspace_bytes = static_cast<std::size_t>(bytes);
  result.plan = std::move(result.parts.back());  // made last
  result.parts.pop_back();
  return true;
}

}  // namespace

std::size_t ConvSumsKeyHash::operator()(const ConvSumsKey& key) const noexcept {
  return ConvKeyHash()(key.convolution) * 31 + (key.bias ? static_cast<std::size_t>(*key.bias) + 1 : 0);
}

ConvSumsPlan plan_conv_sums(cudnnHandle_t handle, const ConvSumsKey& key, std::size_t most_workspace_bytes) {
  ConvSumsPlan result;
  Builder builder(result);
  const cudnnBackendDescriptor_t graph = Graph(builder, key).finish(handle);
  for (const cudnnBackendDescriptor_t configuration : proposals(builder, graph)) {
    if (take(handle, configuration, most_workspace_bytes, result)) break;
  }
  return result;
}

bool run_conv_sums(cudnnHandle_t handle, const ConvSumsPlan& plan, const ConvSumsArrays& arrays,
                   void* workspace) {
  constexpr const char* kWhat = "convolve with statistics";
  std::vector<std::int64_t> ids = {kInput, kWeight, kOutput, kSum, kSquares};
  std::vector<const void*> places = {arrays.input, arrays.weight, arrays.output, arrays.sums, arrays.squares};
  if (arrays.bias != nullptr) {
    ids.push_back(kBias);
    places.push_back(arrays.bias);
  }
  cudnnBackendDescriptor_t made = nullptr;
  check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &made), kWhat);
  const UniqueBackend pack(made);
  const auto count = static_cast<std::int64_t>(ids.size());
  check(
      cudnnBackendSetAttribute(made, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids.data()),
      kWhat);
  check(cudnnBackendSetAttribute(made, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count,
                                 places.data()),
        kWhat);
  check(cudnnBackendSetAttribute(made, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace),
        kWhat);
  check(cudnnBackendFinalize(made), kWhat);
  return supported(cudnnBackendExecute(handle, plan.plan.get(), made), kWhat);
}

}  // namespace dtrain::cuda
