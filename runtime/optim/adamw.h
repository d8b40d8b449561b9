// torch.optim.AdamW: decoupled weight decay (Loshchilov and Hutter 2019), bias-corrected moments.
#pragma once

#include "runtime/optim/adam.h"

namespace dtrain {

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
};

/// State and errors as MomentOptimizer has them.
class AdamW : public MomentOptimizer {
 public:
  AdamW(NamedTensors parameters, const AdamWOptions& options);
  explicit AdamW(const std::vector<ParameterGroup<AdamWOptions>>& groups);
};

}  // namespace dtrain
