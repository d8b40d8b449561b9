// Where what shares gradients and parameters between ranks hooks itself into the passes of a step.
#pragma once

#include <functional>
#include <memory>

#include "runtime/nn/module.h"

namespace dtrain {

/// In which kind of pass parameters are looked at: the order in which modules come is another one in each.
enum class ParameterUse { forward, backward, evaluation };

/// One backward: of a micro-batch, through one of the chunks of the network that are here.
struct MicroBatchBackward {
  std::size_t chunk = 0;
  bool is_last = true;    ///< of the step: the chunk's gradients are final behind it
  bool exchange = false;  ///< in this step
};

/// What a schedule calls on its way.
class PassHooks {
 public:
  virtual ~PassHooks() = default;

  /// Makes a network that is whole here.
  virtual std::unique_ptr<Module> build(const std::function<std::unique_ptr<Module>()>& make) {
    return make();
  }
  /// What the network is used for next.
  virtual void begin_use(ParameterUse /*use*/) {}
  /// Once per forward in training, with the pass and how many there are.
  virtual void after_forward(std::size_t /*pass*/, std::size_t /*count*/) {}
  /// What a pass' loss is divided by before its backward: 1 where gradients are averaged over the ranks.
  virtual double loss_divisor() const noexcept { return 1; }
  /// Runs `body`, which is that backward.
  virtual void run_backward(const MicroBatchBackward& /*which*/, const std::function<void()>& body) {
    body();
  }
  /// Once per backward, when its input's gradient is on its way.
  virtual void after_backward(const MicroBatchBackward& /*which*/) {}
};

}  // namespace dtrain
