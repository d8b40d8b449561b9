// A strategy that hands everything to another one: the base of those that change what that one trains.
#pragma once

#include <memory>

#include "parallel/strategy.h"

namespace dtrain {

class StrategyAround : public Strategy {
 public:
  StrategyAround(std::string_view name, std::unique_ptr<Strategy> inner)
      : Strategy(inner->traits()), inner_(std::move(inner)) {
    traits_.name = name;
  }

  void prepare(const ModelFactory& factory, const Deadline& deadline) override {
    inner_->prepare(factory, deadline);
    set_prepared(inner_->module(), inner_->optimizers(), inner_->average());
  }
  void load(const CheckpointFiles& state, const Deadline& deadline) override {
    inner_->load(state, deadline);
  }
  void begin(const Deadline& deadline) override { inner_->begin(deadline); }
  void step(MicroBatches& passes, Exchange exchange) override { inner_->step(passes, exchange); }
  void sync_state(const Deadline& deadline) override { inner_->sync_state(deadline); }
  Tensors evaluate(const Tensors& inputs) override { return inner_->evaluate(inputs); }
  RankState held() override { return inner_->held(); }
  Replicas replicas() override { return inner_->replicas(); }
  void exchange_alone(const Deadline& deadline) override { inner_->exchange_alone(deadline); }
  StrategyReport report(std::int64_t steps) const override { return inner_->report(steps); }

 private:
  std::unique_ptr<Strategy> inner_;
};

}  // namespace dtrain
