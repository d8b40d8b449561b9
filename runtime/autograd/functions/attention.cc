// Attention by its kernel, whose backward computes the weights again; by plain operations where that has to
// be.
#include "runtime/autograd/ops/attention.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/functions/attention_call.h"
#include "runtime/autograd/functions/elementwise.h"
#include "runtime/autograd/node.h"
#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/joining.h"
#include "runtime/base/error.h"
#include "runtime/tensor/shape.h"

namespace dtrain {
namespace {

void check_attention(const Tensor& query, const Tensor& key, const Tensor& value) {
  check_floating("scaled_dot_product_attention", query);
  check_same_kind("scaled_dot_product_attention", query, key);
  check_same_kind("scaled_dot_product_attention", query, value);
  if (query.rank() >= 2 && key.rank() >= 2 && value.rank() >= 2 && query.size(-1) == key.size(-1) &&
      key.size(-2) == value.size(-2) && query.size(-1) > 0) {
    return;
  }
  throw UsageError(
      "scaled_dot_product_attention: expected query […, L, E], key […, S, E] and value […, S, F], got " +
      query.describe() + ", " + key.describe() + " and " + value.describe());
}

/// The dimensions before the matrices, the last one of which are heads.
Dims leading(const Tensor& x, bool has_heads) {
  Dims dims(std::span(x.shape().begin(), x.shape().end() - 2));
  if (!has_heads || dims.rank() == 0) dims.push_back(1);
  return dims;
}

Dims with(Dims dims, std::initializer_list<std::int64_t> more) {
  for (const std::int64_t extent : more) dims.push_back(extent);
  return dims;
}

/// Heads as the kernel takes them: how many share a key, and the dimensions before them.
struct HeadLayout {
  Dims batch;
  std::int64_t groups = 1, shared = 1;

  Dims queries(std::int64_t rows, std::int64_t columns) const {
    return {batch.product(), groups, shared, rows, columns};
  }
  Dims keys(std::int64_t rows, std::int64_t columns) const {
    return {batch.product(), groups, rows, columns};
  }
};

Dims without_last(const Dims& dims, int count) { return Dims(std::span(dims.begin(), dims.end() - count)); }

/// `given` query, key and value heads: a key's extent of 1 broadcasts, and a multiple is shared among
/// neighbours.
HeadLayout layout_of(const Tensor& query, const Tensor& key, const Tensor& value, bool has_heads) {
  constexpr std::string_view kName = "scaled_dot_product_attention";
  const Dims q = leading(query, has_heads),
             k = broadcast_shapes(leading(key, has_heads), leading(value, has_heads), kName);
  // Groups that are a dimension of their own, [B, G, R, L, E] beside [B, G, 1, S, E], stay as they lie.
  if (q.rank() >= 3 && k.rank() == q.rank() && k.back() == 1) {
    const Dims batch = broadcast_shapes(without_last(q, 2), without_last(k, 2), kName);
    const std::int64_t groups = broadcast_shapes({q[q.rank() - 2]}, {k[k.rank() - 2]}, kName)[0];
    return {batch, groups, q.back()};
  }
  const std::int64_t heads = q.back() == 1 ? k.back() : q.back();
  if (heads == 0 && k.back() == 0)
    return {broadcast_shapes(without_last(q, 1), without_last(k, 1), kName), 0, 1};
  if (k.back() < 1 || heads % k.back() != 0) {
    throw UsageError(
        "scaled_dot_product_attention: expected query heads that are a multiple of the key heads, got "
        "query " +
        query.describe() + " and key " + key.describe());
  }
  return {broadcast_shapes(without_last(q, 1), without_last(k, 1), kName), k.back(), heads / k.back()};
}

/// x as the kernel takes it, with neighbours along the last dimension.
Tensor with_neighbours(const Tensor& x) {
  return x.size(-1) > 1 && x.strides().back() != 1 ? x.contiguous() : x;
}

/// The same elements in `shape`, with neighbours along the last dimension. `whole` is the shape with all
/// leading dimensions, to which x broadcasts.
Tensor as_heads(const Tensor& x, const Dims& whole, const Dims& shape, bool has_heads) {
  Tensor y = has_heads ? x : x.unsqueeze(-3);
  if (y.shape() != whole) y = y.expand(whole);
  if (y.shape() != shape) y = y.reshape(shape);
  return with_neighbours(y);
}

/// The options' tensors, checked where the kernel could not say what is wrong with them.
AttentionCall call_of(const AttentionOptions& options, std::int64_t width, std::int64_t batch,
                      std::int64_t keys) {
  AttentionCall call;
  call.rule = {options.scale.value_or(1.0 / std::sqrt(static_cast<double>(width))), options.causal,
               options.first_query};
  const auto take = [](std::string_view what, const Tensor& x, DType dtype, const Dims& shape) {
    if (!x.defined()) return x;
    if (x.dtype() == dtype && x.shape() == shape) return x.contiguous();
    throw UsageError("scaled_dot_product_attention: expected " + std::string(what) + " of " +
                     std::string(name_of(dtype)) + " " + shape.to_string() + ", got " + x.describe());
  };
  call.lengths = take("lengths", options.lengths, DType::i64, {batch});
  call.segments = take("segments", options.segments, DType::i32, {batch, keys});
  if (!options.dropout || options.dropout->probability == 0) return call;
  call.dropout = options.dropout;
  const double probability = call.dropout->probability;
  if (!(probability > 0 && probability < 1)) {
    throw UsageError("scaled_dot_product_attention: expected a dropout of at least 0 and below 1, got " +
                     std::to_string(probability));
  }
  call.dropout->step = call.dropout->step.clone();  // backward is of this step, whatever comes next
  return call;
}

/// Whether the kernel takes these.
bool is_fast(const AttentionOptions& options, const Tensor& mask, std::int64_t width,
             std::int64_t value_width) {
  const bool differentiable_mask = mask.defined() && recording(mask);
  return !options.keeps_scores && !differentiable_mask && width <= kMostAttentionWidth &&
         value_width <= kMostAttentionWidth;
}

/// Uninitialised [B, heads …, rows, columns] that lie as [B, rows, heads …, columns].
Tensor empty_heads(const Dims& shape, const Tensor& like) {
  if (shape.rank() == 4) {
    return Tensor::empty({shape[0], shape[2], shape[1], shape[3]}, like.shared_device(), like.dtype())
        .transpose(1, 2);
  }
  return Tensor::empty({shape[0], shape[3], shape[1], shape[2], shape[4]}, like.shared_device(), like.dtype())
      .permute({0, 2, 3, 1, 4});
}

bool has_rows_outside(const Tensor& heads) {
  return heads.strides()[heads.rank() - 2] > heads.strides()[heads.rank() - 3];
}

/// A call with its masks, which backward reads again: it refuses when they were modified since.
class SavedCall {
 public:
  explicit SavedCall(const AttentionCall& call) : call_(call) {
    for (const Tensor& mask : {call.bias, call.lengths, call.segments})
      if (mask.defined()) masks_.push_back(Saved::input(mask));
  }
  const AttentionCall& get(const GradSink& sink) const {
    for (const Saved& mask : masks_) (void)mask.get(sink);
    return call_;
  }

 private:
  AttentionCall call_;
  std::vector<Saved> masks_;
};

/// What backward keeps of queries, keys and values of their own.
struct AttentionSaved {
  SavedCall call;
  Saved query, key, value, output;
  Tensor log_sums;
};

void attention_backward(const AttentionSaved& saved, const Tensor& given, GradSink& sink) {
  const AttentionCall& call = saved.call.get(sink);
  const Tensor query = saved.query.get(sink), key = saved.key.get(sink), value = saved.value.get(sink);
  if (grad_enabled()) {
    Tensors gradients = plain_attention_gradients(call, query, key, value, given);
    for (int i = 0; i < 3; ++i) {
      if (sink.wants(i)) sink.deliver(i, std::move(gradients[static_cast<std::size_t>(i)]));
    }
    return;
  }
  const Tensor grad = with_neighbours(given);
  const Tensor* const inputs[] = {&query, &key, &value};
  Tensor to[3];
  View views[3];
  for (int i = 0; i < 3; ++i) {
    if (!sink.wants(i)) continue;
    to[i] = has_rows_outside(*inputs[i]) ? empty_heads(inputs[i]->shape(), *inputs[i])
                                         : sink.destination(i, query.shared_device());
    views[i] = to[i].view();
  }
  query.device().kernels().attention_backward(
      call.rule, call.masks(query, key), query.view(), key.view(), value.view(),
      saved.output.get(sink).view(), saved.log_sums.view(), grad.view(), views[0], views[1], views[2]);
  for (int i = 0; i < 3; ++i) {
    if (sink.wants(i)) sink.deliver(i, std::move(to[i]));
  }
}

struct Attended {
  Tensor output, log_sums;
};

/// Runs the kernel; the result lies as [B, L, G, R, F].
Attended attend(const AttentionCall& call, const Tensor& query, const Tensor& key, const Tensor& value) {
  Dims shape = query.shape();
  shape[4] = value.size(3);
  const DType exact = query.dtype() == DType::f64 ? DType::f64 : DType::f32;
  Attended result{empty_heads(shape, query),
                  Tensor::empty(without_last(shape, 1), query.shared_device(), exact)};
  query.device().kernels().attention(call.rule, call.masks(query, key), query.view(), key.view(),
                                     value.view(), result.output.view(), result.log_sums.view());
  return result;
}

Tensor fast_attention(const AttentionCall& call, const Tensor& query, const Tensor& key,
                      const Tensor& value) {
  Attended result = attend(call, query, key, value);
  if (!recording({query, key, value})) return result.output;
  AttentionSaved saved{SavedCall(call),     Saved::input(query),          Saved::input(key),
                       Saved::input(value), Saved::output(result.output), result.log_sums};
  return record("attention", std::move(result.output), {query, key, value},
                [saved = std::move(saved)](const Tensor& grad, GradSink& sink) {
                  attention_backward(saved, grad, sink);
                });
}

/// Where queries, keys and values lie in a row of [B, L, N].
struct Packing {
  std::int64_t groups, shared, width;
  bool by_group;

  std::int64_t columns() const { return groups * (shared + 2) * width; }
  /// The queries [B, G, R, L, E]; keys and values (1, 2) [B, G, L, E].
  Tensor part(const Tensor& qkv, int which) const {
    const std::int64_t batch = qkv.size(0), length = qkv.size(1), queries = groups * shared;
    if (by_group) {
      const Tensor rows = qkv.reshape({batch, length, groups, shared + 2, width});
      if (which == 0) return rows.slice(3, 0, shared).permute({0, 2, 3, 1, 4});
      return rows.select(3, shared + which - 1).transpose(1, 2);
    }
    if (which == 0) {
      const Tensor rows = qkv.slice(2, 0, queries * width).reshape({batch, length, groups, shared, width});
      return rows.permute({0, 2, 3, 1, 4});
    }
    const std::int64_t first = (queries + (which - 1) * groups) * width;
    return qkv.slice(2, first, first + groups * width)
        .reshape({batch, length, groups, width})
        .transpose(1, 2);
  }
  /// The other way round: [B, L, N] of the three.
  Tensor joined(const Tensors& parts) const {
    const std::int64_t batch = parts[1].size(0), length = parts[1].size(2);
    const auto rows_of = [&](std::size_t i) {
      const Tensor rows = i == 0 ? parts[0].permute({0, 3, 1, 2, 4}) : parts[i].transpose(1, 2);
      return by_group ? rows.reshape({batch, length, groups, -1, width}) : rows.reshape({batch, length, -1});
    };
    return cat({rows_of(0), rows_of(1), rows_of(2)}, by_group ? 3 : 2).reshape({batch, length, columns()});
  }
};

Packing packing_of(const Tensor& qkv, const PackedHeads& heads) {
  const std::int64_t groups = heads.key_heads == 0 ? heads.heads : heads.key_heads;
  const std::int64_t parts = heads.heads + 2 * groups;
  const bool fits = qkv.rank() == 3 && heads.heads >= 1 && groups >= 1 && heads.heads % groups == 0 &&
                    qkv.size(2) % parts == 0 && qkv.size(2) > 0;
  if (fits) return {groups, heads.heads / groups, qkv.size(2) / parts, heads.by_group};
  throw UsageError("packed_attention: expected qkv [B, L, (heads + 2 · key_heads) · E] of " +
                   std::to_string(heads.heads) + " heads and " + std::to_string(groups) +
                   " key heads that divide them, got " + qkv.describe());
}

struct PackedSaved {
  SavedCall call;
  Packing packing;
  Saved qkv, output;
  Tensor log_sums;
};

void packed_backward(const PackedSaved& saved, const Tensor& given, GradSink& sink) {
  const AttentionCall& call = saved.call.get(sink);
  const Packing& packing = saved.packing;
  const Tensor qkv = saved.qkv.get(sink);
  const Tensor query = packing.part(qkv, 0), key = packing.part(qkv, 1), value = packing.part(qkv, 2);
  const Dims rows = {given.size(0), given.size(1), packing.groups, packing.shared, packing.width};
  const Tensor grad = with_neighbours(given.reshape(rows).permute({0, 2, 3, 1, 4}));
  if (grad_enabled()) {
    return sink.deliver(0, packing.joined(plain_attention_gradients(call, query, key, value, grad)));
  }
  Tensor to = sink.destination(0, grad.shared_device());
  query.device().kernels().attention_backward(call.rule, call.masks(query, key), query.view(), key.view(),
                                              value.view(), saved.output.get(sink).view(),
                                              saved.log_sums.view(), grad.view(), packing.part(to, 0).view(),
                                              packing.part(to, 1).view(), packing.part(to, 2).view());
  sink.deliver(0, std::move(to));
}

/// The mask as it broadcasts to [B, G, R, L, S]; one of matrices without heads is one of each matrix of the
/// batch.
Tensor bias_of(const Tensor& mask, const HeadLayout& layout, bool has_heads, std::int64_t queries,
               std::int64_t keys, DType dtype) {
  if (!mask.defined()) return mask;
  const Tensor own = has_heads || mask.rank() <= 2 ? mask : mask.unsqueeze(-3);
  const bool has_groups = mask.rank() > layout.batch.rank() + 3;
  const Dims heads = has_groups ? with(layout.batch, {layout.groups, layout.shared})
                                : with(layout.batch, {layout.groups * layout.shared});
  const Tensor bias = own.to(dtype).expand(with(heads, {queries, keys}));
  return bias.reshape(layout.queries(queries, keys));
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& given_query, const Tensor& given_key,
                                    const Tensor& given_value, const Tensor& mask,
                                    const AttentionOptions& options) {
  const Tensor query = autocast_low(given_query), key = autocast_low(given_key),
               value = autocast_low(given_value);
  check_attention(query, key, value);
  const std::int64_t queries = query.size(-2), keys = key.size(-2), width = query.size(-1),
                     value_width = value.size(-1);
  const bool has_heads = query.rank() > 3 || key.rank() > 3 || value.rank() > 3;
  const HeadLayout layout = layout_of(query, key, value, has_heads);
  const bool has_groups =
      query.rank() >= 5 && key.rank() == query.rank() && layout.batch.rank() + 4 == query.rank();
  const std::int64_t heads = layout.groups * layout.shared;
  const Dims lead =
      has_groups ? with(layout.batch, {layout.groups, layout.shared}) : with(layout.batch, {heads});
  const Dims key_lead =
      has_groups ? with(layout.batch, {layout.groups, 1}) : with(layout.batch, {layout.groups});
  const Tensor q = as_heads(query, with(lead, {queries, width}), layout.queries(queries, width), has_heads);
  const Tensor k = as_heads(key, with(key_lead, {keys, width}), layout.keys(keys, width), has_heads);
  const Tensor v =
      as_heads(value, with(key_lead, {keys, value_width}), layout.keys(keys, value_width), has_heads);
  AttentionCall call = call_of(options, width, layout.batch.product(), keys);
  call.bias =
      bias_of(mask, layout, has_heads, queries, keys, query.dtype() == DType::f64 ? DType::f64 : DType::f32);
  const Tensor result =
      autocast_rounded(is_fast(options, mask, width, value_width) ? fast_attention(call, q, k, v)
                                                                  : plain_attention(call, q, k, v));
  // A matrix and a batch of matrices have no dimension for heads.
  return result.reshape(with(has_heads ? lead : without_last(lead, 1), {queries, value_width}));
}

Tensor packed_attention(const Tensor& given, const PackedHeads& heads, const AttentionOptions& options) {
  check_floating("packed_attention", given);
  const Tensor qkv = autocast_low(given).contiguous();
  const Packing packing = packing_of(qkv, heads);
  const Dims shape = {qkv.size(0), qkv.size(1), packing.groups * packing.shared * packing.width};
  const AttentionCall call = call_of(options, packing.width, qkv.size(0), qkv.size(1));
  if (!is_fast(options, {}, packing.width, packing.width)) {
    const Tensor result =
        plain_attention(call, packing.part(qkv, 0), packing.part(qkv, 1), packing.part(qkv, 2));
    return autocast_rounded(result.permute({0, 3, 1, 2, 4}).reshape(shape));
  }
  const Tensor source = qkv.detach();
  Attended result = attend(call, packing.part(source, 0), packing.part(source, 1), packing.part(source, 2));
  Tensor output = result.output.permute({0, 3, 1, 2, 4}).reshape(shape);
  if (!recording(qkv)) return autocast_rounded(output);
  PackedSaved saved{SavedCall(call), packing, Saved::input(qkv), Saved::output(result.output),
                    result.log_sums};
  return autocast_rounded(record("attention", std::move(output), {qkv},
                                 [saved = std::move(saved)](const Tensor& grad, GradSink& sink) {
                                   packed_backward(saved, grad, sink);
                                 }));
}

}  // namespace dtrain
