// Faults on demand: what no GPU can be asked for happens at the n-th time, on the GPU named.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace emulation {

/// Where a fault can happen.
enum class Place { launch, memory, collective, connect, recording, speed, links };

/// From …FAULTS, a list such as "launch=illegal-address@100,memory=out@7#1": at the 100th launch of any GPU,
/// at the 7th allocation of GPU 1 (as numbered in the machine). Without @ the first time counts.
///
///   launch=illegal-address | ecc | lost     the context is lost, each later call says why
///   memory=out                              an allocation finds no room
///   memory=above:B                          nor do those of more than B bytes, each time
///   collective=hang | fail                  it never ends; NCCL refuses it with an error of the system
///   connect=hang | die                      a rank never reaches its peers; its process is killed
///   recording=die                           its process is killed at the end of a recording
///   speed=slow:K                            kernels and library calls take K times as long, each time
///   links=slow:K                            so do collectives alone
///
/// Thread-safe.
class Faults {
 public:
  /// Throws std::invalid_argument naming the part of `text` that is none of these.
  explicit Faults(std::string_view text);
  /// Counts one more of `place` on `gpu`; what happens now ("hang"), or an empty text. `bytes`: of an
  /// allocation.
  std::string_view next(Place place, int gpu, std::uint64_t bytes = 0);
  /// How many times as long as they need things of `place`, speed or links, take on `gpu`.
  double slowness(Place place, int gpu) const;

 private:
  struct Fault {
    Place place;
    std::string what;
    std::uint64_t at = 1;
    int gpu = -1;              ///< any
    std::uint64_t number = 0;  ///< behind a colon: then it happens each time
    std::uint64_t seen = 0;
  };
  std::mutex mutex_;
  std::vector<Fault> faults_;
};

}  // namespace emulation
