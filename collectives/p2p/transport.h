// What a backend gives the algorithms: tagged messages between ranks that can be waited for under
// supervision, and an out-of-band (OOB) store of what each rank waits in and why the group has failed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/clock.h"

namespace dtrain::p2p {

/// Supervises a wait. Transports call tick() at least every kTickEvery while they wait; it throws to end the
/// wait.
class Watchdog {
 public:
  virtual ~Watchdog() = default;
  virtual void tick() = 0;
};

inline constexpr std::chrono::milliseconds kTickEvery{25};

/// A message could not be passed because a peer or the link to it is gone. `rank` is -1 where it cannot be
/// told.
class LinkLost : public std::runtime_error {
 public:
  LinkLost(const std::string& message, int rank) : std::runtime_error(message), rank_(rank) {}
  int rank() const noexcept { return rank_; }

 private:
  int rank_;
};

/// Memory that messages are sent from and received into, bound to no peer (as Gloo's class of that name);
/// borrowed. Destroying it with messages under way is allowed once the transport is closed, and then nothing
/// writes to the memory any more.
class UnboundBuffer {
 public:
  virtual ~UnboundBuffer() = default;
  /// Starts a message of `bytes` > 0 at `offset`. A send is matched with the receive of `peer` that has the
  /// same tag, in order among equal tags, and moves only once that receive is posted or into memory of the
  /// transport's own. Throws LinkLost.
  virtual void send(int peer, std::uint64_t tag, std::size_t offset, std::size_t bytes) = 0;
  virtual void receive(int peer, std::uint64_t tag, std::size_t offset, std::size_t bytes) = 0;
  /// Blocks until every send (receive) started on this buffer is done. Throws LinkLost and what `watchdog`
  /// throws.
  virtual void wait_sends(Watchdog& watchdog) = 0;
  virtual void wait_receives(Watchdog& watchdog) = 0;
};

/// Receive buffers of messages that are read once and not kept, one at a time from each peer. A transport
/// that has them in memory of its own need not copy them. Destroying it with messages under way is allowed as
/// for an UnboundBuffer.
class ReceiveBuffers {
 public:
  virtual ~ReceiveBuffers() = default;
  /// Expects a message of `bytes` > 0 from `peer`. Throws LinkLost.
  virtual void expect(int peer, std::uint64_t tag, std::size_t bytes) = 0;
  /// Blocks until all expected messages are here. Throws LinkLost and what `watchdog` throws.
  virtual void wait(Watchdog& watchdog) = 0;
  /// After wait(): where the message of `peer` lies, until release().
  virtual const std::byte* message(int peer) const noexcept = 0;
  /// The messages have been read. Wait for nothing else between wait() and this but for sends.
  virtual void release() noexcept = 0;
};

/// Out-of-band key-value store of a group: a flight record for each rank, and the first failure. Slow
/// (milliseconds) and rarely used. Calls may fail silently when the store is lost: it only makes errors
/// better, it never decides whether there is one.
class OobKv {
 public:
  virtual ~OobKv() = default;
  /// Replaces this rank's record.
  virtual void put_record(std::string_view record) noexcept = 0;
  /// The latest record of `rank`; nullopt when there is none or the store is lost.
  virtual std::optional<std::string> record_of(int rank) noexcept = 0;
  /// Publishes why the group is dead, unless another rank was first; returns the first reason.
  virtual std::string put_failure(std::string_view reason) noexcept = 0;
  /// Why the group is dead, if a rank has published it.
  virtual std::optional<std::string> failure() noexcept = 0;
  /// Called now and then by ranks that do not look, so that nothing piles up.
  virtual void drain() noexcept = 0;
};

struct Endpoints;

/// The members of a group, and which are known to be gone.
class Members {
 public:
  virtual ~Members() = default;
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  virtual const std::string& host_of(int rank) const noexcept = 0;
  /// Ranks known to be gone now: a call under way cannot end well.
  virtual std::vector<int> lost_peers() noexcept = 0;
  /// Ranks whose processes are known to have ended, perhaps in good order: whom to name when a call has
  /// failed.
  virtual std::vector<int> ended_peers() noexcept { return lost_peers(); }
};

/// The connected ranks of a group (as a context of Gloo): all about the group but its messages. Used by one
/// thread at a time.
class Context : public Members {
 public:
  /// "tcp", "gloo", "mpi", "threads"
  virtual std::string_view name() const noexcept = 0;
  /// Ends all links; pending and later messages fail here and, where the transport can, at the peers.
  /// `failed`: the group did not end in good order, so nothing may wait for its ranks any more.
  virtual void close(bool failed) noexcept = 0;
  /// A new group of `members` (ranks of this one, this rank included, in their new order). Called by all
  /// members.
  virtual Endpoints split(const std::vector<int>& members, const std::string& name,
                          const Deadline& deadline) = 0;
};

/// The messages of a transport that another loop can move, so that a rank can wait for some peers here and
/// for others elsewhere. `pending` of a call counts messages that are not done yet; it identifies its owner
/// and is borrowed until they are, or forgotten. Used by one thread at a time.
class PolledMessages {
 public:
  virtual ~PolledMessages() = default;
  virtual void send(int peer, std::uint64_t tag, const std::byte* data, std::size_t bytes, int& pending) = 0;
  virtual void receive(int peer, std::uint64_t tag, std::byte* data, std::size_t bytes, int& pending) = 0;
  /// Drops the messages that count into `pending`.
  virtual void forget(const int& pending) noexcept = 0;
  /// Whether a message is under way.
  virtual bool has_work() const noexcept = 0;
  /// Moves what can be moved at once; true when anything did. Throws LinkLost.
  virtual bool progress() = 0;
  /// Throws LinkLost when a peer is gone, though what it sent before may still be here. Looks now and then.
  virtual void check_peers() = 0;
  /// As Transport::take_any, but -1 where no rank has such a message now.
  virtual int try_take_any(std::uint64_t tag) = 0;
  /// Sleeps until something can be moved, for at most `longest`. `anyone`: also when any rank sends
  /// something.
  virtual void sleep(Duration longest, bool anyone) = 0;
};

/// Tagged messages between the ranks of one group.
class Transport : public Context {
 public:
  /// What messages pass through, for people: "TCP", "MPI", "shared memory".
  virtual std::string_view medium() const noexcept = 0;
  /// Messages larger than this are better cut. Ranks of a group may differ.
  virtual std::size_t segment_bytes() const noexcept = 0;
  /// `patient`: the waiting thread has nothing else to do and may burn some of its core for lower latency.
  virtual void set_patient(bool patient) noexcept = 0;
  virtual std::unique_ptr<UnboundBuffer> make_buffer(void* data, std::size_t bytes) = 0;
  /// `memory` is borrowed: the message of rank r goes to r·stride there unless the transport has a better
  /// place; none is longer than `stride`.
  virtual std::unique_ptr<ReceiveBuffers> receive_buffers(std::byte* memory, std::size_t stride);
  /// Blocks until another rank has sent a message of one byte with `tag`; takes it and returns that rank.
  /// Where several have, none of them is passed over forever. Throws LinkLost and what `watchdog` throws.
  virtual int take_any(std::uint64_t tag, Watchdog& watchdog) = 0;
  /// Its messages, where another loop can move them; null where they can only be waited for here.
  virtual PolledMessages* polled() noexcept { return nullptr; }
};

class CollectivePlan;

/// What a rank of a group communicates through; a backend builds it.
struct Endpoints {
  std::unique_ptr<Transport> transport;
  std::unique_ptr<OobKv> oob;
  std::shared_ptr<const CollectivePlan> plan = nullptr;  ///< null: every collective directly
};

}  // namespace dtrain::p2p
