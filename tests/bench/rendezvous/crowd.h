// Very many launchers in one process, without their workers: each a connection and a Session of its own, a
// few threads for all. What they say to the rendezvous and when is what real ones say.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cluster/rendezvous/member.h"
#include "cluster/rendezvous/messages.h"

namespace dtrain::bench {

/// What a launcher says of itself and of its eight workers when it joins.
rendezvous::NodeOffer offer_of(int node_rank);

class Crowd {
 public:
  /// Launchers `first` … `first` + `count` - 1, connected and joined one after another by each of `threads`
  /// threads, as fast as they can.
  Crowd(const rendezvous::MemberOptions& options, int first, int count, int threads);
  /// All leave.
  ~Crowd();
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  int connected() const noexcept { return connected_; }
  int started() const noexcept { return started_; }
  int stopped() const noexcept { return stopped_; }
  int over() const noexcept { return over_; }
  /// Launchers that lost their lease or were refused, and the last one's words.
  int broken() const noexcept { return broken_; }
  std::string trouble() const;

  /// Makes one launcher say that a worker of it failed.
  void fail_one() noexcept { fail_one_ = true; }

 private:
  struct Slot;
  class Loop;
  void count_broken(const std::string& why);

  std::atomic<int> connected_{0}, started_{0}, stopped_{0}, over_{0}, broken_{0};
  std::atomic<bool> fail_one_{false}, leaving_{false};
  struct Trouble;
  std::unique_ptr<Trouble> trouble_;
  std::vector<std::thread> threads_;
};

/// Waits until `done()`; false when `deadline` passes first.
template <class Done>
bool wait_for(const Done& done, const Deadline& deadline) {
  while (!done()) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace dtrain::bench
