// Where a network is cut into the stages of a pipeline: evenly, by measured time, or as somebody says.
//
//     StageChoice choice(parse_stages("auto"), 4);
//     choice.decide(factory, device, communicator, deadline);
//     const auto ends = choice.ends(chain);
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/strategy.h"
#include "runtime/nn/chain.h"

namespace dtrain {

/// How stages are chosen. Where each stage has several chunks, what is said of stages here is said of chunks,
/// in the order of the network.
struct StageCut {
  enum class Kind {
    even,      ///< parameters and parts spread evenly (costs_of)
    measured,  ///< the slowest stage as fast as possible, by the measured time of each part
    listed,    ///< as `firsts` says
  };
  Kind kind = Kind::even;
  std::vector<std::size_t> firsts = {};  ///< the number of each stage's first part, ascending from 0

  bool operator==(const StageCut&) const = default;
};

/// "even", "auto" (measured) or a list, "0,3,7". Throws UsageError for other text, and for numbers that do
/// not ascend from 0.
StageCut parse_stages(std::string_view text);

/// Builds the network on `device` and cuts it into its parts, which outlive it. Throws UsageError for one
/// that is no chain.
std::vector<LayerUnit> chain_of(const ModelFactory& factory, const std::shared_ptr<Device>& device);

/// The seconds that each part takes forward and backward, in `precision`: the median of three passes after
/// one that does not count. `inputs` are what the network is fed. Changes what a pass in training changes
/// (running statistics); gradients are dropped. Waits for the device.
std::vector<double> times_of(const std::vector<LayerUnit>& chain, const Tensors& inputs,
                             Precision precision = Precision::fp32);

/// One rank's. Used once.
class StageChoice {
 public:
  /// For `runs` chunks in all stages together, of `stages` stages.
  StageChoice(StageCut cut, int stages, int runs);

  /// Before the network is built. Where stages are measured this is collective over `communicator`: every
  /// rank builds the network on `device` and measures it with factory.example; what counts is the mean over
  /// the ranks, so that all of them cut alike. What an earlier start of the run has chosen
  /// (factory.earlier_config) is kept where it fits, and nothing is measured then. Else it does nothing.
  /// Throws UsageError where there is no example and where there are fewer parts with parameters than runs,
  /// PeerError.
  void decide(const ModelFactory& factory, const std::shared_ptr<Device>& device, Communicator& communicator,
              const Deadline& deadline);
  /// Where each run of `chain` ends: the number of the part behind its last. After decide(). Throws
  /// UsageError for fewer parts than runs, and for a list of another length or beyond the parts.
  std::vector<std::size_t> ends(const std::vector<LayerUnit>& chain) const;

  /// {"stages": "0,3,7"} where they were measured, now or by an earlier start; else nothing.
  const std::map<std::string, std::string>& tuned_config() const noexcept { return tuned_config_; }
  /// For people: the runs with their times, and how to ask for them; empty where nothing was measured.
  const std::string& plan() const noexcept { return plan_; }

 private:
  bool keep(const std::map<std::string, std::string>& chosen, std::size_t parts);
  void describe(const std::vector<LayerUnit>& chain, const std::vector<double>& times);

  StageCut cut_;
  std::size_t stages_, runs_;
  std::map<std::string, std::string> tuned_config_;
  std::string plan_;
};

}  // namespace dtrain
