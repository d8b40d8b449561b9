// Faults on demand: what no GPU can be asked for happens at the n-th time, on the GPU named.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace emulation {

/// Where a fault can happen.
enum class Place { launch, memory, collective, connect };

/// From …FAULTS, a list such as "launch=illegal-address@100,memory=out@7#1": at the 100th launch of any GPU,
/// at the 7th allocation of GPU 1 (as numbered in the machine). Without @ the first time counts.
///
///   launch=illegal-address | ecc | lost     the context is lost, each later call says why
///   memory=out                              an allocation finds no room
///   collective=hang | fail                  it never ends; NCCL refuses it with an error of the system
///   connect=hang | die                      a rank never reaches its peers; its process is killed
///
/// Thread-safe.
class Faults {
 public:
  /// Throws std::invalid_argument naming the part of `text` that is none of these.
  explicit Faults(std::string_view text);
  /// Counts one more of `place` on `gpu`; what happens now ("hang"), or an empty text.
  std::string_view next(Place place, int gpu);

 private:
  struct Fault {
    Place place;
    std::string what;
    std::uint64_t at = 1;
    int gpu = -1;  ///< any
    std::uint64_t seen = 0;
  };
  std::mutex mutex_;
  std::vector<Fault> faults_;
};

}  // namespace emulation
