// Collectives on tensors that gradients go through: what tensor, sequence and pipeline parallelism are made
// of. Every rank of the group makes the same calls in the same order, and backward makes theirs in reverse.
//
//     const RankGroup group{mesh.group("tp"), std::chrono::seconds(30)};
//     Tensor h = linear(copy_to_ranks(x, group, "fc1"), weight_part, bias_part);     // columns of fc1
//     Tensor y = all_reduce(linear(h, other_part, {}), group, "fc2");                // rows of fc2
//
// There are two kinds of gradient. After all_reduce, gather_alike and own_part every rank continues
// with the same numbers and computes the same loss: the gradient of one rank is the whole gradient. After
// copy_to_ranks, all_gather and reduce_scatter each goes its own way, and gradients are added up over the
// ranks. The names are Megatron's ideas (f, g and their kin), not its names.
#pragma once

#include <string_view>

#include "collectives/communicator.h"
#include "runtime/tensor/tensor.h"

namespace dtrain {

/// Where a collective runs, forwards and backwards. Borrowed by what is recorded.
struct RankGroup {
  Communicator& communicator;
  Duration patience;  ///< bounds each wait for the peers
};

// `label` names the call in errors, the same on all ranks. Tensors have the same shape and dtype on all ranks
// and may have any strides; results are new and row-major. All throw PeerError as Work::wait, and UsageError
// for a dimension that is not there or cannot be cut evenly. A group of one rank moves nothing.

/// The sum over the ranks; its gradient is that of the input as it is.
Tensor all_reduce(const Tensor& x, const RankGroup& group, std::string_view label);
/// `x` itself, equal on all ranks; its gradient is the sum over the ranks.
Tensor copy_to_ranks(const Tensor& x, const RankGroup& group, std::string_view label);

/// The ranks' parts, one after the other along `dim`; the gradient is the reduce_scatter of the ranks'.
Tensor all_gather(const Tensor& x, int dim, const RankGroup& group, std::string_view label);
/// This rank's part along `dim` of the sum over the ranks; the gradient is the all_gather of the ranks'.
Tensor reduce_scatter(const Tensor& x, int dim, const RankGroup& group, std::string_view label);

/// As all_gather, for ranks that all continue in the same way: the gradient is this rank's part of it.
Tensor gather_alike(const Tensor& x, int dim, const RankGroup& group, std::string_view label);
/// This rank's part along `dim` of `x`, which is equal on all ranks; the gradient is gathered from all.
Tensor own_part(const Tensor& x, int dim, const RankGroup& group, std::string_view label);

/// Sends `x` to rank `to` of the group, which takes it with receive(). The result is a zero, float32 []: add
/// it to what backward starts from, and x's gradient comes back from `to` there. Gradients travel under
/// `label` too.
Tensor send(const Tensor& x, int to, const RankGroup& group, std::string_view label);
/// What rank `from` sends, of `like`'s shape, dtype and device (its values do not matter). While gradients
/// are recorded the result requires one, and backward sends it to `from`, if x required one there or not.
Tensor receive(const Tensor& like, int from, const RankGroup& group, std::string_view label);

}  // namespace dtrain
