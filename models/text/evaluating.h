// A network that is used, not trained, for a while.
#pragma once

#include "runtime/nn/module.h"

namespace dtrain {

/// `network` is in evaluation while this lives, then as it was before.
class Evaluating {
 public:
  explicit Evaluating(Module& network) : network_(network), before_(network.is_training()) { network.eval(); }
  ~Evaluating() { network_.train(before_); }
  Evaluating(const Evaluating&) = delete;
  Evaluating& operator=(const Evaluating&) = delete;

 private:
  Module& network_;
  bool before_;
};

}  // namespace dtrain
