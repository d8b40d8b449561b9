// One linear layer: logistic and linear regression, the first network of every course.
#pragma once

#include "models/tabular/impute.h"
#include "models/tabular/standardize.h"
#include "models/vision/network.h"
#include "runtime/nn/layers.h"

namespace dtrain {

/// flatten → fill (Impute, where the input may lack values) → scale (Standardize, where it has a mean) → fc
/// (→ classes) → units (Unstandardize, where the outputs have a mean).
class LinearNetwork : public Module {
 public:
  LinearNetwork(const NetworkInput& input, Generator& generator, const std::shared_ptr<Device>& device);
  Tensor forward(const Tensor& x) override;

 private:
  std::shared_ptr<Impute> fill_;        // null: none
  std::shared_ptr<Standardize> scale_;  // null: none
  std::shared_ptr<Linear> fc_;
  std::shared_ptr<Unstandardize> units_;  // null: none
};

}  // namespace dtrain
