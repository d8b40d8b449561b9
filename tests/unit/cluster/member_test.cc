// Launchers and their rendezvous over loopback: joining, rounds, members that die, fall silent, or say what
// they should not, and a leader that is gone.
#include "cluster/rendezvous/member.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <memory>
#include <thread>

#include "cluster/rendezvous/server.h"
#include "cluster/rendezvous/session.h"
#include "cluster/store/store_client.h"
#include "runtime/base/check.h"

namespace dtrain::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

Deadline soon() { return Deadline::after(seconds(30)); }

const Token& token() {
  static const Token made = make_token();
  return made;
}

ServerOptions options_for(int least, int most) {
  ServerOptions options;
  options.token = token();
  options.job = "job";
  options.rules.min_nodes = least;
  options.rules.max_nodes = most;
  options.rules.max_restarts = 3;
  options.rules.last_call = milliseconds(300);
  options.rules.waiting_every = milliseconds(200);
  options.rules.run_id = "run";
  return options;
}

NodeOffer offer_of(int node_rank) {
  return {node_rank, "host" + std::to_string(node_rank), "127.0.0.1 (lo)", 2, {{"nnodes", "n"}}};
}

class RendezvousTest : public testing::Test {
 protected:
  void SetUp() override {
    static_cast<void>(token());  // made once, before there are two processes
    listener_ = listen_on("127.0.0.1", 0, soon());
  }
  void serve(const ServerOptions& options) {
    port_ = listener_.port();
    rendezvous_ = std::make_unique<RendezvousServer>(std::move(listener_), options);
  }
  MemberOptions member_options() const {
    MemberOptions options;
    options.server = {"127.0.0.1", port_ != 0 ? port_ : listener_.port()};
    options.token = token();
    options.job = "job";
    options.beat = milliseconds(100);
    return options;
  }
  std::unique_ptr<Member> join(int node_rank) { return join(offer_of(node_rank)); }
  std::unique_ptr<Member> join(const NodeOffer& offer) {
    return std::make_unique<Member>(member_options(), offer, soon());
  }
  // The next events of a kind; other kinds are skipped, the last ones end the test.
  template <class Kind>
  static Kind hear(Member& member) {
    const Deadline deadline = soon();
    while (auto event = member.next(deadline)) {
      if (Kind* found = std::get_if<Kind>(&*event)) return *found;
      if (event->index() >= 4) break;
    }
    ADD_FAILURE() << "the news did not come";
    return {};
  }
  void start_round(std::vector<std::unique_ptr<Member>>& members, int round) {
    for (auto& member : members) {
      EXPECT_EQ(hear<Forming>(*member).round, round);
      member->say(Ready{round, 4711});
    }
    for (auto& member : members) EXPECT_EQ(hear<Start>(*member).round, round);
  }

  Listener listener_;
  std::uint16_t port_ = 0;
  std::unique_ptr<RendezvousServer> rendezvous_;
};

TEST_F(RendezvousTest, TwoToEightLaunchersGoThroughAJob) {
  for (const int nodes : {2, 5, 8}) {
    if (nodes != 2) SetUp();
    serve(options_for(nodes, nodes));
    std::vector<std::unique_ptr<Member>> members;
    for (int i = nodes - 1; i >= 0; --i) members.push_back(join(i));
    for (auto& member : members) {
      const Forming forming = hear<Forming>(*member);
      ASSERT_EQ(forming.nodes.size(), static_cast<std::size_t>(nodes));
      const int rank = static_cast<int>(&member - members.data());
      EXPECT_EQ(forming.self, nodes - 1 - rank);
      EXPECT_EQ(forming.nodes[1].host, "host1");
      member->say(Ready{0, static_cast<std::uint16_t>(100 + forming.self)});
    }
    for (auto& member : members) {
      const Start start = hear<Start>(*member);
      EXPECT_EQ(start.master_port, 100);
      EXPECT_EQ(start.nodes[static_cast<std::size_t>(start.self)].first_rank, 2 * start.self);
      member->say(Ended{0, 0});
    }
    for (auto& member : members) EXPECT_EQ(hear<Over>(*member).exit_code, 0);
    for (auto& member : members) EXPECT_FALSE(member->next(Deadline::never()));
    EXPECT_TRUE(rendezvous_->wait_until_over(soon()));
    rendezvous_.reset();
  }
}

TEST_F(RendezvousTest, TheFirstFailureIsEverybodysCause) {
  serve(options_for(2, 2));
  std::vector<std::unique_ptr<Member>> members;
  for (const int i : {0, 1}) members.push_back(join(i));
  start_round(members, 0);
  Failed failed;
  failed.failure.rank = 3;
  failed.failure.exit_code = 7;
  failed.failure.lines = {"rank 3 failed first: exit code 7"};
  members[1]->say(failed);
  for (auto& member : members) {
    const Stop stop = hear<Stop>(*member);
    EXPECT_EQ(stop.failure->lines, failed.failure.lines);
    EXPECT_TRUE(stop.again);
    member->say(Ended{0, 143});
  }
  start_round(members, 1);
}

TEST_F(RendezvousTest, DescriptorIsReadableWhileThereIsNews) {
  serve(options_for(1, 1));
  const auto member = join(0);
  pollfd waited{member->fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&waited, 1, 20000), 1);
  EXPECT_TRUE(member->next(Deadline::after(Duration::zero())));
}

TEST_F(RendezvousTest, TheRefusedHearsWhyAndSoDoTheOthers) {
  serve(options_for(3, 3));
  const auto first = join(0);
  hear<Waiting>(*first);  // it has its slot
  NodeOffer twin = offer_of(0);
  twin.host = "other";
  const auto second = join(twin);
  const std::string why = hear<Refused>(*second).why;
  EXPECT_THAT(why, AllOf(HasSubstr("host0"), HasSubstr("other")));
  const Over over = hear<Over>(*first);
  EXPECT_EQ(over.exit_code, 2);
  EXPECT_THAT(over.failure->lines, Contains(why));
  EXPECT_TRUE(rendezvous_->wait_until_over(soon()));
}

TEST_F(RendezvousTest, WhoIsMissingIsToldAgainAndAgain) {
  serve(options_for(3, 3));
  const auto member = join(0);
  for (int i = 0; i < 2; ++i)
    EXPECT_THAT(hear<Waiting>(*member).lines, Contains(AllOf(HasSubstr("1/3 nodes; missing node_rank 1, 2"),
                                                             HasSubstr("127.0.0.1:"), HasSubstr("(lo)"))));
}

TEST_F(RendezvousTest, AMemberThatSaysSoIsGoneAtOnce) {
  serve(options_for(2, 2));
  std::vector<std::unique_ptr<Member>> members;
  for (const int i : {0, 1}) members.push_back(join(i));
  start_round(members, 0);
  members[1]->say(Gone{});
  members[1].reset();
  const Stop stop = hear<Stop>(*members[0]);
  EXPECT_EQ(stop.failure->kind, Failure::Kind::launcher_lost);
  EXPECT_EQ(stop.failure->host, "host1");
}

TEST_F(RendezvousTest, LastWordsAreHeardBeforeTheGoodbye) {
  serve(options_for(2, 2));
  std::vector<std::unique_ptr<Member>> members;
  for (const int i : {0, 1}) members.push_back(join(i));
  start_round(members, 0);
  members[1]->say(Ended{0, 0});
  members[1].reset();
  members[0]->say(Ended{0, 0});
  EXPECT_EQ(hear<Over>(*members[0]).exit_code, 0);
}

// As `ss -K` or a middlebox would: both ends of every connection to the port are reset or closed.
void break_connections(std::uint16_t port) {
  for (int fd = 3; fd < 256; ++fd) {
    sockaddr_in peer{};
    socklen_t length = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0 && peer.sin_family == AF_INET &&
        ntohs(peer.sin_port) == port)
      ::shutdown(fd, SHUT_RDWR);
  }
}

TEST_F(RendezvousTest, ABrokenConnectionIsMadeAgainAndNothingIsLost) {
  serve(options_for(2, 2));
  std::vector<std::unique_ptr<Member>> members;
  for (const int i : {0, 1}) members.push_back(join(i));
  start_round(members, 0);
  break_connections(port_);
  members[1]->say(Ended{0, 0});
  break_connections(port_);
  members[0]->say(Ended{0, 0});
  for (auto& member : members) EXPECT_EQ(hear<Over>(*member).exit_code, 0);
}

// Processes of their own, forked before this one has threads.
TEST_F(RendezvousTest, AKilledOrStoppedProcessIsWaitedForUntilItsLeaseHasRunOut) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    SetUp();
    const pid_t child = static_cast<pid_t>(check(Sys{::fork()}, "fork"));
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      port_ = listener_.port();
      listener_.fd.reset();
      const auto member = join(1);
      hear<Forming>(*member);
      member->say(Ready{0, 0});
      while (member->next(Deadline::after(seconds(20)))) {
      }
      ::_exit(0);
    }
    ServerOptions options = options_for(2, 2);
    options.rules.lost_after = milliseconds(1500);
    serve(options);
    std::vector<std::unique_ptr<Member>> members;
    members.push_back(join(0));
    start_round(members, 0);
    ::kill(child, signal);
    const auto begin = std::chrono::steady_clock::now();
    const Stop stop = hear<Stop>(*members[0]);
    // A closed connection is no proof: workers may outlive the process that held it.
    EXPECT_EQ(stop.failure->kind, Failure::Kind::node_lost);
    EXPECT_GT(std::chrono::steady_clock::now() - begin, seconds(1));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(10));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    members.clear();
    rendezvous_.reset();
    port_ = 0;
  }
}

TEST_F(RendezvousTest, ALeaderThatIsGoneIsALostLease) {
  serve(options_for(2, 2));
  const auto member = join(0);
  rendezvous_.reset();
  EXPECT_THAT(hear<LeaseLost>(*member).why, HasSubstr("gone"));
  EXPECT_FALSE(member->next(soon()));
}

TEST_F(RendezvousTest, ALeaderThatDoesNotAnswerIsALostLease) {
  const Listener& listener = listener_;
  MemberOptions options = member_options();
  const pid_t child = static_cast<pid_t>(check(Sys{::fork()}, "fork"));
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    serve(options_for(2, 2));
    ::pause();
  }
  options.server.port = listener.port();
  options.lease = milliseconds(700);
  Member member(options, offer_of(0), soon());
  hear<Waiting>(member);
  ::kill(child, SIGSTOP);
  EXPECT_THAT(hear<LeaseLost>(member).why, HasSubstr("no answer"));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_F(RendezvousTest, AMemberMayComeBeforeTheLeader) {
  MemberOptions options = member_options();
  options.server.port = listener_.port();
  std::thread late([this] {
    std::this_thread::sleep_for(milliseconds(100));
    serve(options_for(1, 1));
  });
  Member member(options, offer_of(0), soon());
  EXPECT_EQ(hear<Forming>(member).self, 0);
  late.join();
}

TEST_F(RendezvousTest, AWrongTokenOrJobIsAnErrorAtOnce) {
  serve(options_for(1, 1));
  MemberOptions options = member_options();
  options.token = make_token();
  EXPECT_THROW(Member(options, offer_of(0), soon()), PeerError);
  options = member_options();
  options.job = "another";
  EXPECT_THROW(Member(options, offer_of(0), soon()), PeerError);
}

TEST_F(RendezvousTest, OddClientsChangeNothing) {
  serve(options_for(2, 2));
  const auto first = join(0);
  StoreClientOptions options;
  options.token = token();
  options.job = "job";
  StoreClient odd({"127.0.0.1", port_}, options, soon());
  odd.set(kNodeEventKey, "no word", soon());
  odd.set(kNodeEventKey, "", soon());
  odd.set(kBeatKey, std::string(1 << 20, 'x'), soon());
  odd.set(kJoinKey, "no offer", soon());
  odd.set(kSilenceKey, "", soon());
  odd.set("rdzv/unknown", "", soon());
  odd.set(event_key(0), "forged news", soon());
  EXPECT_THROW(odd.add(event_key(0), 1, soon()), UsageError);
  EXPECT_THROW(odd.remove(event_key(0), soon()), UsageError);
  EXPECT_THROW(odd.compare_set(event_key(1), std::nullopt, "x", soon()), UsageError);
  // Under other names it is a store like any.
  odd.set("mine", "1", soon());
  EXPECT_EQ(odd.get("mine", soon()), "1");
  const auto second = join(1);
  EXPECT_EQ(hear<Forming>(*first).nodes.size(), 2U);
  EXPECT_EQ(hear<Forming>(*second).self, 1);
}

TEST_F(RendezvousTest, AnElasticJobTakesANewcomerInAtACheckpoint) {
  serve(options_for(1, 2));
  std::vector<std::unique_ptr<Member>> members;
  members.push_back(join(0));
  start_round(members, 0);
  const auto late = join(1);
  EXPECT_THAT(hear<Waiting>(*late).lines, Contains(HasSubstr("next checkpoint")));
  const Stop stop = hear<Stop>(*members[0]);
  EXPECT_TRUE(stop.checkpoint_first && stop.again);
  members[0]->say(Ended{0, 75});
  // The newcomer hears nothing of the round it was not in.
  const auto event = late->next(soon());
  ASSERT_TRUE(event && std::holds_alternative<Forming>(*event));
  EXPECT_EQ(std::get<Forming>(*event).self, 1);
}

}  // namespace
}  // namespace dtrain::rendezvous
