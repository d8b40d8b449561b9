// Launchers that elect one of them when the one that leads is gone, over loopback and with threads: who is
// lost is replaced, rounds are counted on, and no two leaders start one.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "cluster/rendezvous/member.h"
#include "cluster/rendezvous/server.h"

namespace dtrain::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kNodes = 4, kSpares = 1;
// Long enough for a machine with much else to do.
constexpr Duration kLease = milliseconds(2500), kLostAfter = milliseconds(3700);

Deadline soon() { return Deadline::after(seconds(60)); }

/// What all launchers of a job have heard, from whatever leader.
class Minutes {
 public:
  /// `place` was told to start `start`.
  void note(int place, const Start& start) {
    const std::lock_guard lock(mutex_);
    std::string nodes;
    for (const RoundNode& node : start.nodes) nodes += std::to_string(node.node_rank) + " " + node.host + ";";
    const auto [found, first] = rounds_.emplace(start.round, nodes);
    EXPECT_EQ(found->second, nodes) << "two rounds with the number " << start.round;
    EXPECT_TRUE(takers_[start.round].insert(start.self).second)
        << "two launchers are node " << start.self << " of round " << start.round << ", one of them at place "
        << place;
    EXPECT_GE(start.round, newest_) << "an older round was started after a newer one";
    newest_ = start.round;
  }

 private:
  std::mutex mutex_;
  std::map<int, std::string> rounds_;
  std::map<int, std::set<int>> takers_;
  int newest_ = 0;
};

/// A launcher without workers: it does what it is told at once.
class Launcher {
 public:
  Launcher(int place, const Endpoint& meeting_point, std::optional<Listener> hosts, const Token& token,
           Minutes& minutes)
      : place_(place), minutes_(minutes) {
    ServerOptions leads;
    leads.token = token;
    leads.job = "job";
    leads.rules.min_nodes = leads.rules.max_nodes = kNodes;
    leads.rules.spares = kSpares;
    leads.rules.max_restarts = 100;
    leads.rules.lease = kLease;
    leads.rules.lost_after = kLostAfter;
    const std::string host = "host" + std::to_string(place);
    LeadershipOptions leadership{
        1000 + static_cast<std::uint64_t>(place) + (std::uint64_t{std::random_device{}()} << 32),
        host,
        kLease,
        meeting_point,
        {}};
    leadership.store.token = token;
    leadership.store.job = "job";
    leadership.store.role = "launcher";
    leadership_.emplace(std::move(leadership));
    leads.leadership = &*leadership_;
    const bool stands_by = !hosts;
    Listener listener = hosts ? std::move(*hosts) : listen_on("127.0.0.1", 0, soon());
    rendezvous_.emplace(std::move(listener), leads, stands_by);

    NodeOffer offer{place, host, "127.0.0.1 (lo)", 1, {{"nnodes", "4"}}};
    offer.instance_id = leadership_->instance_id();
    offer.standby = rendezvous_->endpoint();
    MemberOptions follows;
    follows.server = meeting_point;
    follows.token = token;
    follows.job = "job";
    follows.beat = milliseconds(250);
    follows.lease = kLease;
    follows.leadership = &*leadership_;
    follows.on_elected = [this](Succession succession) {
      rendezvous_->lead(std::move(succession));
      leads_ = true;
    };
    leads_ = !stands_by;
    member_.emplace(follows, offer, soon());
    thread_ = std::thread([this] { act(); });
  }
  ~Launcher() {
    ending_ = true;
    thread_.join();
    // As when its process is killed: nobody is told.
    rendezvous_.reset();
    member_.reset();
  }

  int place() const { return place_; }
  bool leads() const { return leads_; }
  /// Where it stands, for people.
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return "place " + std::to_string(place_) + (leads_ ? " leads" : "") + ", round " +
           std::to_string(round_) + (ended_.empty() ? "" : ", ") + ended_;
  }
  /// The newest round it takes part in; -1: none.
  int round() const { return round_; }
  bool ended() const {
    const std::lock_guard lock(mutex_);
    return !ended_.empty();
  }
  /// All launchers of the job may elect, and it has heard so.
  bool knows_all() const { return leadership_->known_voters() == kNodes + kSpares; }

 private:
  void end(const std::string& why) {
    const std::lock_guard lock(mutex_);
    ended_ = why;
  }

  void act() {
    while (!ending_) {
      const auto event = member_->next(Deadline::after(milliseconds(50)));
      if (!event) continue;
      if (const auto* refused = std::get_if<Refused>(&*event)) end("refused: " + refused->why);
      if (const auto* lost = std::get_if<LeaseLost>(&*event)) end("lease lost: " + lost->why);
      if (const auto* over = std::get_if<Over>(&*event)) end("over: code " + std::to_string(over->exit_code));
      if (const auto* forming = std::get_if<Forming>(&*event)) {
        member_->say(Ready{forming->round, 4711, "127.0.0.1"});
      } else if (const auto* start = std::get_if<Start>(&*event)) {
        minutes_.note(place_, *start);
        round_ = start->round;
      } else if (const auto* stop = std::get_if<Stop>(&*event)) {
        if (round_ == stop->round) member_->say(Ended{stop->round, 143});
      }
    }
  }

  int place_;
  Minutes& minutes_;
  std::optional<Leadership> leadership_;
  std::optional<RendezvousServer> rendezvous_;
  std::optional<Member> member_;
  std::atomic<bool> ending_{false}, leads_{false};
  std::atomic<int> round_{-1};
  mutable std::mutex mutex_;
  std::string ended_;
  std::thread thread_;
};

class ElectionsTest : public testing::Test {
 protected:
  void SetUp() override {
    Listener listener = listen_on("127.0.0.1", 0, soon());
    meeting_point_ = {"127.0.0.1", listener.port()};
    launchers_[0] = std::make_unique<Launcher>(0, meeting_point_, std::move(listener), token_, minutes_);
    for (int place = 1; place < kNodes + kSpares; ++place) add(place);
  }
  // Newcomers look for the job where it began. Who is to be there begins one, until it hears of the other.
  void add(int place) {
    std::optional<Listener> hosts;
    if (place == 0) hosts = listen_on("127.0.0.1", meeting_point_.port, soon());
    launchers_[place] = std::make_unique<Launcher>(place, meeting_point_, std::move(hosts), token_, minutes_);
  }
  /// Everything is there that a loss needs.
  bool complete() {
    return goes_on_after(-1) && eventually([&] {
             return std::all_of(launchers_.begin(), launchers_.end(),
                                [](const auto& one) { return one.second->knows_all(); });
           });
  }
  bool eventually(const std::function<bool()>& condition) {
    const Deadline deadline = soon();
    while (!condition() && !deadline.expired()) std::this_thread::sleep_for(milliseconds(20));
    return condition();
  }
  /// All nodes' parts of one round later than `round` have been started.
  /// A launcher that has lost the others, as one may on a busy machine, is started again, as by its
  /// supervisor.
  bool goes_on_after(int round) {
    return eventually([&] {
      for (int place = 0; place < kNodes + kSpares; ++place) {
        if (!launchers_.contains(place) || !launchers_[place]->ended()) continue;
        launchers_.erase(place);
        add(place);
      }
      std::map<int, int> parts;
      for (const auto& [place, launcher] : launchers_) ++parts[launcher->round()];
      return parts.rbegin()->first > round && parts.rbegin()->second == kNodes;
    });
  }
  std::string text() const {
    std::string text;
    for (const auto& [place, launcher] : launchers_) text += launcher->text() + "\n";
    return text;
  }
  int newest_round() const {
    int newest = -1;
    for (const auto& [place, launcher] : launchers_) newest = std::max(newest, launcher->round());
    return newest;
  }
  int leader() const {
    for (const auto& [place, launcher] : launchers_) {
      if (launcher->leads()) return place;
    }
    return -1;
  }

  const Token token_ = make_token();
  Minutes minutes_;
  Endpoint meeting_point_;
  std::map<int, std::unique_ptr<Launcher>> launchers_;
};

TEST_F(ElectionsTest, TheSpareTakesTheLostLeadersPlace) {
  ASSERT_TRUE(complete()) << text();
  const int round = newest_round();
  launchers_.erase(0);
  ASSERT_TRUE(goes_on_after(round)) << text();
  EXPECT_GT(leader(), 0);
}

TEST_F(ElectionsTest, AnotherNodesLossElectsNobody) {
  ASSERT_TRUE(complete()) << text();
  const int round = newest_round();
  launchers_.erase(2);
  ASSERT_TRUE(goes_on_after(round)) << text();
  EXPECT_EQ(leader(), 0);
}

// DTRAIN_FAULT_ROUNDS=100 for the long run.
TEST_F(ElectionsTest, OneLossAfterAnotherOfWhomeverElectsOneLeaderAtATime) {
  const char* rounds = std::getenv("DTRAIN_FAULT_ROUNDS");
  const char* given = std::getenv("DTRAIN_FAULT_SEED");
  const unsigned seed =
      given != nullptr ? static_cast<unsigned>(std::atoi(given)) : std::random_device{}() >> 2;
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  ASSERT_TRUE(complete()) << text();
  for (int i = 0; i < (rounds != nullptr ? std::atoi(rounds) : 2); ++i) {
    const int victim = i == 0 ? 0 : static_cast<int>(random() % (kNodes + kSpares));
    SCOPED_TRACE("round " + std::to_string(i) + ": place " + std::to_string(victim) + " is lost");
    const int round = newest_round();
    const bool takes_part = launchers_[victim]->round() == round;
    launchers_.erase(victim);
    if (takes_part) {
      ASSERT_TRUE(goes_on_after(round)) << text();
    }
    add(victim);
  }
}

}  // namespace
}  // namespace dtrain::rendezvous
