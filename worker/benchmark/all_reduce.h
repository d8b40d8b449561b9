// How fast all_reduce is, and whether it is right, for one size of message: as nccl-tests measures it.
#pragma once

#include <string>

#include "collectives/communicator.h"

namespace dtrain {

struct AllReducePlan {
  DType dtype = DType::f32;
  int warmup = 5;
  int iterations = 20;
  Duration timeout = std::chrono::minutes(5);  ///< of one call
};

/// Of one size, in place. Times are those of the slowest rank in each call.
struct AllReduceResult {
  std::size_t count = 0;  ///< elements
  DType dtype = DType::f32;
  int world = 1;
  double median_seconds = 0, best_seconds = 0;
  std::int64_t wrong = 0;  ///< elements that were not the sum, over all ranks

  std::size_t bytes() const noexcept { return count * size_of(dtype); }
  /// Bytes a second by the median, in 1e9.
  double algorithm_gbs() const noexcept;
  /// What each rank's link has to carry for that: 2·(n-1)/n of it, the least that any algorithm can do with.
  double bus_gbs() const noexcept;
};

/// Collective. The sum is checked with small whole numbers, exact in every dtype up to 128 ranks, before and
/// after the timed calls. Throws PeerError, DeviceError.
AllReduceResult measure_all_reduce(Communicator& communicator, const std::shared_ptr<Device>& device,
                                   std::size_t count, const AllReducePlan& plan);

/// nccl-tests' columns, two lines of heading.
std::string all_reduce_heading();
std::string all_reduce_line(const AllReduceResult& result);
/// The same as one JSON object.
std::string all_reduce_json(const AllReduceResult& result, std::string_view backend);

}  // namespace dtrain
