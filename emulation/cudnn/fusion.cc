#include "emulation/cudnn/fusion.h"

#include <algorithm>
#include <atomic>
#include <optional>

#include "emulation/cudnn/backend.h"
#include "emulation/cudnn/handles.h"

namespace emulation {
namespace {

/// A tensor of rank 4 as a graph describes it.
struct Tensor {
  std::int64_t id = 0, alignment = 1;
  bool is_virtual = false;
  Image image;
};

std::optional<Tensor> tensor_of(const Descriptor& operation, cudnnBackendAttributeName_t name) {
  const Descriptor* const from = operation.descriptor(name);
  if (from == nullptr || from->type != CUDNN_BACKEND_TENSOR_DESCRIPTOR) return std::nullopt;
  Tensor tensor;
  tensor.id = from->value<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
  tensor.alignment = from->value<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1);
  tensor.is_virtual = from->value<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL, false);
  const auto extent = from->values<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
             step = from->values<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  if (extent.size() != 4 || step.size() != 4) return std::nullopt;
  for (std::size_t i = 0; i < 4; ++i) {
    tensor.image.extent[i] = extent[i];
    tensor.image.step[i] = step[i];
  }
  const auto type = from->value(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_INT8);
  return element_of(type, tensor.image.type) ? std::optional(tensor) : std::nullopt;
}

/// The only operation of that type; null where there are none or several.
const Descriptor* only(const std::vector<const Descriptor*>& operations, cudnnBackendDescriptorType_t type) {
  const Descriptor* found = nullptr;
  for (const Descriptor* const operation : operations) {
    if (operation->type != type) continue;
    if (found != nullptr) return nullptr;
    found = operation;
  }
  return found;
}

bool read_convolution(const Descriptor& operation, Fusion& fusion, Tensor& result) {
  const auto x = tensor_of(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X),
             w = tensor_of(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W),
             y = tensor_of(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
  const Descriptor* const c = operation.descriptor(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC);
  if (!x || !w || !y || c == nullptr || x->is_virtual || w->is_virtual) return false;
  const auto pad = c->values<std::int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
             post = c->values<std::int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS),
             stride = c->values<std::int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
             dilation = c->values<std::int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS);
  if (pad.size() != 2 || pad != post || stride.size() != 2 || dilation.size() != 2) return false;
  if (c->value(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CONVOLUTION) != CUDNN_CROSS_CORRELATION) return false;
  if (c->value(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_HALF) != CUDNN_DATA_FLOAT) return false;
  if (operation.value(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0F) != 1) return false;
  if (operation.value(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0.0F) != 0) return false;
  for (std::size_t i = 0; i < 2; ++i) {
    fusion.convolution.pad[i] = static_cast<int>(pad[i]);
    fusion.convolution.stride[i] = static_cast<int>(stride[i]);
    fusion.convolution.dilation[i] = static_cast<int>(dilation[i]);
  }
  fusion.convolution.input = x->image;
  fusion.convolution.filter = w->image;
  fusion.convolution.tf32 = x->image.type == Element::f32;
  if (w->image.extent[1] < 1 || x->image.extent[1] % w->image.extent[1] != 0) return false;
  fusion.convolution.groups = static_cast<int>(x->image.extent[1] / w->image.extent[1]);
  fusion.input = x->id;
  fusion.filter = w->id;
  fusion.alignment = std::min(x->alignment, w->alignment);
  result = *y;
  return true;
}

/// Follows the operations on single elements from the convolution's result: `summed` becomes what the
/// statistics may be of, `stored` what is written.
bool follow_pointwise(const std::vector<const Descriptor*>& operations, Fusion& fusion, Tensor& summed,
                      std::optional<Tensor>& stored) {
  for (const Descriptor* const operation : operations) {
    if (operation->type != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) continue;
    const Descriptor* const how = operation->descriptor(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const auto x = tensor_of(*operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
               y = tensor_of(*operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    if (how == nullptr || !x || !y || x->id != summed.id) return false;
    if (how->value(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_HALF) != CUDNN_DATA_FLOAT) return false;
    const auto mode = how->value(CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_MUL);
    if (mode == CUDNN_POINTWISE_IDENTITY && !stored && !y->is_virtual) {
      stored = *y;
      continue;
    }
    const auto b = tensor_of(*operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    if (mode != CUDNN_POINTWISE_ADD || !b || fusion.has_bias || stored || !summed.is_virtual) return false;
    if (b->is_virtual || b->image.count() != y->image.extent[1] || b->image.extent[1] != b->image.count())
      return false;
    fusion.has_bias = true;
    fusion.bias = b->id;
    fusion.bias_type = b->image.type;
    fusion.alignment = std::min(fusion.alignment, b->alignment);
    summed = *y;
  }
  return true;
}

bool read_statistics(const Descriptor& operation, const Tensor& summed, const Tensor& stored,
                     Fusion& fusion) {
  const auto x = tensor_of(operation, CUDNN_ATTR_OPERATION_GENSTATS_XDESC),
             sum = tensor_of(operation, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC),
             squares = tensor_of(operation, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC);
  if (!x || !sum || !squares || (x->id != summed.id && x->id != stored.id)) return false;
  if (operation.value(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_DATA_HALF) != CUDNN_DATA_FLOAT)
    return false;
  // By its documentation: half or float, and float sums of [1, C, 1, 1].
  if (x->image.type != Element::f16 && x->image.type != Element::f32) return false;
  for (const Tensor& total : {*sum, *squares}) {
    const Image& image = total.image;
    const bool fits = image.type == Element::f32 && image.extent[1] == image.count() &&
                      image.count() == x->image.extent[1] && !total.is_virtual;
    if (!fits) return false;
    fusion.alignment = std::min(fusion.alignment, total.alignment);
  }
  fusion.sums_stored = x->id == stored.id;
  fusion.sum = sum->id;
  fusion.squares = squares->id;
  return true;
}

}  // namespace

std::vector<std::int64_t> Fusion::ids() const {
  std::vector<std::int64_t> all = {input, filter, output, sum, squares};
  if (has_bias) all.push_back(bias);
  return all;
}

std::shared_ptr<const Fusion> recognize(const std::vector<const Descriptor*>& operations) {
  const Descriptor* const convolution =
      only(operations, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  const Descriptor* const statistics = only(operations, CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
  if (convolution == nullptr || statistics == nullptr) return nullptr;
  auto fusion = std::make_shared<Fusion>();
  Tensor summed;
  std::optional<Tensor> stored;
  if (!read_convolution(*convolution, *fusion, summed)) return nullptr;
  if (!follow_pointwise(operations, *fusion, summed, stored)) return nullptr;
  if (!stored) stored = summed;
  if (stored->is_virtual || (stored->id != summed.id && !summed.is_virtual)) return nullptr;
  if (!read_statistics(*statistics, summed, *stored, *fusion)) return nullptr;
  fusion->convolution.output = stored->image;
  fusion->output = stored->id;
  fusion->alignment = std::min(fusion->alignment, stored->alignment);
  return fusion;
}

void run(const Fusion& fusion, const FusionEngine& engine, const FusionArrays& arrays) {
  static std::atomic<std::int64_t> runs = 0;
  Convolution exact = fusion.convolution;
  exact.output.type = Element::f32;
  const Image& out = fusion.convolution.output;
  std::vector<float> values(static_cast<std::size_t>(out.count()));  // packed: support.cc asks for it
  convolve(exact, 1, arrays.input, arrays.filter, 0, values.data(), nullptr, false);
  const std::int64_t channels = out.extent[1], pixels = out.count() / channels;
  const std::int64_t first = engine.in_any_order ? ++runs * 7 % pixels : 0;
  std::vector<double> sum(static_cast<std::size_t>(channels)), squares(static_cast<std::size_t>(channels));
  std::vector<float> near(sum.size()), near_squares(sum.size());  // where threads come as they may
  for (std::int64_t i = 0; i < pixels; ++i) {
    const std::int64_t base = (first + i) % pixels * channels;
    for (std::int64_t c = 0; c < channels; ++c) {
      float value = values[static_cast<std::size_t>(base + c)];
      if (fusion.has_bias) value += load<float>(fusion.bias_type, arrays.bias, c);
      store<float>(out.type, arrays.output, base + c, value);
      if (fusion.sums_stored) value = load<float>(out.type, arrays.output, base + c);
      const auto at = static_cast<std::size_t>(c);
      near[at] += value;
      near_squares[at] += value * value;
      sum[at] += static_cast<double>(value);
      squares[at] += static_cast<double>(value) * static_cast<double>(value);
    }
  }
  for (std::size_t c = 0; c < sum.size(); ++c) {
    arrays.sum[c] = engine.in_any_order ? near[c] : static_cast<float>(sum[c]);
    arrays.squares[c] = engine.in_any_order ? near_squares[c] : static_cast<float>(squares[c]);
  }
}

}  // namespace emulation
