// How the gradient of a convolution's weight is cut for the threads of a worker, where a library computes it:
// a library's own threads would cut sums as many ways as they are. Pieces follow from the shape.
#pragma once

#include <functional>

#include "runtime/device/cpu/workers/workers.h"
#include "runtime/device/kernels.h"

namespace dtrain::cpu {

/// The arguments of conv2d_backward_weight, or of a piece of it.
struct WeightGradientViews {
  View input, grad_output, grad_weight, grad_bias;
};

/// Either some outputs each, from a copy of their gradients, or some images each, whose sums are joined in
/// the order of pieces: whichever moves less memory.
class WeightPieces {
 public:
  /// Computes a piece with one thread: its views, and whose scratch memory to use.
  using Compute = std::function<void(const WeightGradientViews& piece, int worker)>;

  WeightPieces(const Conv2dGeometry& geometry, const WeightGradientViews& whole);

  std::int64_t count() const noexcept { return count_; }
  /// Shapes of the first and the last piece, between which all others are; data of copies is not there yet.
  WeightGradientViews first() const { return piece(0); }
  WeightGradientViews last() const { return piece(count_ - 1); }
  /// All pieces. `scratch` holds copies, and sums until they are joined.
  void run(const Compute& compute, Scratch& sums, WorkerScratch& copies) const;

 private:
  WeightGradientViews piece(std::int64_t index) const;
  void run_outputs(const Compute& compute, WorkerScratch& copies) const;
  void run_images(const Compute& compute, Scratch& sums) const;

  const WeightGradientViews whole_;
  bool by_outputs_ = false;
  std::int64_t step_ = 0;  ///< outputs or images of a piece
  std::int64_t count_ = 1;
  double piece_ns_ = 0;
};

}  // namespace dtrain::cpu
