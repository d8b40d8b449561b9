// A step of several phases, one after the other: each has parameters, a forward, a loss and an optimizer of
// its own, as the two halves of a step of a GAN have. A phase is a strategy of its own over the one network,
// of whose parameters only the phase's learn while it runs.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "parallel/strategy.h"

namespace dtrain {

/// One rank's. Of strategies whose ranks have the whole network (all-reduce, ZeRO of optimizer state and
/// gradients); losses that are looked at before the update are, once, behind the last phase's backward.
class PhasedStrategy final : public Strategy {
 public:
  /// A strategy for each of ModelFactory::phases, all of the same form over the same ranks.
  explicit PhasedStrategy(std::vector<std::unique_ptr<Strategy>> parts);
  ~PhasedStrategy() override;

  /// Throws UsageError for a phase that has no parameter which is trained, and for one in two phases.
  void prepare(const ModelFactory& factory, const Deadline& deadline) override;
  void load(const CheckpointFiles& state, const Deadline& deadline) override;
  void begin(const Deadline& deadline) override;
  void step(MicroBatches& passes, Exchange exchange) override;
  void sync_state(const Deadline& deadline) override;
  Tensors evaluate(const Tensors& inputs) override { return parts_.front()->evaluate(inputs); }
  RankState held() override;
  Replicas replicas() override;
  void exchange_alone(const Deadline& deadline) override;

 private:
  void find_members(const ModelFactory& factory);
  /// From here on the parameters of this phase alone require gradients; of all phases where it is the last.
  void begin_phase(std::size_t phase);
  void end_phases();

  std::vector<std::unique_ptr<Strategy>> parts_;
  std::shared_ptr<Module> network_;             ///< whole; before the strategies, which use it
  std::vector<std::set<std::string>> members_;  ///< of each phase, by all names
  NamedTensors parameters_;                     ///< those of all phases
};

}  // namespace dtrain
