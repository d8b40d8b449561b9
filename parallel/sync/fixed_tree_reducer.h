// Adds gradients of a batch's parts up along a fixed tree (micro_batch_tree.h), so that the sums have the
// same bits for any number of ranks. Gradients live in buckets, as in Reducer; a rank computes its parts one
// after the other and keeps the sums of finished nodes, and the ranks exchange what is left of each bucket
// while the last part's backward continues.
//
// A bucket is cut into as many slices as there are ranks: each rank receives its slice of all ranks' nodes
// (all_to_all), adds them up, and all gather the result. That is as many bytes as an all_reduce where each
// rank has one node (parts and ranks are powers of two), and at most twice as many half the way otherwise.
// Two ranks of one node each leave it to an all_reduce: two numbers have one sum.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "parallel/sync/buckets.h"
#include "parallel/sync/micro_batch_tree.h"
#include "runtime/device/device.h"
#include "runtime/device/view.h"

namespace dtrain {

/// A step: for each part of this rank begin_pass(), backward with mark_ready() for each gradient that is
/// final, end_pass(); then finish(). Used by one thread at a time.
class FixedTreeReducer {
 public:
  /// `communicator` is borrowed; memory comes from `device`. Every rank passes the same slots, parts and
  /// options. Throws UsageError where there are fewer parts than ranks.
  FixedTreeReducer(Communicator& communicator, std::shared_ptr<Device> device,
                   std::vector<GradientSlot> slots, int parts, const BucketOptions& options = {});
  /// Waits (for at most seconds) until nothing is under way in its memory.
  ~FixedTreeReducer();
  FixedTreeReducer(const FixedTreeReducer&) = delete;
  FixedTreeReducer& operator=(const FixedTreeReducer&) = delete;

  /// The parts this rank computes.
  const MicroBatchRange& run() const noexcept { return run_; }
  std::size_t slot_count() const noexcept { return slots_.size(); }
  /// Where slot `index` has the gradient of the part in work, and the sum after finish(): one-dimensional,
  /// dense, in its bucket. It moves between begin_pass() and the next one: sums stay where they were formed.
  /// What is there before a part is overwritten, not added to.
  View gradient(std::size_t index) const;
  /// The bucket's memory, shared: keeps it alive beyond the reducer.
  std::shared_ptr<void> memory_of(std::size_t index) const;

  /// The next part of the run begins.
  void begin_pass();
  /// The gradient of slot `index` of this part is final. Starts exchanges in the last part; never waits.
  void mark_ready(std::size_t index);
  /// The part's backward is over: slots that were not ready count as zero.
  void end_pass();
  /// After the last part: all buckets hold the sums over all parts when it returns. Throws PeerError.
  void finish(const Deadline& deadline);

  /// Bytes this rank sent and received so far, beside its own slices; of all steps.
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  /// The sum of the parts below a node, of a whole bucket.
  struct Sum {
    MicroBatchRange node;
    std::shared_ptr<void> memory;
  };
  struct Bucket {
    BucketLayout layout;
    std::string label;
    std::size_t slice = 0;         ///< elements of each rank's slice; the memory has one for each rank
    std::shared_ptr<void> memory;  ///< the gradients of the part in work
    std::vector<Sum> sums;         ///< of parts that are done, left to right
    std::vector<std::shared_ptr<void>> spare;
    std::size_t missing = 0;  ///< slots not ready
    std::shared_ptr<void> outgoing, incoming;
    std::unique_ptr<Work> work;
  };
  struct Place {
    std::size_t bucket = 0, offset = 0;
  };

  std::shared_ptr<void> allocate(std::size_t elements, DType dtype) const;
  std::shared_ptr<void> take_spare(Bucket& bucket) const;
  std::size_t elements_of(const Bucket& bucket) const noexcept { return bucket.slice * nodes_.size(); }
  /// Two ranks of one node each: both add them up to the same bits.
  bool is_pair() const noexcept { return nodes_.size() == 2 && all_nodes_ == 2; }
  /// Adds the sums of finished parts that are siblings to the part in work; the node that is in the bucket's
  /// memory then.
  MicroBatchRange join_left(Bucket& bucket);
  void keep(Bucket& bucket);
  void launch_full_buckets();
  void launch(Bucket& bucket);
  void add_incoming(Bucket& bucket);
  bool in_last_pass() const noexcept { return part_ + 1 == run_.end; }

  Communicator& communicator_;
  std::shared_ptr<Device> device_;
  std::vector<GradientSlot> slots_;
  int parts_;
  MicroBatchRange run_;
  std::vector<std::vector<MicroBatchRange>> nodes_;  ///< of each rank
  std::size_t all_nodes_ = 0;                        ///< of all together
  std::vector<Bucket> buckets_;
  std::vector<Place> places_;
  std::vector<bool> ready_;  ///< in the part in work
  int part_ = 0;             ///< in work
  std::size_t next_ = 0;     ///< first bucket not launched
  std::uint64_t bytes_ = 0;
};

}  // namespace dtrain
