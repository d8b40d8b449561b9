// Some parts of a network as a network of their own, with the names that they have in the whole.
#pragma once

#include "runtime/nn/chain.h"

namespace dtrain {

class StageModule final : public Module {
 public:
  explicit StageModule(std::vector<ChainPart> parts);
  Tensor forward(const Tensor& x) override;

 private:
  std::vector<ChainPart> parts_;
};

/// Elements of the parameters of `part`.
std::int64_t parameter_count(const ChainPart& part);

}  // namespace dtrain
