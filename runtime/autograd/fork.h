// Branches of a network at the same time: torch.jit.fork and wait. What a branch computes is recorded as if
// it had run in place, and backward runs branches at the same time again, in the order in which they were
// waited for.
//
//     const Fork left = fork([&] { return features(x); });
//     const Tensor right = projection(x);
//     const Tensor joined = cat({left.wait(), right}, 1);
#pragma once

#include <functional>
#include <memory>

#include "runtime/tensor/tensor.h"

namespace dtrain {

/// A function that runs in a thread of its own, and what it returns. Copies are handles to the same; the last
/// one waits for the thread. Waiting is for the thread that forked.
class Fork {
 public:
  /// Blocks until the function has returned; again gives the same. Throws what the function threw.
  const Tensors& wait_all() const;
  /// The one result. Throws UsageError where there are several.
  Tensor wait() const;

 private:
  friend Fork fork_all(std::function<Tensors()> function);
  struct State;
  std::shared_ptr<State> state_;
};

/// Runs `function` in a thread of its own, with this thread's grad mode, autocast and number of threads of
/// the math library. It may compute on devices that other threads use if those are CPUs; a GPU belongs to one
/// thread at a time. It must outlive nothing: what it refers to lives until wait(), and must not be modified
/// by anyone before; branches that write to the same thing (running statistics, dropout's generator) must not
/// run at the same time. Backward gives the gradients of the function run in place, bit for bit where no
/// parameter is used both inside and outside; hooks (on_grad_ready) run in the thread that runs backward.
/// With create_graph branches go backward one after the other.
Fork fork_all(std::function<Tensors()> function);
/// The same for one result.
Fork fork(std::function<Tensor()> function);

/// function(0) … function(count - 1) at the same time, each in a thread as fork() makes them; returns when
/// all have. Throws what the first of them (by number) threw.
void parallel_invoke(const std::function<void(int)>& function, int count);

}  // namespace dtrain
