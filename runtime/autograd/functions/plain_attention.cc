#include <limits>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/functions/attention_call.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/ops.h"

namespace dtrain {
namespace {

/// i64 [count], from `first` on.
Tensor places(std::int64_t first, std::int64_t count, const Tensor& like) {
  return Tensor::arange(static_cast<double>(first), static_cast<double>(first + count), 1,
                        like.shared_device());
}

/// Which keys a query sees, bool, broadcasting to [B, 1, 1, L, S]; undefined where all are.
Tensor seen_keys(const AttentionCall& call, const Tensor& query, const Tensor& key) {
  const NoGrad no_grad;
  const std::int64_t batch = query.size(0), queries = query.size(3), keys = key.size(2);
  const std::int64_t first = call.rule.first_query;
  Tensor seen;
  const auto only = [&seen](const Tensor& more) { seen = seen.defined() ? mul(seen, more) : more; };
  if (call.rule.causal) {
    only(greater_equal(places(first, queries, query).reshape({queries, 1}), places(0, keys, query)));
  }
  if (call.lengths.defined()) only(less(places(0, keys, query), call.lengths.reshape({batch, 1, 1, 1, 1})));
  if (call.segments.defined()) {
    const Tensor ids = call.segments.to(DType::i64);
    only(equal(ids.slice(1, first, first + queries).reshape({batch, 1, 1, queries, 1}),
               ids.reshape({batch, 1, 1, 1, keys})));
  }
  return seen.defined() ? seen.to(DType::boolean) : seen;
}

/// Keys or values as they broadcast over the heads that share them.
Tensor shared(const Tensor& x) { return x.unsqueeze(2); }

}  // namespace

AttentionMasks AttentionCall::masks(const Tensor& query, const Tensor& key) const {
  const auto view_of = [](const Tensor& tensor) { return tensor.defined() ? tensor.view() : View{}; };
  AttentionMasks masks{view_of(bias), view_of(lengths), view_of(segments)};
  if (!dropout) return masks;
  masks.keep_share = 1 - dropout->probability;
  masks.numbers = {
      .seed = dropout->seed,
      .layer = dropout->layer,
      .step = view_of(dropout->step),
      .rows = view_of(dropout->rows),
      .first = dropout->part * query.size(1) * query.size(2) * query.size(3) * ((key.size(2) + 3) / 4 * 4)};
  return masks;
}

Tensor attention_weights(const AttentionCall& call, const Tensor& query, const Tensor& key) {
  Tensor scores = matmul(mul(query, call.rule.scale), shared(key).transpose(3, 4));
  if (call.bias.defined()) scores = add(scores, call.bias.to(scores.dtype()));
  const Tensor seen = seen_keys(call, query, key);
  if (!seen.defined()) return softmax(scores);
  const auto number = [&](double value) {
    return Tensor::full({}, value, scores.shared_device(), scores.dtype());
  };
  const Tensor weights = softmax(where(seen, scores, number(-std::numeric_limits<double>::infinity())));
  return call.bias.defined() ? weights : where(seen, weights, number(0));  // of no key at all: not NaN
}

Tensor attention_dropout(const AttentionCall& call, const Tensor& query, const Tensor& key) {
  if (!call.dropout) return {};
  const NoGrad no_grad;
  const std::int64_t keys = key.size(2);
  const DType dtype = query.dtype() == DType::f64 ? DType::f64 : DType::f32;
  Dims shape = query.shape();
  shape[4] = (keys + 3) / 4 * 4;
  const Tensor mask = Tensor::empty(shape, query.shared_device(), dtype);
  query.device().kernels().dropout_mask(call.masks(query, key).numbers, 1 - call.dropout->probability,
                                        mask.view());
  return mask.slice(4, 0, keys);
}

// As by the kernel: scores and weights are not rounded to a low precision, under autocast either, forward and
// backward.
Tensor plain_attention(const AttentionCall& call, const Tensor& given_query, const Tensor& given_key,
                       const Tensor& given_value) {
  const Autocast full(AutocastState{});
  const DType dtype = given_query.dtype(), exact = dtype == DType::f64 ? dtype : DType::f32;
  const Tensor query = given_query.to(exact), key = given_key.to(exact), value = given_value.to(exact);
  Tensor weights = attention_weights(call, query, key);
  const Tensor kept = attention_dropout(call, query, key);
  if (kept.defined()) weights = mul(weights, kept);
  return matmul(weights, shared(value)).to(dtype);
}

Tensors plain_attention_gradients(const AttentionCall& call, const Tensor& query, const Tensor& key,
                                  const Tensor& value, const Tensor& given) {
  const Autocast full(AutocastState{});
  const DType dtype = query.dtype(), exact = dtype == DType::f64 ? dtype : DType::f32;
  const Tensor q = query.to(exact), k = key.to(exact), v = value.to(exact), grad = given.to(exact);
  const Tensor weights = attention_weights(call, q, k), kept = attention_dropout(call, q, k);
  const auto dropped = [&kept](const Tensor& x) { return kept.defined() ? mul(x, kept) : x; };
  const Tensor through = dropped(matmul(grad, shared(v).transpose(3, 4)));
  const Tensor slopes =
      mul(mul(weights, sub(through, sum(mul(through, weights), {-1}, true))), call.rule.scale);
  const auto of_keys = [&](const Tensor& factors, const Tensor& rows) {
    return sum(matmul(factors.transpose(3, 4), rows), {2}).to(dtype);
  };
  return {matmul(slopes, shared(k)).to(dtype), of_keys(slopes, q), of_keys(dropped(weights), grad)};
}

}  // namespace dtrain
