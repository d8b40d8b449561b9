// The seam everything that crosses ranks goes through while training. Backends: nccl, tcp, mpi, gloo,
// threads, self.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/clock.h"
#include "runtime/base/dtype.h"
#include "runtime/device/device.h"

namespace dtrain {

enum class ReduceOp { sum, max, min, prod };

/// When a call begins. `on_wait`: when it, or a later one, is waited for, on the waiting thread, where the
/// backend can; for callers that wait at once and would otherwise pay microseconds to wake the thread that
/// runs calls in the background.
enum class CallStart { at_once, on_wait };

/// What a collective works on: `count` elements of `dtype` at `data`, on `device`, ready once `stream`'s
/// queued work is done. On the CPU `stream` is ignored. The caller keeps the memory alive and untouched until
/// the Work is done.
struct MemorySpan {
  void* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::f32;
  Device* device = nullptr;  ///< null means host memory
  Stream* stream = nullptr;  ///< null means the device's compute stream

  std::size_t bytes() const noexcept { return count * size_of(dtype); }
};

/// One message of Communicator::exchange().
struct Message {
  MemorySpan span;
  int peer = 0;  ///< another rank: whom it goes to, or comes from
};

/// A collective under way.
class Work {
 public:
  virtual ~Work() = default;
  /// Blocks until the result is usable by the caller's stream (on the CPU: until done). Throws PeerError when
  /// a peer is lost, ranks disagree, or `deadline` passes, the last naming the operation, its sequence number
  /// and label.
  virtual void wait(const Deadline& deadline) = 0;
  /// Blocks the host until the collective is over, wherever its result is. Throws as wait() does.
  virtual void wait_on_host(const Deadline& deadline) { wait(deadline); }
  /// True when wait() would not block. Never throws; a failed call is done.
  virtual bool done() noexcept = 0;
};

/// A group of ranks. Every rank of the group must make the same calls in the same order; calls of one
/// communicator start in the order in which they were made and may run while the caller computes. Calls may
/// come from one thread at a time. After any PeerError the communicator is dead and every further call throws
/// it again.
///
/// `label` names the tensor or bucket in errors; it must be the same on all ranks, which is how swapped calls
/// of equal size are told apart. Ranks that call different things (operation, count, dtype, root, label,
/// order) get a PeerError on every rank within a second, showing both sides.
///
/// Destroying a communicator takes leave of the other ranks: it waits for calls under way and, for at most 5
/// s, until the others destroy theirs.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  /// "tcp", "gloo", "mpi", "nccl", "threads", "self"
  virtual std::string_view backend() const noexcept = 0;
  /// How all_reduce goes in this group, for people: "auto on 2 hosts x 4 ranks: hierarchical". Empty where
  /// the backend's library decides that, or a rank is alone.
  virtual std::string all_reduce_text() const { return {}; }

  /// In place on every rank. bf16 is summed in float32.
  virtual std::unique_ptr<Work> all_reduce(MemorySpan span, ReduceOp op, std::string_view label) = 0;
  /// `output` of rank r receives the reduction of everyone's `input[r·n, (r+1)·n)`, n = output.count,
  /// input.count = n·size. `output` may be this rank's own part of `input`.
  virtual std::unique_ptr<Work> reduce_scatter(MemorySpan input, MemorySpan output, ReduceOp op,
                                               std::string_view label) = 0;
  /// `output` holds everyone's `input` in rank order: output.count = input.count · size. `input` may be this
  /// rank's own part of `output`.
  virtual std::unique_ptr<Work> all_gather(MemorySpan input, MemorySpan output, std::string_view label) = 0;
  /// Root's span to everyone, in place.
  virtual std::unique_ptr<Work> broadcast(MemorySpan span, int root, std::string_view label) = 0;
  /// As all_reduce(), but in place on `root` alone; the others' spans are only read. The same bits.
  virtual std::unique_ptr<Work> reduce(MemorySpan span, ReduceOp op, int root, std::string_view label) = 0;
  /// `output`, on `root`, holds everyone's `input` in rank order: output.count = input.count · size.
  /// Elsewhere `output` is ignored.
  virtual std::unique_ptr<Work> gather(MemorySpan input, MemorySpan output, int root,
                                       std::string_view label) = 0;
  /// `output` of rank r receives the root's `input[r·n, (r+1)·n)`, n = output.count. Elsewhere than on `root`
  /// `input` is ignored.
  virtual std::unique_ptr<Work> scatter(MemorySpan input, MemorySpan output, int root,
                                        std::string_view label) = 0;
  /// Everyone to everyone: `input` holds send_counts[r] elements for each rank r in rank order, `output`
  /// receives receive_counts[r] from each. What a rank sends another is what that one expects of it; counts
  /// that differ are a PeerError that shows both. The spans do not overlap.
  virtual std::unique_ptr<Work> all_to_all(MemorySpan input, std::span<const std::size_t> send_counts,
                                           MemorySpan output, std::span<const std::size_t> receive_counts,
                                           std::string_view label) = 0;
  /// Point to point; a send matches the receives of `to` from this rank in order.
  virtual std::unique_ptr<Work> send(MemorySpan span, int to, std::string_view label) = 0;
  virtual std::unique_ptr<Work> receive(MemorySpan span, int from, std::string_view label) = 0;
  /// All of `sends` and `receives` at the same time, each as send() and receive() would do it, so that ranks
  /// which send to each other need no order between them. Only those who are named take part; the other side
  /// may use send(), receive() or exchange(). One label for all of them.
  virtual std::unique_ptr<Work> exchange(std::span<const Message> sends, std::span<const Message> receives,
                                         std::string_view label) = 0;
  /// A message that `to` takes with receive_any(), not with receive(). It says so because neither NCCL nor
  /// Gloo could otherwise tell its sender among many.
  virtual std::unique_ptr<Work> offer(MemorySpan span, int to, std::string_view label) = 0;
  /// Takes the offer of any other rank with this label, dtype and count, whichever comes first; the offers of
  /// one rank in their order. `from` is set when the Work is done and must live until then. nccl: returns
  /// once there is an offer.
  virtual std::unique_ptr<Work> receive_any(MemorySpan span, int& from, std::string_view label) = 0;
  virtual std::unique_ptr<Work> barrier(std::string_view label) = 0;

  /// Collective: ranks with equal `color` form a new group, ordered by `key`, then rank. Blocks.
  virtual std::unique_ptr<Communicator> split(int color, int key, const Deadline& deadline) = 0;

  /// Before the first call; at_once until then. Order and results stay the same; with on_wait, done() begins
  /// no call. Other ranks need not choose the same.
  virtual void set_call_start(CallStart) noexcept {}

  /// From now on a call that no host waits for (nccl: a GPU waits in its place) ends the group after `limit`
  /// rather than after the time of the set-up. Groups split off later have the same limit.
  virtual void limit_calls(Duration /*limit*/) noexcept {}

  /// Makes every pending and later call on this rank fail with PeerError(reason), here and in the groups that
  /// were split off, and tells the peers where it can. May be called from any thread.
  virtual void abort(std::string_view reason) noexcept = 0;
};

}  // namespace dtrain
