// The rendezvous: its messages, one launcher's conversation, and the leader's state machine under any
// sequence of comings, words, leavings and time.
#include <map>
#include <optional>
#include <set>
#include <string>

#include "cluster/rendezvous/membership.h"
#include "cluster/rendezvous/messages.h"
#include "cluster/rendezvous/session.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/targets.h"

namespace dtrain::fuzz {
namespace {

using namespace rendezvous;  // NOLINT: the events, by their names
using std::chrono::milliseconds;

template <class Decode>
void comes_back(std::string_view input, const Decode& decode) {
  const auto message = decode(input);
  if (!message) return;
  const std::string bytes = encode(*message);
  const auto again = decode(bytes);
  require(again.has_value(), "what was encoded decodes");
  require(encode(*again) == bytes, "one encoding of a message");
}

class Bytes {
 public:
  explicit Bytes(std::string_view input) : input_(input) {}
  bool empty() const { return input_.empty(); }
  int next() {
    if (input_.empty()) return 0;
    const int value = static_cast<unsigned char>(input_.front());
    input_.remove_prefix(1);
    return value;
  }

 private:
  std::string_view input_;
};

// A job that is driven by bytes and watched.
class Watch {
 public:
  explicit Watch(Bytes& bytes) : bytes_(bytes), rules_(rules(bytes)), job_(rules_, now_) {}

  void step() {
    const int op = bytes_.next();
    const int launcher = bytes_.next() % 8;
    const ConnectionId id = connection_[launcher];
    switch (op % 8) {
      case 0:
        return op % 16 == 0 ? join(launcher) : come_back(launcher);
      case 1:
        job_.hear(id, Ready{round(), 1}, now_);
        break;
      case 2:
        job_.hear(id, Ended{round(), code()}, now_);
        break;
      case 3:
        job_.hear(id, failure(), now_);
        break;
      case 4:
        leave(id);
        break;
      case 5:
        job_.hear(id, Signalled{1 + bytes_.next() % 30}, now_);
        break;
      case 6:
        now_ += milliseconds(bytes_.next() * 40);
        job_.tick(now_);
        break;
      default:
        for (const auto& [launcher_of, one] : connection_) job_.beat(one, now_);
        now_ += milliseconds(200);
        job_.tick(now_);
    }
    if (op % 8 == 2) done_with(id);
    collect();
  }

 private:
  static JobRules rules(Bytes& bytes) {
    JobRules rules;
    rules.max_nodes = 1 + bytes.next() % 5;
    rules.min_nodes = 1 + bytes.next() % rules.max_nodes;
    const int restarts = bytes.next();
    rules.max_restarts = restarts % 3;
    rules.examines = restarts % 8 == 7;
    if (rules.min_nodes == rules.max_nodes) rules.spares = bytes.next() % 3;
    rules.last_call = milliseconds(1000);
    return rules;
  }
  // Mostly the present one.
  int round() {
    const int choice = bytes_.next();
    said_round_ = choice < 200 ? round_ : choice % 5 - 1;
    return said_round_;
  }
  int code() {
    constexpr int kCodes[] = {0, 0, 75, 1, 143};
    return kCodes[bytes_.next() % 5];
  }
  Failed failure() {
    Failed failed{round(), milliseconds(bytes_.next() - 50), {}};
    failed.failure.kind = static_cast<Failure::Kind>(bytes_.next() % 6);
    failed.failure.consequence = bytes_.next() % 2 == 0;
    failed.failure.exit_code = code();
    return failed;
  }
  void join(int launcher) {
    const int choice = bytes_.next();
    if (admitted_.contains(connection_[launcher])) return;
    const ConnectionId id = connection_[launcher] = next_connection_++;
    NodeOffer offer;
    offer.instance_id = instance_id_[launcher] = id;
    if (choice % 8 != 7) offer.node_rank = choice % 8 == 6 ? choice - 100 : launcher % 6;
    offer.nproc = 1 + choice % 3;
    offer.must_match = {{"key", choice > 250 ? "odd" : "same"}};
    const Admission admission = job_.join(id, offer, now_);
    if (admission.refused.empty()) {
      require(admission.node_rank >= 0 && admission.node_rank < rules_.max_nodes + rules_.spares,
              "a node_rank in range");
      admitted_[id] = admission.node_rank;
    }
    collect();
  }
  // Over another connection, whether the old one is known to be broken or not.
  void come_back(int launcher) {
    const ConnectionId before = connection_[launcher], id = next_connection_++;
    NodeOffer offer;
    offer.instance_id = instance_id_[launcher];
    offer.resumes = true;
    const Admission admission = job_.join(id, offer, now_);
    if (admission.refused.empty()) {
      connection_[launcher] = id;
      admitted_.erase(before);
      admitted_[id] = admission.node_rank;
      if (working_.erase(before) > 0) working_.insert(id);
    }
    collect();
  }
  void leave(ConnectionId id) {
    const auto departure = static_cast<Departure>(bytes_.next() % 3);
    job_.leave(id, departure, now_);
    if (departure != Departure::broken) gone(id);
    if (departure == Departure::broken) admitted_.erase(id);
  }
  void done_with(ConnectionId id) {
    if (said_round_ == round_) working_.erase(id);
  }
  void gone(ConnectionId id) {
    working_.erase(id);
    admitted_.erase(id);
  }

  void collect() {
    for (const ConnectionId id : job_.take_lost()) gone(id);
    for (const LeaderEvent& event : job_.take_events()) {
      require(!over_, "nothing comes after the end");
      std::visit([this](const auto& one) { check(one); }, event);
    }
    require(job_.over() == over_, "the end is told");
  }
  void check(const Waiting& event) { require(!event.lines.empty(), "waiting says for what"); }
  void check(const Forming& event) {
    require(event.round == round_ + 1, "rounds are counted");
    require(!event.nodes.empty() && static_cast<int>(event.nodes.size()) <= rules_.max_nodes,
            "a round has nodes");
    int rank = 0;
    int last = -1;
    for (const RoundNode& node : event.nodes) {
      require(node.node_rank > last && node.first_rank == rank, "nodes in order, ranks without holes");
      last = node.node_rank;
      rank += node.nproc;
    }
    require(event.nodes.front().node_rank == 0, "the first node is in every round");
    round_ = event.round;
    forming_ = event.nodes;
    displaced_ = event.displaced;
    running_ = false;
  }
  void check(const Start& event) {
    require(event.round == round_ && !running_ && event.nodes.size() == forming_.size(),
            "a start follows its forming");
    require(event.restart_count >= restarts_ && event.restart_count <= rules_.max_restarts,
            "restarts are counted");
    require(working_.empty(), "nobody of the round before is still at work");
    restarts_ = event.restart_count;
    running_ = true;
    std::set<int> ranks;
    for (const RoundNode& node : event.nodes) ranks.insert(node.node_rank);
    for (const auto& [id, place] : admitted_) {
      int node_rank = place;
      for (const auto& [from, to] : displaced_) node_rank = from == place ? to : node_rank;
      if (ranks.contains(node_rank)) working_.insert(id);
    }
  }
  void check(const Stop& event) {
    require(event.round == round_ && running_, "a stop is for the round that runs");
    require(event.failure.has_value() || event.checkpoint_first, "a stop has a cause");
    require(!event.at_once || event.signal, "only signals end at once");
  }
  void check(const Over& event) {
    over_ = true;
    require(event.failure.has_value() || event.exit_code == 0, "a failure has a cause");
  }
  void check(const KeptOut& event) {
    require(rules_.examines, "only who was examined is kept out");
    for (const auto& [id, place] : admitted_) {
      if (place != event.place) continue;
      require(!working_.contains(id), "who is kept out is not at work");
      admitted_.erase(id);
      return;
    }
  }
  void check(const Refused&) { require(false, "refusals are no news for all"); }
  void check(const Snapshot&) { require(false, "what a successor must know is told by the leader"); }
  void check(const LeaseLost&) { require(false, "leases are the members' own"); }

  Bytes& bytes_;
  TimePoint now_{std::chrono::seconds(1000)};
  JobRules rules_;
  Membership job_;
  std::map<int, ConnectionId> connection_{{0, 0}, {1, 1}, {2, 2}, {3, 3},
                                          {4, 4}, {5, 5}, {6, 6}, {7, 7}};  // by launcher
  std::map<int, std::uint64_t> instance_id_;
  ConnectionId next_connection_ = 100;
  std::map<ConnectionId, int> admitted_;
  std::set<ConnectionId> working_;  // who may still write
  std::vector<RoundNode> forming_;
  std::vector<std::pair<int, int>> displaced_;
  int round_ = -1, said_round_ = -1, restarts_ = 0;
  bool running_ = false, over_ = false;
};

}  // namespace

void rendezvous_messages(std::string_view input) {
  comes_back(input, decode_leader_event);
  comes_back(input, decode_node_event);
  comes_back(input, decode_offer);
  comes_back(input, decode_admission);
  const auto event = decode_leader_event(input);
  const auto* forming = event ? std::get_if<Forming>(&*event) : nullptr;
  if (forming == nullptr) return;
  for (std::size_t i = 0; i < forming->nodes.size() && i < 4; ++i)
    require(!forming->displaced.empty() ||
                index_in_round(input, forming->nodes[i].node_rank) == static_cast<int>(i),
            "a node is found at its place");
  std::string with_self(input);
  set_self(with_self, 3);
  require(std::get<Forming>(*decode_leader_event(with_self)).self == 3, "one's own place can be filled in");
}

void rendezvous_session(std::string_view input) {
  TimePoint now{std::chrono::seconds(1000)};
  Session session({1, "host", "", 2, {}}, {}, now);
  // Authentic messages, whatever is in them: pieces of the input, each led by its length.
  Bytes bytes(input);
  while (!bytes.empty() && !session.ended()) {
    std::string message;
    for (int left = bytes.next(); left > 0 && !bytes.empty(); --left)
      message.push_back(static_cast<char>(bytes.next()));
    session.receive(message, now);
    now += milliseconds(50);
    session.tick(now);
    while (const auto event = session.take()) static_cast<void>(decode_leader_event(*event));
  }
  session.receive("no response", now);
  require(session.ended(), "what is no response is the end");
}

void rendezvous_membership(std::string_view input) {
  Bytes bytes(input);
  Watch watch(bytes);
  while (!bytes.empty()) watch.step();
}

}  // namespace dtrain::fuzz
