// How parameters are cut over ranks and packed for the exchange, as pure arithmetic. Every rank owns a range
// of every parameter's elements; ranges travel in buckets of bounded size, whatever the size of a parameter.
#pragma once

#include <cstddef>
#include <vector>

#include "parallel/layout/parameter_layout.h"
#include "parallel/sync/buckets.h"

namespace dtrain {

/// How a parameter's elements are cut over ranks. Ranges begin at multiples of 16 elements where the
/// parameter has at least 64 a rank.
enum class ShardCut {
  even,  ///< as even as can be
  equal  ///< all ranges of one length but for the last, so that a rank's range is at rank · length
};

/// What rank `rank` of `ranks` owns of a parameter of `count` elements.
ShardRange owned_range(std::size_t count, int rank, int ranks, ShardCut cut = ShardCut::even);

/// The length of all ranges of a parameter of `count` elements that is cut `equal`; the last may have less.
std::size_t equal_length(std::size_t count, int ranks);

/// A stretch of every rank's range of one parameter: elements [first, first + count) of each, as far as it
/// goes.
struct ShardCell {
  std::size_t slot = 0;
  std::size_t first = 0, count = 0;
  std::size_t offset = 0;  ///< elements from the start of a rank's part of the bucket
};

/// Memory of `ranks` parts of `part` elements, the r-th for what rank r owns.
struct ShardBucket {
  DType dtype = DType::f32;
  std::vector<ShardCell> cells;
  std::size_t part = 0;

  std::size_t bytes(int ranks) const noexcept {
    return part * static_cast<std::size_t>(ranks) * size_of(dtype);
  }
};

/// Buckets of at most `most_bytes` each (but at least one element a rank), in the order in which gradients
/// arrive: `order` names each slot once. A bucket ends with each of the slots `last_of_bucket`, if any.
std::vector<ShardBucket> lay_out_shards(std::span<const GradientSlot> slots,
                                        std::span<const std::size_t> order, int ranks, std::size_t most_bytes,
                                        ShardCut cut = ShardCut::even,
                                        std::span<const std::size_t> last_of_bucket = {});

}  // namespace dtrain
