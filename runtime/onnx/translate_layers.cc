// Products, convolutions, pooling and norms, with what their kernels have fused into them.
#include <limits>

#include "runtime/base/error.h"
#include "runtime/onnx/translator.h"

namespace dtrain::onnx {
namespace {

bool is_there(const View& view) { return view.data != nullptr; }

View transposed(const View& matrix) {
  return {
      matrix.data, matrix.dtype, {matrix.shape[1], matrix.shape[0]}, {matrix.strides[1], matrix.strides[0]}};
}

/// [1, R, C] → [R, C]
View only_matrix(const View& batch) {
  return {batch.data, batch.dtype, {batch.shape[1], batch.shape[2]}, {batch.strides[1], batch.strides[2]}};
}

Attributes window(const Conv2dGeometry& g, const View& weight) {
  return {{"dilations", Extents{g.dilation_h, g.dilation_w}},
          {"group", g.groups},
          {"kernel_shape", Extents{weight.shape[2], weight.shape[3]}},
          {"pads", Extents{g.pad_h, g.pad_w, g.pad_h, g.pad_w}},
          {"strides", Extents{g.stride_h, g.stride_w}}};
}

}  // namespace

std::string Translator::activated(const std::string& name, Activation activation) {
  return activation == Activation::relu ? builder_.node("Relu", {name}) : name;
}

void Translator::kernel(Kernel<KernelId::matmul>, Name name, const View& a, const View& b, const View& bias,
                        const Activation& activation, const bool& accumulate, const View& out) {
  if (accumulate) refuse_operation(name);
  if (a.shape[0] != 1 || b.shape[0] != 1) {
    std::string product = builder_.node("MatMul", {values_.read(a).name, values_.read(b).name});
    if (is_there(bias)) product = builder_.node("Add", {product, values_.read_whole(bias)});
    return values_.write(out, activated(product, activation));
  }
  // A weight is seen transposed; Gemm takes it as it is.
  View left = only_matrix(a), right = only_matrix(b);
  const bool turned = right.strides[0] == 1 && right.strides[1] != 1;
  if (turned) right = transposed(right);
  std::vector<std::string> inputs = {values_.read_whole(left), values_.read_whole(right)};
  if (is_there(bias)) inputs.push_back(values_.read_whole(bias));
  Attributes attributes;
  if (turned) attributes.emplace_back("transB", std::int64_t{1});
  const bool floating = is_floating(out.dtype);
  if (!floating) refuse_operation("matmul of integers");
  values_.write(only_matrix(out), activated(builder_.node("Gemm", inputs, attributes), activation));
}

Value Translator::convolution(const Conv2dGeometry& geometry, const View& input, const View& weight,
                              const View& bias, const Dims& shape) {
  std::vector<std::string> inputs = {values_.read_whole(input), values_.read_whole(weight)};
  if (is_there(bias)) inputs.push_back(values_.read_whole(bias));
  return {builder_.node("Conv", std::move(inputs), window(geometry, weight)), shape};
}

void Translator::kernel(Kernel<KernelId::conv2d>, Name, const Conv2dGeometry& geometry, const View& input,
                        const View& weight, const View& bias, const Activation& activation,
                        const View& output) {
  values_.write(output, activated(convolution(geometry, input, weight, bias, output.shape).name, activation));
}

// The gradient of a convolution's input is what a transposed convolution gives.
void Translator::kernel(Kernel<KernelId::conv2d_backward_input>, Name, const Conv2dGeometry& geometry,
                        const View& input, const View& weight, const View& output) {
  Attributes attributes = window(geometry, weight);
  const auto missing = [](std::int64_t out, std::int64_t in, std::int64_t stride, std::int64_t pad,
                          std::int64_t dilation, std::int64_t kernel) {
    return out - ((in - 1) * stride - 2 * pad + dilation * (kernel - 1) + 1);
  };
  attributes.emplace_back("output_padding",
                          Extents{missing(output.shape[2], input.shape[2], geometry.stride_h, geometry.pad_h,
                                          geometry.dilation_h, weight.shape[2]),
                                  missing(output.shape[3], input.shape[3], geometry.stride_w, geometry.pad_w,
                                          geometry.dilation_w, weight.shape[3])});
  values_.write(output,
                builder_.node("ConvTranspose", {values_.read_whole(input), values_.read_whole(weight)},
                              std::move(attributes)));
}

std::string Translator::pooling(const Pool2dGeometry& g, const std::string& input) {
  Attributes attributes = {{"kernel_shape", Extents{g.kernel_h, g.kernel_w}},
                           {"pads", Extents{g.pad_h, g.pad_w, g.pad_h, g.pad_w}},
                           {"strides", Extents{g.stride_h, g.stride_w}}};
  if (g.kind == PoolKind::max) return builder_.node("MaxPool", {input}, std::move(attributes));
  attributes.emplace_back("count_include_pad", std::int64_t{1});
  return builder_.node("AveragePool", {input}, std::move(attributes));
}

void Translator::kernel(Kernel<KernelId::pool2d>, Name name, const Pool2dGeometry& geometry,
                        const View& input, const View& output, const View& indices) {
  if (is_there(indices)) refuse_operation(name);
  values_.write(output, pooling(geometry, values_.read_whole(input)));
}

void Translator::kernel(Kernel<KernelId::conv2d_relu_pool2d>, Name, const Conv2dGeometry& conv,
                        const Pool2dGeometry& pool, const View& input, const View& weight, const View& bias,
                        const View& output, const View& /*mask*/) {
  const std::string whole = convolution(conv, input, weight, bias, output.shape).name;
  values_.write(output, pooling(pool, activated(whole, Activation::relu)));
}

void Translator::kernel(Kernel<KernelId::batch_norm_inference>, Name, const BatchNormRule& rule,
                        const BatchNormChannels& channels, const View& input, const View& residual,
                        const View& output) {
  const std::int64_t count = input.shape[1];
  const auto channel = [&](const View& values, double otherwise) {
    return is_there(values) ? values_.read_whole(values) : builder_.numbers(input.dtype, otherwise, count);
  };
  std::string name =
      builder_.node("BatchNormalization",
                    {values_.read_whole(input), channel(channels.weight, 1), channel(channels.bias, 0),
                     values_.read_whole(channels.running_mean), values_.read_whole(channels.running_var)},
                    {{"epsilon", static_cast<float>(rule.eps)}});
  if (is_there(residual)) name = builder_.node("Add", {name, values_.read_whole(residual)});
  values_.write(output, activated(name, rule.activation));
}

void Translator::kernel(Kernel<KernelId::row_norm>, Name, const RowNormRule& rule, const View& input,
                        const View& weight, const View& bias, const View& /*mean*/, const View& /*inv_std*/,
                        const View& output) {
  const DType dtype = input.dtype;
  const std::string x = values_.read_whole(input);
  const std::string scale =
      is_there(weight) ? values_.read_whole(weight) : builder_.numbers(dtype, 1, input.shape[1]);
  if (rule.centered) {
    std::vector<std::string> inputs = {x, scale};
    if (is_there(bias)) inputs.push_back(values_.read_whole(bias));
    return values_.write(
        output, builder_.node("LayerNormalization", std::move(inputs),
                              {{"axis", std::int64_t{-1}}, {"epsilon", static_cast<float>(rule.eps)}}));
  }
  const std::string squares = builder_.node("ReduceMean", {builder_.node("Mul", {x, x})},
                                            {{"axes", Extents{1}}, {"keepdims", std::int64_t{1}}});
  const std::string size =
      builder_.node("Sqrt", {builder_.node("Add", {squares, builder_.number(dtype, rule.eps)})});
  std::string name = builder_.node("Mul", {builder_.node("Div", {x, size}), scale});
  if (is_there(bias)) name = builder_.node("Add", {name, values_.read_whole(bias)});
  values_.write(output, name);
}

void Translator::kernel(Kernel<KernelId::log_softmax>, Name, const View& in, const View& out) {
  values_.write(out, builder_.node("LogSoftmax", {values_.read_whole(in)}, {{"axis", std::int64_t{-1}}}));
}

// Pairs of features, multiplied by their cosine and sine and put together again.
void Translator::kernel(Kernel<KernelId::rotary>, Name name, const View& in, const View& cosines,
                        const View& sines, const bool& interleaved, const bool& back, const View& out) {
  if (back) refuse_operation(name);
  const std::int64_t pairs = cosines.shape[2], width = in.shape[3], step = interleaved ? 2 : 1;
  const auto features = [&](std::int64_t first, std::int64_t count, std::int64_t every) {
    View part = in;
    part.data =
        static_cast<char*>(in.data) + first * in.strides[3] * static_cast<std::int64_t>(size_of(in.dtype));
    part.shape[3] = count;
    part.strides[3] *= every;
    return values_.read_whole(part);
  };
  const auto for_heads = [&](View view) {
    view.strides = {view.strides[0], 0, view.strides[1], view.strides[2]};
    view.shape = {view.shape[0], 1, view.shape[1], view.shape[2]};
    return values_.read(view).name;
  };
  const auto times = [&](const std::string& a, const std::string& b) { return builder_.node("Mul", {a, b}); };
  const std::string x = features(0, pairs, step), y = features(interleaved ? 1 : pairs, pairs, step);
  const std::string cosine = for_heads(cosines), sine = for_heads(sines);
  std::vector<std::string> parts = {builder_.node("Sub", {times(x, cosine), times(y, sine)}),
                                    builder_.node("Add", {times(y, cosine), times(x, sine)})};
  const Attributes last = {{"axis", std::int64_t{-1}}};
  if (interleaved) {
    const Dims& shape = in.shape;
    for (std::string& part : parts) {
      part = builder_
                 .reshape({part, {shape[0], shape[1], shape[2], pairs}},
                          {shape[0], shape[1], shape[2], pairs, 1})
                 .name;
    }
    const Value pair = {builder_.node("Concat", parts, last), {shape[0], shape[1], shape[2], pairs, 2}};
    parts = {builder_.reshape(pair, {shape[0], shape[1], shape[2], 2 * pairs}).name};
  }
  if (2 * pairs < width) parts.push_back(features(2 * pairs, width - 2 * pairs, 1));
  values_.write(out, parts.size() == 1 ? parts[0] : builder_.node("Concat", parts, last));
}

// In its parts. Heads that share a key are a dimension that broadcasts.
void Translator::kernel(Kernel<KernelId::attention>, Name name, const AttentionRule& rule,
                        const AttentionMasks& masks, const View& query, const View& key, const View& value,
                        const View& output, const View& /*log_sums*/) {
  if (is_there(masks.lengths) || is_there(masks.segments) || masks.keep_share < 1) refuse_operation(name);
  const auto shared_by_heads = [](View view) {
    const Dims& shape = view.shape;
    view.strides = {view.strides[0], view.strides[1], view.strides[1], view.strides[2], view.strides[3]};
    view.shape = {shape[0], shape[1], 1, shape[2], shape[3]};
    return view;
  };
  const View k = shared_by_heads(key);
  const Value turned = builder_.transpose({values_.read_whole(k), k.shape}, {0, 1, 2, 4, 3});
  std::string scores = builder_.node("MatMul", {values_.read_whole(query), turned.name});
  scores = builder_.node("Mul", {scores, builder_.number(query.dtype, rule.scale)});
  if (is_there(masks.bias)) scores = builder_.node("Add", {scores, values_.read(masks.bias).name});
  if (rule.causal) scores = builder_.node("Add", {scores, causal_mask(rule, query, key)});
  const std::string weights = builder_.node("Softmax", {scores}, {{"axis", std::int64_t{-1}}});
  values_.write(output, builder_.node("MatMul", {weights, values_.read_whole(shared_by_heads(value))}));
}

// 0 where a query sees a key, else -∞: [L, S].
std::string Translator::causal_mask(const AttentionRule& rule, const View& query, const View& key) {
  const std::int64_t queries = query.shape[3], keys = key.shape[2];
  std::vector<float> mask;
  for (std::int64_t i = 0; i < queries; ++i) {
    for (std::int64_t j = 0; j < keys; ++j) {
      mask.push_back(j <= rule.first_query + i ? 0.0F : -std::numeric_limits<float>::infinity());
    }
  }
  const Dims shape = {queries, keys};
  const std::string constant = builder_.constant({mask.data(), DType::f32, shape, contiguous_strides(shape)});
  return query.dtype == DType::f32 ? constant : builder_.cast(constant, DType::f32, query.dtype);
}

}  // namespace dtrain::onnx
