#include "runtime/nn/transformer/multihead_attention.h"

#include <cmath>
#include <limits>
#include <string>

#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/attention.h"
#include "runtime/base/error.h"
#include "runtime/nn/init.h"

namespace dtrain {
namespace {

/// Whether two handles show the same values with the same history.
bool same(const Tensor& a, const Tensor& b) {
  return a.view().data == b.view().data && a.shape() == b.shape() && a.strides() == b.strides() &&
         a.dtype() == b.dtype() && a.autograd_state() == b.autograd_state();
}

/// What a mask adds to scores of `dtype`: -∞ where it is true, or itself.
Tensor added(const Tensor& mask, DType dtype) {
  if (mask.dtype() != DType::boolean) return mask.to(dtype);
  const Tensor none = Tensor::zeros({}, mask.shared_device(), dtype);
  return where(mask, Tensor::full({}, -std::numeric_limits<double>::infinity(), mask.shared_device(), dtype),
               none);
}

/// -∞ above the diagonal.
Tensor causal_mask(std::int64_t queries, std::int64_t keys, const Tensor& like) {
  const Tensor places = Tensor::arange(keys, like.shared_device());
  return added(places > Tensor::arange(queries, like.shared_device()).unsqueeze(1), like.dtype());
}

Tensor sum_of(const Tensor& a, const Tensor& b) {
  if (!a.defined()) return b;
  return b.defined() ? add(a, b) : a;
}

}  // namespace

MultiheadAttention::MultiheadAttention(std::int64_t width, std::int64_t heads,
                                       const MultiheadAttentionOptions& options, Generator& generator,
                                       const std::shared_ptr<Device>& device)
    : width_(width), heads_(heads), options_(options) {
  if (width < 1 || heads < 1 || width % heads != 0 || options.key_width < 0 || options.value_width < 0) {
    throw UsageError(
        "MultiheadAttention: expected heads that divide the width, and widths of keys and values of at "
        "least 0, got " +
        std::to_string(heads) + " heads, a width of " + std::to_string(width) + ", keys of " +
        std::to_string(options.key_width) + " and values of " + std::to_string(options.value_width));
  }
  if (options_.key_width == 0) options_.key_width = width;
  if (options_.value_width == 0) options_.value_width = width;
  // PyTorch draws the output's weights first, and those of the inputs when all are there.
  out_ = std::make_shared<Linear>(width, width, generator, device, LinearOptions{.bias = options.bias});
  const auto weight = [&](const char* name, const Dims& shape) {
    Tensor values = Tensor::empty(shape, device);
    init::xavier_uniform_(values, 1, generator);
    return add_parameter(name, values);
  };
  if (options_.key_width == width && options_.value_width == width) {
    in_weight_ = weight("in_proj_weight", {3 * width, width});
  } else {
    query_weight_ = weight("q_proj_weight", {width, width});
    key_weight_ = weight("k_proj_weight", {width, options_.key_width});
    value_weight_ = weight("v_proj_weight", {width, options_.value_width});
  }
  if (options.bias) {
    in_bias_ = add_parameter("in_proj_bias", Tensor::zeros({3 * width}, device));
    init::zeros_(out_->bias());
  }
  add_module("out_proj", out_);
  if (options.dropout != 0)
    dropout_ =
        add_module("dropout", std::make_shared<AttentionDropout>(options.dropout, options.dropout_key));
}

void MultiheadAttention::check(const Tensor& query, const Tensor& key, const Tensor& value) const {
  const bool fits = query.rank() == 3 && key.rank() == 3 && value.rank() == 3 && query.size(2) == width_ &&
                    key.size(2) == options_.key_width && value.size(2) == options_.value_width &&
                    query.size(0) == key.size(0) && key.size(0) == value.size(0) &&
                    key.size(1) == value.size(1);
  if (fits) return;
  throw UsageError("MultiheadAttention: expected queries, keys and values of one batch with " +
                   std::to_string(width_) + ", " + std::to_string(options_.key_width) + " and " +
                   std::to_string(options_.value_width) +
                   " features, as many keys as values, got (samples first) " + query.describe() + ", " +
                   key.describe() + " and " + value.describe());
}

MultiheadAttention::Heads MultiheadAttention::project(const Tensor& query, const Tensor& key,
                                                      const Tensor& value) const {
  const auto split_heads = [&](const Tensor& x) {
    return x.reshape({x.size(0), x.size(1), heads_, width_ / heads_}).transpose(1, 2);
  };
  if (in_weight_.defined() && same(query, key) && same(key, value)) {  // one product for all three
    const Tensor all = linear(query, in_weight_, in_bias_);
    return {split_heads(all.slice(2, 0, width_)), split_heads(all.slice(2, width_, 2 * width_)),
            split_heads(all.slice(2, 2 * width_, 3 * width_))};
  }
  const auto part = [&](const Tensor& x, const Tensor& own, std::int64_t which) {
    const std::int64_t from = which * width_, to = from + width_;
    const Tensor weight = own.defined() ? own : in_weight_.slice(0, from, to);
    return split_heads(linear(x, weight, in_bias_.defined() ? in_bias_.slice(0, from, to) : Tensor()));
  };
  return {part(query, query_weight_, 0), part(key, key_weight_, 1), part(value, value_weight_, 2)};
}

/// What is added to the scores [N, heads, L, S]; undefined: nothing.
Tensor MultiheadAttention::mask_of(const AttendOptions& options, const Heads& heads) const {
  const std::int64_t batch = heads.query.size(0), queries = heads.query.size(2), keys = heads.key.size(2);
  const DType dtype = heads.query.dtype() == DType::f64 ? DType::f64 : DType::f32;
  Tensor padding = options.key_padding_mask, mask = options.attention_mask;
  const auto text = [](const Tensor& tensor) { return tensor.defined() ? tensor.describe() : "none"; };
  const bool fits = (!padding.defined() || padding.shape() == Dims{batch, keys}) &&
                    (!mask.defined() || mask.shape() == Dims{queries, keys} ||
                     mask.shape() == Dims{batch * heads_, queries, keys});
  if (!fits) {
    throw UsageError("MultiheadAttention: expected key_padding_mask " + Dims{batch, keys}.to_string() +
                     " and attention_mask " + Dims{queries, keys}.to_string() + " or " +
                     Dims{batch * heads_, queries, keys}.to_string() + ", got " + text(padding) + " and " +
                     text(mask));
  }
  if (mask.defined() && mask.rank() == 3) mask = mask.reshape({batch, heads_, queries, keys});
  if (mask.defined()) mask = added(mask, dtype);
  if (padding.defined()) padding = added(padding, dtype).reshape({batch, 1, 1, keys});
  return sum_of(mask, padding);
}

Attended MultiheadAttention::attend(const Tensor& given_query, const Tensor& given_key,
                                    const Tensor& given_value, const AttendOptions& options) {
  const bool one = given_query.rank() == 2;
  const auto samples_first = [&](const Tensor& x) {
    if (one && x.rank() == 2) return x.unsqueeze(0);
    return options_.batch_first || x.rank() != 3 ? x : x.transpose(0, 1);
  };
  const Tensor query = samples_first(given_query);
  const Tensor key = same(given_key, given_query) ? query : samples_first(given_key);
  const Tensor value = same(given_value, given_key) ? key : samples_first(given_value);
  check(query, key, value);
  AttendOptions own = options;
  if (one && own.key_padding_mask.defined() && own.key_padding_mask.rank() == 1)
    own.key_padding_mask = own.key_padding_mask.unsqueeze(0);
  const Heads heads = project(query, key, value);
  Tensor mask = mask_of(own, heads), seen, weights;
  if (options.need_weights) {
    const Tensor scaled =
        mul(heads.query, std::sqrt(static_cast<double>(heads_) / static_cast<double>(width_)));
    const Tensor scores = matmul(scaled, heads.key.transpose(2, 3));
    if (options.causal) mask = sum_of(mask, causal_mask(scores.size(2), scores.size(3), scores));
    weights = softmax(mask.defined() ? add(scores, mask.to(scores.dtype())) : scores);
    if (dropout_ != nullptr) weights = (*dropout_)(weights);
    seen = matmul(weights.to(heads.value.dtype()), heads.value);
  } else {
    AttentionOptions how{.causal = options.causal};
    if (dropout_ != nullptr) how.dropout = dropout_->next(heads.query);
    seen = scaled_dot_product_attention(heads.query, heads.key, heads.value, mask, how);
  }
  Tensor y = (*out_)(seen.transpose(1, 2).reshape({query.size(0), query.size(1), width_}));
  if (weights.defined() && options.average_weights) weights = mean(weights, {1});
  if (one) return {y.squeeze(0), weights.defined() ? weights.squeeze(0) : weights};
  return {options_.batch_first ? y : y.transpose(0, 1), weights};
}

Tensors MultiheadAttention::forward_all(const Tensors& inputs) {
  if (inputs.size() == 2 || inputs.size() > 5 || inputs.empty()) {
    throw UsageError("MultiheadAttention: expected one input, or query, key, value, and masks if any, got " +
                     std::to_string(inputs.size()));
  }
  if (inputs.size() == 1) return {attend(inputs[0], inputs[0], inputs[0]).output};
  AttendOptions options;
  if (inputs.size() > 3) options.key_padding_mask = inputs[3];
  if (inputs.size() > 4) options.attention_mask = inputs[4];
  return {attend(inputs[0], inputs[1], inputs[2], options).output};
}

}  // namespace dtrain
