// A parameter's gradient and its place in a bucket. Buckets are on one device, the communicator's, while
// parameters may be on several of a process: a gradient on another GPU stays beside its parameter, goes to
// its place when it is final, and comes back when it is shared.
#pragma once

#include <memory>

#include "runtime/device/view.h"
#include "runtime/tensor/tensor.h"

namespace dtrain {

/// Used by one thread at a time.
class BucketGradient {
 public:
  /// Of `parameter`, a dense leaf that requires a gradient; buckets are on `home`. Call bind_view() next.
  BucketGradient(const Tensor& parameter, const std::shared_ptr<Device>& home);

  /// From now on `slot` is its place: flat and dense, in memory that `owner` keeps. A gradient that is not
  /// away is written there by backward.
  void bind_view(const View& slot, const std::shared_ptr<void>& owner);
  /// Copies a gradient that is away to its place.
  void copy_in();
  /// What is at its place was shared: copies it back where the gradient is away.
  void copy_out();
  /// Makes it the parameter's gradient where backward made none.
  void assign();

 private:
  Tensor parameter_;
  std::shared_ptr<Device> home_;
  bool away_;
  Tensor placed_;    ///< at its place
  Tensor gradient_;  ///< the same, unless it is away
};

}  // namespace dtrain
