// The messages under way between this rank and the others of its machine: what waits for a free slot, what is
// expected, and the one loop that moves both, and also what goes to ranks of other machines another way.
#pragma once

#include <atomic>
#include <deque>
#include <vector>

#include "collectives/p2p/backoff.h"
#include "collectives/p2p/transport.h"
#include "collectives/shm/event_count.h"
#include "collectives/shm/spsc_ring.h"

namespace dtrain {

/// How the shared memory of `size` ranks is laid out; equal on all of them.
class ShmLayout {
 public:
  /// Smaller slots for more ranks: a ring each way between any two of them.
  explicit ShmLayout(int size) noexcept;
  std::size_t slot_bytes() const noexcept { return slot_bytes_; }
  std::size_t total_bytes() const noexcept;
  /// Not 0 once a rank has seen the group fail.
  static std::uint32_t& failed(std::byte* memory) noexcept {
    return *reinterpret_cast<std::uint32_t*>(memory);
  }
  EventCount event_count(std::byte* memory, int rank) const noexcept;
  SpscRing ring(std::byte* memory, int from, int to) const noexcept;

 private:
  std::size_t size_, slot_bytes_;
};

/// Used by one thread at a time. `pending` of a call counts messages that are not done yet; it identifies its
/// owner and is borrowed until they are, or forgotten.
class ShmProgressEngine {
 public:
  /// `memory` has layout.total_bytes() and is shared by `members`, ascending, of which `rank` is one.
  /// Messages of the group's other ranks go through `others`, which is null where there are none. Both
  /// borrowed.
  ShmProgressEngine(std::byte* memory, const ShmLayout& layout, int rank, const std::vector<int>& members,
                    p2p::PolledMessages* others);

  void set_patience(p2p::Patience patience) noexcept { patience_ = patience; }

  /// A message is sent once it has been copied into the ring.
  void send(int peer, std::uint64_t tag, const std::byte* data, std::size_t bytes, int& pending);
  void receive(int peer, std::uint64_t tag, std::byte* data, std::size_t bytes, int& pending);
  /// As receive(), but a message that lies in one slot stays there, and nothing more is taken from `peer`
  /// until release(). `place` receives where it lies, in the end.
  void receive_in_place(int peer, std::uint64_t tag, std::byte* data, std::size_t bytes, int& pending,
                        const std::byte*& place);
  void release(int peer) noexcept;

  /// As Transport::take_any.
  int take_any(std::uint64_t tag, p2p::Watchdog& watchdog);
  /// Blocks until `pending` is 0. Throws what `watchdog` throws, and LinkLost once closed.
  void wait(const int& pending, p2p::Watchdog& watchdog);
  /// Drops the messages that count into `pending`.
  void forget(const int& pending) noexcept;
  /// Pending and later messages fail; those of the other ranks too if the group has `failed`, also where what
  /// they wait for has been sent.
  void close(bool failed) noexcept;

 private:
  struct Outgoing {
    std::uint64_t tag;
    const std::byte* data;
    std::size_t left;
    int* pending;
  };
  struct Expected {
    std::uint64_t tag;
    std::byte* data;
    std::size_t left;
    int* pending;
    const std::byte** place;  ///< null: to be copied in any case
    std::byte* begin;
  };
  struct Peer {
    int rank;
    SpscRing out, in;
    EventCount events;
    std::deque<Outgoing> outgoing = {};
    std::vector<Expected> expected = {};  ///< in the order in which they were asked for
    bool held = false;                    ///< the front of `in` is being read in place
  };

  /// Null: of another machine.
  Peer* peer_of(int rank) noexcept;
  void expect(int peer, const Expected& expected, int& pending);
  /// Looks on until `over()`, which takes what it looks for and may be asked again when it has. `anyone`:
  /// that may come from any rank.
  template <class Over>
  void wait_until(Over over, bool anyone, p2p::Watchdog& watchdog);
  /// Sleeps until there may be something to look at, for about `nap` where nothing would end a longer sleep.
  template <class Over>
  void sleep(Duration nap, bool anyone, Over over);
  int try_take_any(std::uint64_t tag);
  bool has_work() const noexcept;
  /// True when anything moved.
  bool progress();
  static bool flush(Peer& peer) noexcept;
  static bool take(Peer& peer);
  void check_open(int peer) const;
  /// Says on which core this rank is, and whether another was on it when it said so.
  bool shares_its_core() noexcept;

  std::atomic_ref<std::uint32_t> failed_;
  EventCount own_events_;
  std::vector<Peer> peers_;    ///< all of this machine but this rank
  std::vector<int> index_of_;  ///< in peers_, by rank; -1: not there
  p2p::PolledMessages* const others_;
  p2p::Patience patience_ = p2p::Patience::none;
  std::uint32_t core_ = 0;    ///< as this rank said last
  std::size_t next_any_ = 0;  ///< index of the peer at which take_any() looks first
  bool closed_ = false;
};

}  // namespace dtrain
