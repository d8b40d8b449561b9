// A rank compared with itself: the losses and gradients of a step, computed twice. Replicas (replicas.h) show
// state that differs; what a rank computes wrongly reaches all of them alike, in the mean of the gradients,
// and with one replica there is nothing to compare with.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "runtime/base/error.h"
#include "runtime/nn/module.h"

namespace dtrain {

/// A rank computed the same twice, and got something else.
class ComputeError : public Error {
 public:
  using Error::Error;
};

/// Two computations of one step's passes, from the same parameters, batches and random numbers. While it
/// lives, each gradient of this rank is noted when it is final for a pass, before it is shared; any thread
/// may bring one.
class RepeatedPasses {
 public:
  /// The first computation begins. Keeps a copy of the buffers of `network`, which is borrowed.
  explicit RepeatedPasses(Module& network);
  ~RepeatedPasses();
  RepeatedPasses(const RepeatedPasses&) = delete;
  RepeatedPasses& operator=(const RepeatedPasses&) = delete;

  /// The loss [] of pass `i`, from 0. Waits for the device.
  void note_loss(std::size_t i, const Tensor& loss);
  /// The second computation begins, with the buffers of the first.
  void begin_second();
  /// "the loss of micro-batch 1, 2.25 and 2.5", or the first parameter, in the network's order,
  /// whose gradients differ; empty where all bits are the same.
  std::string difference() const;

 private:
  using Checksums = std::vector<std::uint32_t>;
  struct Noted {
    std::vector<double> losses;  ///< by pass; 0 where there is none
    Checksums gradients;         ///< by parameter; of all passes, one after the other
  };

  void note_gradient(std::size_t index);

  NamedTensors parameters_, buffers_, kept_;
  std::vector<std::function<void()>> hooks_;  ///< what was called before when a gradient was final
  std::mutex mutex_;
  Noted noted_[2];
  bool second_ = false;
};

/// Collective over `ranks`. Throws ComputeError on every rank where a `difference` of one is not empty,
/// naming rank and `place` ("host box, CPUs 0-3") of each such rank; PeerError.
void check_repeated(const std::string& difference, const std::string& place, Communicator& ranks,
                    const Deadline& deadline);

}  // namespace dtrain
