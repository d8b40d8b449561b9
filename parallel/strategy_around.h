// A strategy that hands everything to another one: the base of those that change what that one trains.
#pragma once

#include <memory>

#include "parallel/strategy.h"

namespace dtrain {

class StrategyAround : public Strategy {
 public:
  explicit StrategyAround(std::unique_ptr<Strategy> inner) : inner_(std::move(inner)) {}

  DataShare share() const noexcept override { return inner_->share(); }
  bool holds_outputs() const noexcept override { return inner_->holds_outputs(); }
  bool in_step() const noexcept override { return inner_->in_step(); }
  void prepare(const TrainingParts& parts, const Deadline& deadline) override {
    inner_->prepare(parts, deadline);
  }
  bool sharded() const noexcept override { return inner_->sharded(); }
  void load(const SavedState& state, const Deadline& deadline) override { inner_->load(state, deadline); }
  void begin(const Deadline& deadline) override { inner_->begin(deadline); }
  void step(Passes& passes, Exchange exchange) override { inner_->step(passes, exchange); }
  std::optional<int> variant(std::int64_t step) const override { return inner_->variant(step); }
  void settle(const Deadline& deadline) override { inner_->settle(deadline); }
  Tensors evaluate(const Tensors& inputs) override { return inner_->evaluate(inputs); }
  StateParts save() override { return inner_->save(); }
  StateParts replica() override { return inner_->replica(); }
  Replicas replicas() override { return inner_->replicas(); }
  Module& module() noexcept override { return inner_->module(); }
  Optimizer* optimizer() noexcept override { return inner_->optimizer(); }
  void exchange_alone(const Deadline& deadline) override { inner_->exchange_alone(deadline); }

 protected:
  Strategy& inner() noexcept { return *inner_; }

 private:
  std::unique_ptr<Strategy> inner_;
};

}  // namespace dtrain
