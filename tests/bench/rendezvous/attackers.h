// Strangers that mean harm, in a process of their own and with the lowest priority, since real ones have a
// machine of their own: they hold idle connections, send garbage, wrong proofs, recordings of others'
// handshakes, and impossible lengths.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "cluster/rendezvous/member.h"

namespace dtrain::bench {

struct AttackPlan {
  int idle = 5000;            ///< connections held open without a word, all opened at once
  int idle_per_second = 500;  ///< of them opened again after the server has closed them
  int per_second = 800;       ///< others, each of them one of the kinds of attack in turn
};

class Attackers {
 public:
  /// Forks; to be called while this process has one thread. Quiet until told. They know the server's token
  /// only to make the recordings that they replay.
  Attackers(const rendezvous::MemberOptions& target, const AttackPlan& plan);
  ~Attackers();
  Attackers(const Attackers&) = delete;
  Attackers& operator=(const Attackers&) = delete;

  /// While quiet they only hold the idle connections that they still have.
  void attack(bool on) noexcept;

  struct Counts {
    long idle_opened = 0, garbage = 0, wrong_tokens = 0, replays = 0, lengths = 0;
    long idle_now = 0;
    long total() const noexcept { return idle_opened + garbage + wrong_tokens + replays + lengths; }
  };
  Counts counts() const noexcept;

 private:
  struct Shared;
  Shared* shared_;
  pid_t pid_ = -1;
};

}  // namespace dtrain::bench
