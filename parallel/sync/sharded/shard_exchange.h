// The traffic of sharded data parallelism: gradients are averaged into the parts that ranks own while
// backward continues, and updated parameters are gathered from their owners. Two buckets of memory, whatever
// the network.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "collectives/communicator.h"
#include "parallel/sync/sharded/shard_layout.h"
#include "runtime/tensor/named_tensors.h"

namespace dtrain {

/// What ranks share out besides the work. Each stage includes those before it (ZeRO-1, -2 and -3).
enum class ShardStage {
  optimizer,  ///< the optimizer's state: every rank updates the elements that it owns
  gradients,  ///< and gradients are kept for those elements only
  parameters  ///< and so are parameters, which come whole while a module computes (FullyShardedParameters)
};

struct ShardOptions {
  ShardStage stage = ShardStage::optimizer;
  std::size_t bucket_bytes = 1U << 20;          ///< the same on all ranks
  Duration patience = std::chrono::minutes(5);  ///< bounds each wait for the peers
  /// Whether groups that each have a replica average their gradients too; else they drift apart, and somebody
  /// else brings them together (DilocoSync).
  bool averages_replicas = true;
};

/// What was moved so far.
struct ShardStats {
  std::uint64_t reduced_bytes = 0;   ///< of gradients, padding included
  std::uint64_t gathered_bytes = 0;  ///< of parameters
};

/// One rank's. Used by one thread. `parameters` are dense row-major leaves of one device. After a PeerError
/// it is as dead as its communicator.
class ShardExchange {
 public:
  /// `communicator` is borrowed. Every rank passes the same parameters and options. After the gradients of
  /// parameters `last_of_bucket` nothing is waited for before they travel. Where sets of
  /// parameters get their gradients in passes of their own, `firsts_of_passes` says at which parameter each
  /// set begins, from 0 on. Throws UsageError for parameters that it cannot cut.
  ShardExchange(Communicator& communicator, const NamedTensors& parameters, const ShardOptions& options,
                std::span<const std::size_t> last_of_bucket = {},
                std::span<const std::size_t> firsts_of_passes = {});
  /// Waits (for at most seconds) until nothing is under way in its memory.
  ~ShardExchange();
  ShardExchange(const ShardExchange&) = delete;
  ShardExchange& operator=(const ShardExchange&) = delete;

  /// What this rank owns of parameter `index`: equal ranges with stage parameters, else even ones.
  ShardRange owned(std::size_t index) const;

  /// Begins a step: no gradients yet.
  void begin_step();
  /// Begins a pass of kind `pass`. Where it is exchanged a gradient that is ready travels; else (passes that
  /// accumulate), and where it is another kind's, it is left alone.
  void begin_pass(bool exchange, std::size_t pass = 0);
  /// Parameter `index` has its whole gradient of this pass. Throws UsageError when it had before.
  void mark_ready(std::size_t index);
  /// Ends a pass that is exchanged: of its kind parameters without a gradient count as zero. From stage
  /// gradients on the next such pass of the step adds to it.
  void finish_pass();
  /// After the last pass: the averaged gradient of what this rank owns of `index`, [count], which stays until
  /// begin_step().
  Tensor owned_gradient(std::size_t index) const;

  /// Collective: every parameter gets its owners' values. Marks parameters as modified. Not with stage
  /// parameters.
  void gather_parameters();
  /// The traffic of one step and nothing else, with zeros.
  void exchange_nothing(const Deadline& deadline);

  const ShardStats& stats() const noexcept { return stats_; }
  std::size_t bucket_count() const noexcept { return buckets_.size(); }

 private:
  /// A kind of pass.
  struct PassBuckets {
    std::size_t begin = 0, end = 0;  ///< of buckets_
    bool has_gradients = false;      ///< an earlier one of the step left sums in owned_gradients_
  };
  struct Staging {
    Tensor memory;  ///< as bytes of the largest bucket
    std::unique_ptr<Work> work;
    std::size_t bucket = 0;
  };

  ShardCut cut() const noexcept {
    return options_.stage == ShardStage::parameters ? ShardCut::equal : ShardCut::even;
  }
  bool keeps_own() const noexcept { return options_.stage != ShardStage::optimizer; }
  ShardRange range(std::size_t index, int rank) const {
    return owned_range(slots_[index].count, rank, ranks(), cut());
  }
  Deadline patience() const { return Deadline::after(options_.patience); }
  void lay_out(std::span<const std::size_t> last_of_bucket, std::span<const std::size_t> firsts_of_passes);
  void forget_ready();
  void launch(std::size_t bucket);
  void pack_gradients(const ShardBucket& bucket, const View& memory);
  void land(Staging& staging);
  void take_gradients(const ShardBucket& bucket, const View& own);
  void free_gradients(const ShardBucket& bucket);
  void take_parameters(Staging& staging);
  Tensor flat_gradient(std::size_t index, bool make) const;
  View memory_for(Staging& staging, const ShardBucket& bucket) const;
  MemorySpan span_of_part(const View& memory, const ShardBucket& bucket, int rank) const;
  MemorySpan whole_span(const View& memory) const;
  std::string label(std::string_view what, std::size_t bucket) const;
  int ranks() const noexcept { return communicator_.size(); }

  Communicator& communicator_;
  const ShardOptions options_;
  NamedTensors parameters_;
  std::vector<GradientSlot> slots_;
  std::vector<ShardBucket> buckets_;
  std::vector<PassBuckets> passes_;
  std::vector<std::size_t> pass_of_;      ///< by parameter
  std::vector<std::size_t> last_bucket_;  ///< in which a parameter's gradient is packed, by parameter
  std::vector<std::size_t> missing_;      ///< gradients of a bucket that are not ready
  std::vector<bool> ready_;
  std::vector<Tensor> owned_gradients_;  ///< if keeps_own(): by parameter; undefined where it owns nothing
  std::array<Staging, 2> staging_;
  std::size_t pass_ = 0;  ///< its kind
  std::size_t next_ = 0;  ///< its first bucket not launched
  bool sync_ = true;
  ShardStats stats_;
};

}  // namespace dtrain
