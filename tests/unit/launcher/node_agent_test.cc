// The launchers' lines to each other, each with its own process: a whole job over loopback, launchers that
// are killed, node agents that are killed, ports that are taken.
#include "launcher/nodes/node_agent.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <fstream>
#include <memory>
#include <thread>

#include "cluster/net/token.h"
#include "runtime/base/check.h"

namespace dtrain::launcher {
namespace {

using namespace rendezvous;  // NOLINT: the events, by their names
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Contains;
using testing::HasSubstr;

const Token& token() {
  static const Token made = make_token();
  return made;
}

NodeAgentSettings settings_for(int node_rank, int nodes, std::uint16_t port) {
  NodeAgentSettings settings;
  settings.member.server = {"127.0.0.1", port};
  settings.member.token = token();
  settings.member.job = "job";
  settings.offer = {
      node_rank, "host" + std::to_string(node_rank), "", 2, {{"nnodes", std::to_string(nodes)}}};
  if (node_rank != 0) return settings;
  settings.listen_port = port;
  settings.hosts = true;
  settings.rendezvous.token = token();
  settings.rendezvous.job = "job";
  settings.rendezvous.rules.min_nodes = settings.rendezvous.rules.max_nodes = nodes;
  settings.rendezvous.rules.waiting_every = milliseconds(300);
  settings.rendezvous.rules.launch_time_ns = 7;
  settings.rendezvous.rules.run_id = "run";
  return settings;
}

// The next events of a kind; other kinds are skipped.
template <class Kind>
Kind hear(NodeAgent& agent) {
  const Deadline deadline = Deadline::after(seconds(30));
  while (!deadline.expired()) {
    pollfd waited{agent.fd(), POLLIN, 0};
    ::poll(&waited, 1, deadline.poll_timeout_ms());
    const auto event = agent.take();
    if (!event) continue;
    if (const Kind* found = std::get_if<Kind>(&*event)) return *found;
    if (event->index() >= 4) break;
  }
  ADD_FAILURE() << "the news did not come";
  return {};
}

std::string name_of(pid_t pid) {
  std::ifstream comm("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(comm, name);
  return name;
}

// The process that inherits a dead one may take its time to reap it.
bool exists(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(stat, text);
  const std::size_t close = text.rfind(')');
  return close != std::string::npos && text.compare(close, 3, ") Z") != 0;
}

bool gone_within(pid_t pid, milliseconds wait) {
  const Deadline deadline = Deadline::after(wait);
  while (exists(pid)) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return true;
}

TEST(NodeAgent, TwoLaunchersGoThroughAJob) {
  NodeAgent first(settings_for(0, 2, 0));
  NodeAgent second(settings_for(1, 2, first.port()));
  EXPECT_NE(first.port(), 0);
  EXPECT_EQ(second.port(), 0);
  for (NodeAgent* agent : {&first, &second}) {
    const Forming forming = hear<Forming>(*agent);
    EXPECT_EQ(forming.self, agent == &first ? 0 : 1);
    ASSERT_EQ(forming.nodes.size(), 2U);
    agent->say(Ready{0, static_cast<std::uint16_t>(agent == &first ? 4711 : 0)});
  }
  EXPECT_EQ(name_of(first.pid()), "dtrain-agent");
  for (NodeAgent* agent : {&first, &second}) {
    const Start start = hear<Start>(*agent);
    EXPECT_EQ(start.master_port, 4711);
    EXPECT_EQ(start.run_id, "run");
    EXPECT_EQ(start.launch_time_ns, 7);
    agent->say(Ended{0, 0});
  }
  for (NodeAgent* agent : {&first, &second}) {
    EXPECT_EQ(hear<Over>(*agent).exit_code, 0);
    EXPECT_FALSE(agent->take());
  }
}

TEST(NodeAgent, ALongReportArrivesWhole) {
  NodeAgent first(settings_for(0, 2, 0));
  NodeAgent second(settings_for(1, 2, first.port()));
  for (NodeAgent* agent : {&first, &second}) {
    hear<Forming>(*agent);
    agent->say(Ready{0, 1});
  }
  hear<Start>(second);
  Failed failed;
  failed.failure.exit_code = 3;
  for (int i = 0; i < 64; ++i) failed.failure.lines.emplace_back(1024, static_cast<char>('a' + i % 26));
  second.say(failed);
  EXPECT_EQ(hear<Stop>(first).failure->lines, failed.failure.lines);
}

// A launcher of its own process, which is killed.
TEST(NodeAgent, AKilledLauncherIsReportedWithinASecondWithItsNodesName) {
  static_cast<void>(token());
  for (const int victim : {1, 0}) {
    int report[2];
    check(Sys{::pipe2(report, O_CLOEXEC)}, "pipe");
    const std::uint16_t port =
        victim == 0 ? 0 : listen_on("127.0.0.1", 0, Deadline::after(seconds(5))).port();
    const pid_t launcher = static_cast<pid_t>(check(Sys{::fork()}, "fork"));
    if (launcher == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      NodeAgent agent(settings_for(victim, 2, port));
      const int facts[] = {agent.pid(), agent.port()};
      check(Sys{::write(report[1], facts, sizeof facts)}, "write");
      hear<Forming>(agent);
      agent.say(Ready{0, 1});
      hear<Start>(agent);
      ::pause();
      ::_exit(0);
    }
    int facts[2] = {0, 0};
    std::unique_ptr<NodeAgent> other;
    if (victim == 1) other = std::make_unique<NodeAgent>(settings_for(0, 2, port));
    check(Sys{::read(report[0], facts, sizeof facts)}, "read");
    if (victim == 0)
      other = std::make_unique<NodeAgent>(settings_for(1, 2, static_cast<std::uint16_t>(facts[1])));
    hear<Forming>(*other);
    other->say(Ready{0, 1});
    hear<Start>(*other);
    ::kill(launcher, SIGKILL);
    const auto killed = std::chrono::steady_clock::now();
    const Stop stop = hear<Stop>(*other);
    EXPECT_LT(std::chrono::steady_clock::now() - killed, seconds(5));  // typically 60 ms
    ASSERT_TRUE(stop.failure);
    EXPECT_EQ(stop.failure->kind, Failure::Kind::launcher_lost);
    EXPECT_EQ(stop.failure->host, "host" + std::to_string(victim));
    other->say(Ended{0, 143});
    EXPECT_EQ(hear<Over>(*other).exit_code, 4);
    ::waitpid(launcher, nullptr, 0);
    EXPECT_TRUE(gone_within(static_cast<pid_t>(facts[0]), seconds(10)));
    ::close(report[0]);
    ::close(report[1]);
  }
}

// It is a part of the launcher: what it knew is lost, and the others continue, or end, without this node.
TEST(NodeAgent, ThatIsKilledEndsItsNode) {
  NodeAgent first(settings_for(0, 2, 0));
  NodeAgent second(settings_for(1, 2, first.port()));
  for (NodeAgent* agent : {&first, &second}) {
    hear<Forming>(*agent);
    agent->say(Ready{0, 1});
  }
  hear<Start>(first);
  hear<Start>(second);
  ::kill(second.pid(), SIGKILL);
  EXPECT_THAT(hear<LeaseLost>(second).why, HasSubstr("was killed by SIGKILL"));
  EXPECT_TRUE(second.lease().over());
  EXPECT_FALSE(second.take());
  second.say(Ended{0, 0});  // harmless
  const Stop stop = hear<Stop>(first);
  ASSERT_TRUE(stop.failure);
  EXPECT_EQ(stop.failure->kind, Failure::Kind::node_lost);
  EXPECT_EQ(stop.failure->host, "host1");
  first.say(Ended{0, 143});
  EXPECT_EQ(hear<Over>(first).exit_code, 4);
}

TEST(NodeAgent, SignalsOfATerminalOrABatchSystemDoNotEndIt) {
  NodeAgent first(settings_for(0, 2, 0));
  hear<Waiting>(first);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP}) ::kill(first.pid(), signal);
  EXPECT_EQ(::getpgid(first.pid()), first.pid());
  NodeAgent second(settings_for(1, 2, first.port()));
  hear<Forming>(first);
  hear<Forming>(second);
}

TEST(NodeAgent, ATakenPortIsAnErrorThatNamesItsOwner) {
  const Listener taken = listen_on("127.0.0.1", 0, Deadline::after(seconds(5)));
  try {
    NodeAgent agent(settings_for(0, 2, taken.port()));
    ADD_FAILURE() << "expected an error";
  } catch (const SystemError& error) {
    EXPECT_THAT(error.what(), HasSubstr("pid " + std::to_string(::getpid())));
  }
}

TEST(NodeAgent, ARendezvousThatIsNotReachedIsARefusalAndTheWaitingIsTold) {
  NodeAgentSettings settings =
      settings_for(1, 2, listen_on("127.0.0.1", 0, Deadline::after(seconds(5))).port());
  settings.connect_timeout = milliseconds(5500);
  NodeAgent agent(settings);
  EXPECT_THAT(hear<Waiting>(agent).lines,
              Contains(HasSubstr("127.0.0.1:" + std::to_string(settings.member.server.port))));
  EXPECT_THAT(hear<Refused>(agent).why, HasSubstr("refused"));
}

TEST(NodeAgent, AnotherTokenIsARefusalAtOnce) {
  NodeAgent first(settings_for(0, 2, 0));
  NodeAgentSettings settings = settings_for(1, 2, first.port());
  settings.member.token = make_token();
  NodeAgent second(settings);
  EXPECT_THAT(hear<Refused>(second).why, HasSubstr("token"));
}

TEST(NodeAgent, HostingOffLoopbackWithoutATokenIsRefused) {
  NodeAgentSettings settings = settings_for(0, 2, 0);
  settings.member.server.host = "0.0.0.0";
  settings.member.token.reset();
  settings.rendezvous.token.reset();
  NodeAgent agent(settings);
  EXPECT_THAT(hear<Refused>(agent).why, HasSubstr("expected a token, since other machines can reach"));
}

TEST(NodeAgent, ADuplicateRankGetsEverybodyOut) {
  NodeAgent first(settings_for(0, 3, 0));
  NodeAgent second(settings_for(1, 3, first.port()));
  hear<Waiting>(second);
  NodeAgent third(settings_for(1, 3, first.port()));
  const std::string why = hear<Refused>(third).why;
  EXPECT_THAT(why, HasSubstr("node_rank 1 is taken"));
  EXPECT_THAT(hear<Over>(first).failure->lines, Contains(why));
  EXPECT_THAT(hear<Over>(second).failure->lines, Contains(why));
}

TEST(NodeAgent, ALauncherThatGoesWhileConnectingLeavesNothing) {
  pid_t pid = 0;
  {
    NodeAgent agent(settings_for(1, 2, listen_on("127.0.0.1", 0, Deadline::after(seconds(5))).port()));
    pid = agent.pid();
  }
  EXPECT_FALSE(exists(pid));
}

}  // namespace
}  // namespace dtrain::launcher
