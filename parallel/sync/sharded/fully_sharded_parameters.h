// Parameters of which every rank keeps a part (ZeRO's third stage): a module's parameters are gathered when
// something looks at them, the next module's meanwhile, and their memory is freed when others are looked at.
//
//     FullyShardedParameters parameters(communicator, std::chrono::seconds(30));
//     {
//       const ModuleWatch watch([&](Module& module) { parameters.shard(module); });
//       network = build();                       // never whole, but module by module
//     }
//     parameters.begin(ParameterUse::forward);
//     Tensor y = (*network)(x);                  // each module whole while it computes
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/communicator.h"
#include "parallel/schedule/pass_hooks.h"
#include "parallel/sync/sharded/shard_layout.h"
#include "runtime/nn/module.h"

namespace dtrain {

struct GatherStats {
  std::uint64_t gathered_bytes = 0;  ///< received and sent alike, the rank's own part included
  std::uint64_t gathers = 0;         ///< of modules
  std::uint64_t prefetched = 0;      ///< of these, before anything asked for them
  std::size_t peak_bytes = 0;        ///< of whole parameters that were there at the same time
};

/// One rank's. Used by one thread, in which all that looks at the parameters runs: each look may be
/// collective, and ranks look in the same order. Between shard() and the destructor a parameter may be read
/// and, with gradients off and by all ranks alike, written as ever; what is written stays. After a PeerError
/// it is as dead as its communicator.
class FullyShardedParameters {
 public:
  /// `communicator`, of the ranks that have a part each, is borrowed. `patience` bounds each wait for them.
  FullyShardedParameters(Communicator& communicator, Duration patience);
  /// What is not there cannot be looked at any more.
  ~FullyShardedParameters();
  FullyShardedParameters(const FullyShardedParameters&) = delete;
  FullyShardedParameters& operator=(const FullyShardedParameters&) = delete;

  /// Keeps this rank's part of the parameters that `module` itself has, frozen ones too, and frees the rest;
  /// what was sharded before (tied weights) is left alone. Not collective: every rank has the same values.
  /// Throws UsageError for parameters that are views, or are not in row-major order.
  void shard(Module& module);
  /// What messages are to call the parameters of `network`, all of whose modules are sharded: ranks that look
  /// at different ones then hear at which. Ranks call it alike, or not at all.
  void name_as(const Module& network);

  /// In the order of shard(); behind `own` memory extends to equal_length() elements, which do not count.
  const std::vector<ParameterLayout>& parameters() const noexcept { return parameters_; }
  /// Parameters of one module come and go together: the number of those with the `index`-th of parameters().
  std::size_t unit_of(std::size_t index) const;
  /// Of all parameters of a unit when they are whole.
  std::size_t unit_bytes(std::size_t unit) const { return units_[unit].bytes; }
  /// Of the module with most parameters, and the next.
  std::size_t two_largest_bytes() const noexcept { return budget_; }

  /// What comes next. Ranks call it alike.
  void begin(ParameterUse use);
  /// Frees all that is whole, keeping what was written.
  void reshard();
  /// The parts have other values: frees what is whole of the old ones; what was made of them is to be made
  /// again.
  void mark_modified();

  const GatherStats& stats() const noexcept { return stats_; }

 private:
  class UnshardHook;
  enum class State { sharded, gathering, whole };
  struct Unit {
    std::size_t first = 0, count = 0;  ///< of parameters_
    std::size_t bytes = 0;             ///< when whole
    State state = State::sharded;
    std::vector<std::unique_ptr<Work>> works;
    std::vector<std::uint64_t> versions;             ///< of the parameters when they came
    std::uint64_t used_at = 0;                       ///< operations_ended()
    std::array<std::optional<std::size_t>, 3> next;  ///< what came after it last time, by use
  };

  void use(std::size_t unit);
  void unshard(std::size_t unit);
  void start(Unit& unit);
  void wait_for(Unit& unit);
  void reshard(Unit& unit);
  void make_room_for(std::size_t unit);
  void prefetch_next(std::size_t unit);
  std::size_t whole_bytes() const;
  std::optional<std::size_t>& next_of(std::size_t unit) {
    return units_[unit].next[static_cast<std::size_t>(use_)];
  }

  Communicator& communicator_;
  const Duration patience_;
  const std::thread::id thread_ = std::this_thread::get_id();
  std::vector<ParameterLayout> parameters_;
  std::vector<Unit> units_;
  std::vector<std::shared_ptr<UnshardHook>> hooks_;  ///< beside units_
  std::size_t budget_ = 0;
  ParameterUse use_ = ParameterUse::forward;
  std::optional<std::size_t> last_;  ///< what was looked at before
  GatherStats stats_;
};

}  // namespace dtrain
