// Keeps gradients that are not finite away from the parameters, and notes where finite ones led to parameters
// that are not. The decision is made on the device: nothing waits for the host, and a captured step decides
// each time it runs.
//
//     UpdateGuard guard(device);
//     guard.attach(optimizer);
//     loss.backward();
//     guard.inspect(optimizer.gradients());
//     optimizer.step();                          // changes nothing where they are not finite
//     if (guard.found_any() || guard.corrupted_any()) throw Error("…");
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "runtime/optim/optimizer.h"

namespace dtrain {

/// A step: backward, all-reduce, inspect(), optimizer.step(), update(). A gradient that is not finite on any
/// rank makes the sum over ranks not finite on all of them, so that every rank decides alike without another
/// message; ranks that look at parts of the gradients agree on found() (the largest of theirs) after
/// inspect().
class UpdateGuard {
 public:
  /// Its flag is on `device`; gradients may be on any.
  explicit UpdateGuard(const std::shared_ptr<Device>& device);
  virtual ~UpdateGuard() = default;
  UpdateGuard(const UpdateGuard&) = delete;
  UpdateGuard& operator=(const UpdateGuard&) = delete;

  /// Makes `optimizer` skip steps while found() is not 0. Before its first step.
  virtual void attach(Optimizer& optimizer) const;

  /// Looks at the gradients (those that are defined), of any devices. Here found() stays once it is set:
  /// whatever is queued behind such a step leaves the parameters as they were before it.
  virtual void inspect(std::span<const Tensor> gradients);
  /// Once a step, after the optimizer.
  virtual void update() {}

  /// Whether gradients are to be inspected before the update, to keep them from the parameters: on a device
  /// that runs ahead of the host, where steps are queued behind it. Elsewhere corrupted() tells of them too,
  /// since every rule writes what is not finite where a gradient is not: who ends then may inspect()
  /// afterwards, to know which of the two it was, and pays nothing for the steps before.
  virtual bool inspects_first() const noexcept { return found_.device().runs_ahead(); }

  /// Whether inspect() found something: float32 [1], not 0 then.
  const Tensor& found() const noexcept { return found_; }
  /// Whether a step of the optimizer wrote a number that is not finite, which finite gradients do when they
  /// are too large: float32 [1], not 0 from then on. Of this rank's parameters and state; noted while they
  /// are written, at no cost of its own.
  const Tensor& corrupted() const noexcept { return corrupted_; }
  /// The same, read by the host: these wait for the device.
  bool found_any() const { return found_.item() != 0; }
  bool corrupted_any() const { return corrupted_.item() != 0; }

 protected:
  /// Looks at `views`, all on `there`, and sets `found` (float32 [1], there) where one is not finite.
  using Look = std::function<void(const std::shared_ptr<Device>& there, std::span<const View> views,
                                  const View& found)>;
  /// Calls `look` once for each device that has some of `gradients`, and for found()'s.
  void look_at(std::span<const Tensor> gradients, const Look& look);

  /// found() and corrupted(), as Optimizer::set_gate() takes them.
  const Tensor& gate() const noexcept { return gate_; }

 private:
  Tensor gate_, found_, corrupted_;  ///< the others are its elements
};

}  // namespace dtrain
