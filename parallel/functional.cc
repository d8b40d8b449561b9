#include "parallel/functional.h"

#include <fmt/format.h>

#include <string>

#include "parallel/span_of.h"
#include "runtime/autograd/node.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

/// A group with the label of one call, as closures keep it.
struct Ranks {
  RankGroup group;
  std::string label;

  int rank() const { return group.communicator.rank(); }
  int size() const { return group.communicator.size(); }
  void finish(const std::unique_ptr<Work>& work) const { work->wait(Deadline::after(group.patience)); }
};

Tensor dense(const Tensor& x) { return x.detach().contiguous(); }

int checked_dim(const Tensor& x, int dim, std::string_view what) {
  const int along = dim < 0 ? dim + x.rank() : dim;
  if (along < 0 || along >= x.rank())
    throw UsageError(fmt::format("{}: expected a dimension of {}, got {}", what, x.describe(), dim));
  return along;
}

std::int64_t part_size(const Tensor& x, int along, int ranks, std::string_view what) {
  if (x.size(along) % ranks == 0) return x.size(along) / ranks;
  throw UsageError(fmt::format("{}: expected dimension {} of {} to be a multiple of {} ranks", what, along,
                               x.describe(), ranks));
}

/// Dimension `from` in the place of dimension `to`, the others in their order.
Tensor move_dim(const Tensor& x, int from, int to) {
  std::vector<std::int64_t> order;
  for (int i = 0; i < x.rank(); ++i) {
    if (i != from) order.push_back(i);
  }
  order.insert(order.begin() + to, from);
  return x.permute(Dims(order));
}

// ---- without gradients; each waits

Tensor summed(const Tensor& x, const Ranks& ranks) {
  Tensor result = dense(x);
  if (ranks.size() == 1) return result;
  if (result.shares_storage(x)) result = result.clone();
  ranks.finish(ranks.group.communicator.all_reduce(span_of(result), ReduceOp::sum, ranks.label));
  return result;
}

Tensor gathered(const Tensor& x, int along, const Ranks& ranks) {
  const Tensor mine = dense(x);
  std::vector<std::int64_t> shape(mine.shape().begin(), mine.shape().end());
  shape.insert(shape.begin(), ranks.size());
  const Tensor all = Tensor::empty(Dims(shape), mine.shared_device(), mine.dtype());
  ranks.finish(ranks.group.communicator.all_gather(span_of(mine), span_of(all), ranks.label));
  shape.erase(shape.begin());
  shape[static_cast<std::size_t>(along)] *= ranks.size();
  return move_dim(all, 0, along).contiguous().reshape(Dims(shape));
}

Tensor scattered_sum(const Tensor& x, int along, const Ranks& ranks) {
  const std::int64_t part = part_size(x, along, ranks.size(), "reduce_scatter");
  std::vector<std::int64_t> shape(x.shape().begin(), x.shape().end());
  shape[static_cast<std::size_t>(along)] = part;
  const Tensor result = Tensor::empty(Dims(shape), x.shared_device(), x.dtype());
  shape.insert(shape.begin() + along, ranks.size());
  const Tensor parts = move_dim(dense(x).reshape(Dims(shape)), along, 0).contiguous();
  ranks.finish(
      ranks.group.communicator.reduce_scatter(span_of(parts), span_of(result), ReduceOp::sum, ranks.label));
  return result;
}

Tensor cut(const Tensor& x, int along, const Ranks& ranks) {
  const std::int64_t part = part_size(x, along, ranks.size(), "own_part");
  return x.detach().slice(along, part * ranks.rank(), part * (ranks.rank() + 1)).contiguous();
}

/// Something that requires a gradient, for what is recorded without an input that does.
Tensor start_of_tape(const std::shared_ptr<Device>& device) {
  Tensor origin = Tensor::zeros({}, device);
  origin.set_requires_grad(true);
  return origin;
}

/// `result` as a function of `x` whose gradient is `adjoint(gradient)`.
template <class Adjoint>
Tensor recorded(std::string_view name, const Tensor& x, Tensor result, Adjoint adjoint) {
  if (!recording(x)) return result;
  return record(name, std::move(result), {x},
                [name, adjoint = std::move(adjoint)](const Tensor& grad, GradSink& sink) {
                  if (sink.options().create_graph) {
                    throw UsageError(std::string(name) +
                                     ": gradients of its gradient are not available; leave create_graph out");
                  }
                  // Also where it is not wanted here: the other ranks are in the call.
                  sink.deliver(0, adjoint(grad));
                });
}

}  // namespace

Tensor all_reduce(const Tensor& x, const RankGroup& group, std::string_view label) {
  return recorded("all_reduce", x, summed(x, {group, std::string(label)}),
                  [](const Tensor& grad) { return grad; });
}

Tensor copy_to_ranks(const Tensor& x, const RankGroup& group, std::string_view label) {
  const Ranks ranks{group, std::string(label)};
  if (ranks.size() == 1) return x;
  return recorded("copy_to_ranks", x, x.detach(),
                  [ranks](const Tensor& grad) { return summed(grad, ranks); });
}

Tensor all_gather(const Tensor& x, int dim, const RankGroup& group, std::string_view label) {
  const Ranks ranks{group, std::string(label)};
  const int along = checked_dim(x, dim, "all_gather");
  return recorded("all_gather", x, gathered(x, along, ranks),
                  [ranks, along](const Tensor& grad) { return scattered_sum(grad, along, ranks); });
}

Tensor reduce_scatter(const Tensor& x, int dim, const RankGroup& group, std::string_view label) {
  const Ranks ranks{group, std::string(label)};
  const int along = checked_dim(x, dim, "reduce_scatter");
  return recorded("reduce_scatter", x, scattered_sum(x, along, ranks),
                  [ranks, along](const Tensor& grad) { return gathered(grad, along, ranks); });
}

Tensor gather_alike(const Tensor& x, int dim, const RankGroup& group, std::string_view label) {
  const Ranks ranks{group, std::string(label)};
  const int along = checked_dim(x, dim, "gather_alike");
  return recorded("gather_alike", x, gathered(x, along, ranks),
                  [ranks, along](const Tensor& grad) { return cut(grad, along, ranks); });
}

Tensor own_part(const Tensor& x, int dim, const RankGroup& group, std::string_view label) {
  const Ranks ranks{group, std::string(label)};
  const int along = checked_dim(x, dim, "own_part");
  return recorded("own_part", x, cut(x, along, ranks),
                  [ranks, along](const Tensor& grad) { return gathered(grad, along, ranks); });
}

Tensor send(const Tensor& x, int to, const RankGroup& group, std::string_view label) {
  const Ranks ranks{group, std::string(label)};
  const Tensor values = dense(x);
  ranks.finish(group.communicator.send(span_of(values), to, label));
  const Tensor token = Tensor::zeros({}, x.shared_device());
  if (!grad_enabled() || !is_floating(x.dtype())) return token;
  // The receiver sends a gradient whether it is wanted here or not.
  const bool wanted = x.requires_grad();
  const auto taken = [ranks, to, wanted, shape = x.shape(), dtype = x.dtype(), device = x.shared_device()](
                         const Tensor&, GradSink& sink) {
    const Tensor grad = Tensor::empty(shape, device, dtype);
    ranks.finish(ranks.group.communicator.receive(span_of(grad), to, ranks.label));
    sink.deliver(0, wanted ? grad : Tensor());
  };
  return record("send", token, {wanted ? x : start_of_tape(x.shared_device())}, taken);
}

Tensor receive(const Tensor& like, int from, const RankGroup& group, std::string_view label) {
  const Ranks ranks{group, std::string(label)};
  const Tensor values = Tensor::empty(like.shape(), like.shared_device(), like.dtype());
  ranks.finish(group.communicator.receive(span_of(values), from, label));
  if (!grad_enabled() || !is_floating(values.dtype())) return values;
  return record("receive", values, {start_of_tape(like.shared_device())},
                [ranks, from](const Tensor& grad, GradSink& sink) {
                  const Tensor mine = grad.detach().contiguous();
                  ranks.finish(ranks.group.communicator.send(span_of(mine), from, ranks.label));
                  sink.deliver(0, {});
                });
}

}  // namespace dtrain
