// What launchers of several nodes and their rendezvous tell each other. Values only; how they travel is
// server.h's and member.h's business. See docs/decisions/010-rendezvous.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cluster/net/endpoint.h"
#include "cluster/quorum/voters.h"
#include "runtime/base/clock.h"

namespace dtrain::rendezvous {

/// What a node brings when it joins.
struct NodeOffer {
  std::optional<int> node_rank;  ///< absent: any that is free
  std::string host;              ///< for people: the machine's name
  std::string address;           ///< where others reach it, with its interface: "10.0.0.2 (eth0)"
  int nproc = 1;                 ///< workers it will start
  /// Name and value of what must be equal on every node (nnodes, program, versions, config hash, …). The
  /// first node's values are the job's; a node that differs is rejected, with the key and both values.
  std::vector<std::pair<std::string, std::string>> must_match;
  std::uint64_t instance_id =
      0;                 ///< drawn by each launcher, to know its slot by; 0: it has none to come back to
  bool resumes = false;  ///< has a slot, whose connection broke
  Endpoint standby{};    ///< where it would lead the job if it had to; port 0: it could not
  // With `resumes`, for a leader who does not know the slot.
  std::uint64_t job = 0;       ///< Snapshot::job, of the leader whose events it has heard
  std::uint64_t term = 0;      ///< of that leader; 0: none that could be succeeded
  int place = -1;              ///< the number it was given
  int round = -1;              ///< the last one it took part in
  bool at_work = false;        ///< that has started here and not ended
  std::optional<int> ended{};  ///< with which code it has
};

/// A node that takes part in a round.
struct RoundNode {
  int node_rank = 0;
  std::string host;
  int nproc = 1;
  int first_rank = 0;  ///< of its workers; nodes are in the order of node_rank
};

/// Why a job or a round ended: the first failure, wherever it was.
struct Failure {
  enum class Kind : std::uint8_t {
    worker,         ///< a worker failed; `rank`, `exit_code` and `lines` tell
    launcher_lost,  ///< a launcher was killed or crashed
    node_lost,      ///< a node is not heard of any more
    signal,         ///< somebody asked for the end; exit_code is 128 + signal
    requeue,        ///< workers agreed on a checkpoint and ask to be started again (75)
    unusable,       ///< a node cannot start its part (port taken, program missing)
  };
  Kind kind = Kind::worker;
  int node_rank = 0;
  std::string host;
  int rank = -1;                   ///< of the worker; -1 where there is none
  int exit_code = 1;               ///< what every launcher exits with
  bool consequence = false;        ///< a worker that failed because its peers did
  std::vector<std::string> lines;  ///< the report, ready to print
};

/// Whose connection its machine has closed in order (FIN), as a kernel does for a process that is gone, and
/// who has not come back by then, is taken for lost where nobody continues without it: no fence is needed
/// there. A reset may be a middlebox's, and says nothing.
constexpr Duration hang_up_patience(Duration lease) { return lease / 2; }

// What a launcher hears. Each `round` counts from 0.
struct Waiting {                   ///< for people, every few seconds while somebody is missing
  std::vector<std::string> lines;  ///< "7/8 nodes; missing node_rank 5; listening on 10.0.0.1:29501 (eth0)"
};
struct Forming {  ///< end what is left of the round before, then say ready
  int round = 0;
  int self = 0;  ///< the receiver's index in `nodes`; a launcher that takes no part hears nothing of a round
  std::vector<RoundNode> nodes;
  /// Place (the number a launcher was given when it joined) and node_rank of those for whom they differ; -1:
  /// it waits as a spare.
  std::vector<std::pair<int, int>> displaced{};
  int restart_count = 0;
};
struct Start {
  int round = 0;
  int restart_count = 0;
  int self = 0;  ///< as in Forming
  std::vector<RoundNode> nodes;
  std::uint16_t master_port = 0;    ///< as the first node said with its ready
  std::int64_t launch_time_ns = 0;  ///< of the job: node 0's, equal in every round
  std::string run_id;
  std::string master_addr{};  ///< as master_port
  bool examines = false;      ///< the nodes, instead of running the program
};
struct Stop {  ///< end the workers of `round`
  int round = 0;
  bool again = false;              ///< another round follows
  bool checkpoint_first = false;   ///< ask the workers for a checkpoint (SIGUSR2) instead of ending them
  std::optional<int> signal;       ///< forward this one (somebody signalled a launcher, maybe this one)
  bool at_once = false;            ///< with signal: the second one from the same node, end without mercy
  std::optional<Failure> failure;  ///< absent when it is only a node to be taken in
};
struct Over {  ///< the job has ended on every node that is left
  int exit_code = 0;
  std::optional<Failure> failure;  ///< absent when all went well
};
struct Refused {  ///< this launcher cannot take part
  std::string why;
  bool unreachable = false;  ///< it was not refused: the rendezvous was never reached
};
struct LeaseLost {  ///< the leader has not answered in time: end everything at once
  std::string why;
};
/// What a successor must know. The leader's first event, and told again whenever the voters change;
/// a Forming afterwards is the newer word on rounds. Launchers do not see it: Session keeps it.
struct Snapshot {
  std::vector<Voter> voters;  ///< the leader first
  int restart_count = 0;
  std::int64_t launch_time_ns = 0;
  int round = -1;  ///< the last one that was formed; -1: none
  std::vector<RoundNode> nodes;
  std::vector<std::pair<int, int>> displaced;
  /// Its first leader. Where all are lost who could have led it on, another job begins at the same meeting
  /// point: its rounds are numbered as those of what is left of the former one.
  std::uint64_t job = 0;
  std::int64_t best_step = -1;                                  ///< RestartProgress
  int stalled_restarts = 0;                                     ///< likewise
  std::vector<std::pair<std::string, std::string>> kept_out{};  ///< hosts that were, and why
};
struct KeptOut {  ///< a node that was examined is unfit; Session tells that one's launcher Refused in its
                  ///< place
  int place = 0;  ///< of its launcher
  std::string why;
};
using LeaderEvent = std::variant<Waiting, Forming, Start, Stop, Over, Refused, LeaseLost, Snapshot, KeptOut>;
/// Nothing comes after it.
inline bool is_last(const LeaderEvent& event) {
  return std::holds_alternative<Over>(event) || std::holds_alternative<Refused>(event) ||
         std::holds_alternative<LeaseLost>(event);
}

// What a launcher says.
struct Ready {
  int round = 0;
  std::uint16_t master_port = 0;  ///< of the round's first node only, else 0
  std::string master_addr{};      ///< likewise
};
struct Failed {  ///< at once, while the other workers still run
  int round = 0;
  Duration age{};  ///< how long ago it happened
  Failure failure;
};
struct Ended {  ///< every worker of the node and all it left behind has ended
  int round = 0;
  int exit_code = 0;
  std::int64_t step = -1;  ///< the last one that its workers have finished; below 0: they do not say
};
struct Signalled {  ///< this launcher got a signal that ends the job
  int signal = 0;
};
struct Gone {  ///< this launcher has ended, and nothing is at work on its node any more
};
using NodeEvent = std::variant<Ready, Failed, Ended, Signalled, Gone>;

}  // namespace dtrain::rendezvous
