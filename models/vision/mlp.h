// A perceptron with two hidden layers of 512, as in PyTorch's first tutorial.
#pragma once

#include "models/tabular/impute.h"
#include "models/tabular/standardize.h"
#include "models/vision/network.h"
#include "runtime/nn/chain.h"
#include "runtime/nn/layers.h"

namespace dtrain {

/// flatten → fill (Impute, where the input may lack values) → scale (Standardize, where it has a mean) → fc1
/// (→ 512, ReLU) → fc2 (→ 512, ReLU) → fc3 (→ classes) → units (Unstandardize, where the outputs have a
/// mean).
class Mlp : public Module, public Chained {
 public:
  Mlp(const NetworkInput& input, Generator& generator, const std::shared_ptr<Device>& device);
  Tensor forward(const Tensor& x) override;
  std::vector<LayerUnit> chain() const override;

 private:
  std::shared_ptr<Impute> fill_;        // null: none
  std::shared_ptr<Standardize> scale_;  // null: none
  std::shared_ptr<Linear> fc1_, fc2_, fc3_;
  std::shared_ptr<Unstandardize> units_;  // null: none
};

}  // namespace dtrain
