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
  bool computes_together() const noexcept override { return inner_->computes_together(); }
  void load(const SavedState& state, const Deadline& deadline) override { inner_->load(state, deadline); }
  void begin(const Deadline& deadline) override { inner_->begin(deadline); }
  void step(Passes& passes, Exchange exchange) override { inner_->step(passes, exchange); }
  std::optional<int> variant(std::int64_t step) const override { return inner_->variant(step); }
  void settle(const Deadline& deadline) override { inner_->settle(deadline); }
  bool settling_counts() const noexcept override { return inner_->settling_counts(); }
  Tensors evaluate(const Tensors& inputs) override { return inner_->evaluate(inputs); }
  StateParts save() override { return inner_->save(); }
  StateParts replica() override { return inner_->replica(); }
  Replicas replicas() override { return inner_->replicas(); }
  Module& module() noexcept override { return inner_->module(); }
  Optimizer* optimizer() noexcept override { return inner_->optimizer(); }
  void exchange_alone(const Deadline& deadline) override { inner_->exchange_alone(deadline); }
  std::string proposal() const override { return inner_->proposal(); }
  std::map<std::string, std::string> choices() const override { return inner_->choices(); }
  std::string account(std::int64_t steps) const override { return inner_->account(steps); }
  std::map<std::string, std::string> notes() const override { return inner_->notes(); }
  void load_notes(const std::map<std::string, std::string>& notes) override { inner_->load_notes(notes); }
  std::optional<std::int64_t> own_steps() const override { return inner_->own_steps(); }
  void finish(const Deadline& deadline) override { inner_->finish(deadline); }
  std::optional<PushDelay> delay() const override { return inner_->delay(); }
  std::optional<UpdateDelays> delays() override { return inner_->delays(); }

 protected:
  Strategy& inner() noexcept { return *inner_; }
  const Strategy& inner() const noexcept { return *inner_; }

 private:
  std::unique_ptr<Strategy> inner_;
};

}  // namespace dtrain
