// The TCP server and client under everything that can go wrong on a network: late servers, dead servers,
// wrong tokens, strangers by the hundred, clients that do not read.
#include "cluster/store/store_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <future>
#include <thread>

#include "cluster/net/connector.h"
#include "cluster/store/store_client.h"
#include "cluster/store/store_connection.h"
#include "cluster/store/store_wire.h"
#include "runtime/base/check.h"
#include "tests/support/slowness.h"

namespace dtrain {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

Deadline soon() { return Deadline::after(seconds(20) * test::kSlowness); }

const Token& token() {
  static const Token made = make_token();
  return made;
}

StoreServerOptions server_options() {
  StoreServerOptions options;
  options.token = token();
  options.job = "job";
  return options;
}

StoreClientOptions client_options(int rank = 0) {
  StoreClientOptions options;
  options.token = token();
  options.job = "job";
  options.rank = rank;
  return options;
}

Endpoint endpoint_of(std::uint16_t port) { return {"127.0.0.1", port}; }

template <class Call>
std::string peer_error_of(Call call) {
  try {
    call();
  } catch (const PeerError& error) {
    return error.what();
  }
  return "no PeerError";
}

// A plain TCP connection that knows nothing of tokens.
UniqueFd stranger(std::uint16_t port) {
  UniqueFd fd(static_cast<int>(check(Sys{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)}, "socket")));
  const SocketAddress address = resolve(endpoint_of(port), soon()).front();
  check(Sys{::connect(fd.get(), address.get(), address.length())}, "connect");
  return fd;
}

// True when the other side closes within `wait`.
bool closed_within(int fd, milliseconds wait) {
  const Deadline deadline = Deadline::after(wait);
  while (!deadline.expired()) {
    pollfd waited{fd, POLLIN, 0};
    ::poll(&waited, 1, deadline.poll_timeout_ms());
    char bytes[4096];
    const ssize_t got = ::recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN)) return true;
  }
  return false;
}

class ServerTest : public testing::Test {
 protected:
  void start(StoreServerOptions options = server_options()) {
    server_ = std::make_unique<StoreServer>(listen_on("127.0.0.1", 0, soon()), std::move(options));
    port_ = server_->port();
  }
  std::unique_ptr<StoreClient> connect(int rank = 0) {
    return std::make_unique<StoreClient>(endpoint_of(port_), client_options(rank), soon());
  }
  // Forks a process that serves on `listener` until it is killed, with at most `descriptors` of them.
  static pid_t serve_in_child(Listener listener, rlim_t descriptors) {
    static_cast<void>(token());  // made once, before there are two processes
    const pid_t child = static_cast<pid_t>(check(Sys{::fork()}, "fork"));
    if (child != 0) return child;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const rlimit few{descriptors, descriptors};
    ::setrlimit(RLIMIT_NOFILE, &few);
    const StoreServer server(std::move(listener), server_options());
    ::pause();
    ::_exit(0);
  }
  // Waits until the server has counted what a test expects.
  bool reaches(std::uint64_t StoreServerStats::*field, std::uint64_t least) {
    const Deadline deadline = soon();
    while (server_->stats().*field < least) {
      if (deadline.expired()) return false;
      std::this_thread::sleep_for(milliseconds(2));
    }
    return true;
  }

  std::unique_ptr<StoreServer> server_;
  std::uint16_t port_ = 0;
};

TEST_F(ServerTest, ClientsMayStartBeforeTheServer) {
  Listener listener = listen_on("127.0.0.1", 0, soon());
  const std::uint16_t port = listener.port();
  listener.fd.reset();
  auto early = std::async(std::launch::async, [&] {
    return StoreClient(endpoint_of(port), client_options(), soon()).add("n", 1, soon());
  });
  std::this_thread::sleep_for(milliseconds(120));
  StoreServer late(listen_on("127.0.0.1", port, soon()), server_options());
  EXPECT_EQ(early.get(), 1);
}

TEST_F(ServerTest, ClientsMayConnectToAnInheritedSocketBeforeAnybodyServesIt) {
  Listener listener = listen_on("127.0.0.1", 0, soon());
  const std::uint16_t port = listener.port();
  auto early = std::async(std::launch::async, [&] {
    return StoreClient(endpoint_of(port), client_options(), soon()).add("n", 1, soon());
  });
  std::this_thread::sleep_for(milliseconds(50));
  StoreServer late(adopt_listener(std::move(listener.fd), "DTRAIN_STORE_FD"), server_options());
  EXPECT_EQ(early.get(), 1);
}

TEST_F(ServerTest, NobodyThereIsPeerErrorByTheDeadlineNamingTheAddress) {
  Listener listener = listen_on("127.0.0.1", 0, soon());
  const std::uint16_t port = listener.port();
  listener.fd.reset();
  const auto begin = std::chrono::steady_clock::now();
  const std::string text = peer_error_of(
      [&] { StoreClient(endpoint_of(port), client_options(), Deadline::after(milliseconds(200))); });
  EXPECT_THAT(text, AllOf(HasSubstr("127.0.0.1:" + std::to_string(port)), HasSubstr("refused")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(10));
}

TEST_F(ServerTest, ListeningButSilentServerIsPeerErrorByTheDeadline) {
  const Listener listener = listen_on("127.0.0.1", 0, soon());
  const std::string text = peer_error_of([&] {
    StoreClient(endpoint_of(listener.port()), client_options(), Deadline::after(milliseconds(200)));
  });
  EXPECT_THAT(text, HasSubstr("has not answered"));
}

TEST_F(ServerTest, WrongTokenOrJobIsRefusedAtOnceAndSaysWhich) {
  start();
  StoreClientOptions other = client_options();
  other.token = make_token();
  EXPECT_THAT(peer_error_of([&] { StoreClient(endpoint_of(port_), other, soon()); }), HasSubstr("token"));
  other.token.reset();
  EXPECT_THAT(peer_error_of([&] { StoreClient(endpoint_of(port_), other, soon()); }), HasSubstr("token"));
  other = client_options();
  other.job = "another";
  EXPECT_THAT(peer_error_of([&] { StoreClient(endpoint_of(port_), other, soon()); }),
              AllOf(HasSubstr("'job'"), HasSubstr("'another'")));
  EXPECT_EQ(connect()->add("n", 1, soon()), 1);
}

TEST_F(ServerTest, AForeignServiceIsRecognised) {
  const Listener listener = listen_on("127.0.0.1", 0, soon());
  std::thread service([&] {
    pollfd waited{listener.fd.get(), POLLIN, 0};
    ::poll(&waited, 1, 20000);
    const UniqueFd fd(::accept(listener.fd.get(), nullptr, nullptr));
    ::send(fd.get(), "SSH-2.0-x\r\n", 11, MSG_NOSIGNAL);
    closed_within(fd.get(), milliseconds(20000));
  });
  EXPECT_THAT(peer_error_of([&] { StoreClient(endpoint_of(listener.port()), client_options(), soon()); }),
              HasSubstr("is not dtrain"));
  service.join();
}

TEST_F(ServerTest, OffLoopbackATokenIsNeeded) {
  StoreServerOptions open;
  EXPECT_THROW(StoreServer(listen_on("0.0.0.0", 0, soon()), open), UsageError);
  open.insecure = true;
  EXPECT_NO_THROW(StoreServer(listen_on("0.0.0.0", 0, soon()), open));
  EXPECT_THROW(StoreClient({"192.0.2.1", 1}, {}, soon()), UsageError);
}

TEST_F(ServerTest, LoopbackWorksWithoutAToken) {
  start({});
  StoreClient client(endpoint_of(port_), {}, soon());
  EXPECT_EQ(client.add("n", 1, soon()), 1);
}

TEST_F(ServerTest, StoppedServerEndsEveryCallWithinASecond) {
  start();
  const auto client = connect();
  auto waiting = std::async(std::launch::async,
                            [&] { return peer_error_of([&] { client->get("never", Deadline::never()); }); });
  auto second = std::async(std::launch::async,
                           [&] { return peer_error_of([&] { client->get("neither", Deadline::never()); }); });
  std::this_thread::sleep_for(milliseconds(30));
  const auto begin = std::chrono::steady_clock::now();
  server_->stop();
  EXPECT_THAT(waiting.get(), AllOf(HasSubstr("'never'"), HasSubstr("lost"),
                                   HasSubstr("127.0.0.1:" + std::to_string(port_))));
  EXPECT_THAT(second.get(), HasSubstr("'neither'"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(5));
  EXPECT_THAT(peer_error_of([&] { client->set("k", "v", soon()); }), HasSubstr("'k'"));
}

TEST_F(ServerTest, KilledServerProcessIsPeerErrorWithinASecond) {
  Listener listener = listen_on("127.0.0.1", 0, soon());
  const std::uint16_t port = listener.port();
  const pid_t child = serve_in_child(std::move(listener), 256);
  StoreClient client(endpoint_of(port), client_options(), soon());
  auto waiting =
      std::async(std::launch::async, [&] { return peer_error_of([&] { client.get("never", soon()); }); });
  std::this_thread::sleep_for(milliseconds(30));
  const auto begin = std::chrono::steady_clock::now();
  ::kill(child, SIGKILL);
  EXPECT_THAT(waiting.get(), HasSubstr("lost"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(5));
  ::waitpid(child, nullptr, 0);
}

TEST_F(ServerTest, ManyClientsMeetInABarrier) {
  start();
  constexpr int kClients = 64;
  std::vector<std::thread> threads;
  std::atomic<int> through{0};
  for (int rank = 0; rank < kClients; ++rank) {
    threads.emplace_back([&, rank] {
      const auto client = connect(rank);
      client->set("addr/" + std::to_string(rank), std::to_string(rank), soon());
      if (client->add("arrived", 1, soon()) == kClients) client->set("all", "", soon());
      client->wait({"all"}, soon());
      const int neighbour = (rank + 1) % kClients;
      if (client->get("addr/" + std::to_string(neighbour), soon()) == std::to_string(neighbour)) ++through;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(through, kClients);
  EXPECT_TRUE(server_->wait_until_clients(0, soon()));
  EXPECT_EQ(server_->stats().authenticated, static_cast<std::uint64_t>(kClients));
  EXPECT_EQ(server_->stats().refused, 0U);
}

TEST_F(ServerTest, WaitUntilClientsReportsThoseThatStay) {
  start();
  const auto one = connect();
  auto two = connect();
  EXPECT_FALSE(server_->wait_until_clients(1, Deadline::after(milliseconds(20))));
  two.reset();
  EXPECT_TRUE(server_->wait_until_clients(1, soon()));
}

TEST_F(ServerTest, StrangersDoNotDisturbTheJob) {
  StoreServerOptions options = server_options();
  options.max_strangers = 100;
  start(options);
  const auto before = connect();
  std::vector<UniqueFd> idle, garbage;
  for (int i = 0; i < 300; ++i) idle.push_back(stranger(port_));
  for (int i = 0; i < 100; ++i) {
    garbage.push_back(stranger(port_));
    const std::string noise =
        i % 3 == 0 ? "GET / HTTP/1.1\r\n\r\n" : std::string(5000, static_cast<char>(i * 7 + 1));
    ::send(garbage.back().get(), noise.data(), noise.size(), MSG_NOSIGNAL);
  }
  const UniqueFd half_hello = stranger(port_);
  ::send(half_hello.get(), "\x50", 1, MSG_NOSIGNAL);

  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) {
    const auto client = connect(i);
    EXPECT_EQ(client->add("n", 1, soon()), i + 1);
  }
  EXPECT_EQ(before->get("n", soon()), "20");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(15));
  EXPECT_TRUE(reaches(&StoreServerStats::evicted, 150)) << "idle ones make room";
  EXPECT_EQ(server_->stats().authenticated, 21U);
  EXPECT_EQ(server_->stats().timed_out, 0U) << "nobody had to wait for a timeout";
}

TEST_F(ServerTest, GarbageIsDroppedAtOnceAndTheSilentInTime) {
  StoreServerOptions options = server_options();
  options.handshake_timeout = milliseconds(200);
  start(options);
  const UniqueFd silent = stranger(port_), slow = stranger(port_), rude = stranger(port_);
  ::send(slow.get(), "\x50", 1, MSG_NOSIGNAL);
  ::send(rude.get(), "\xff\xff\xff\xff", 4, MSG_NOSIGNAL);
  EXPECT_TRUE(closed_within(rude.get(), seconds(10)));
  EXPECT_TRUE(closed_within(silent.get(), seconds(10)));
  EXPECT_TRUE(closed_within(slow.get(), seconds(10)));
  EXPECT_EQ(server_->stats().timed_out, 2U);
  EXPECT_EQ(server_->stats().refused, 1U);
}

// A client made by hand, for what an honest one never does: authenticated, the rest is up to the test.
struct RawClient {
  StoreConnection connection;

  static RawClient connect(std::uint16_t port) {
    return {connect_to_store(endpoint_of(port), client_options(1), soon())};
  }
  void ask(const wire::Request& request) {
    connection.append(wire::encode(request));
    connection.flush();
  }
  // Reads `count` answers and adds up the bytes of their values.
  std::size_t read_values(std::size_t count) {
    std::size_t bytes = 0;
    while (count > 0) {
      pollfd waited{connection.fd(),
                    static_cast<short>(connection.unsent_bytes() > 0 ? POLLIN | POLLOUT : POLLIN), 0};
      ::poll(&waited, 1, 20000);
      connection.flush();
      connection.receive();
      for (; const auto payload = connection.next(); --count)
        bytes += wire::decode_response(*payload)->value.size();
      if (connection.over()) throw Error(connection.why());
    }
    return bytes;
  }
};

TEST_F(ServerTest, AReplayedFrameAfterTheHandshakeDropsThatClientOnly) {
  start();
  const auto good = connect();
  net::SecureStream bad =
      *net::Connector(resolve(endpoint_of(port_), soon()), token().bytes(), {"job", "worker", 1}).run(soon());
  const std::string request = wire::encode({.keys = {"k"}, .value = "v", .expected = {}});
  net::SealedFrame frame = bad.seal(0, std::as_bytes(std::span(request)));
  for (int i = 0; i < 2; ++i) {
    iovec pieces[] = {{frame.header.data(), frame.header.size()},
                      {const_cast<std::byte*>(frame.body.data()), frame.body.size()},
                      {frame.mac.data(), frame.mac_bytes}};
    EXPECT_EQ(bad.send(pieces), frame.bytes());
  }
  EXPECT_TRUE(closed_within(bad.fd(), seconds(10)));
  EXPECT_EQ(good->get("k", soon()), "v");
  EXPECT_EQ(server_->stats().refused, 1U);
}

TEST_F(ServerTest, AClientThatAsksWithoutReadingIsPausedAndLosesNothing) {
  StoreServerOptions options = server_options();
  options.max_unsent_bytes = 4U << 20;
  start(options);
  const auto good = connect();
  good->set("big", std::string(1 << 20, 'x'), soon());
  RawClient greedy = RawClient::connect(port_);
  constexpr std::size_t kAsked = 100;
  for (std::uint64_t id = 1; id <= kAsked; ++id)
    greedy.ask({.op = wire::Op::get, .id = id, .keys = {"big"}, .value = {}, .expected = {}});
  EXPECT_EQ(good->get("big", soon()).size(), std::size_t{1} << 20) << "others are served meanwhile";
  EXPECT_EQ(greedy.read_values(kAsked), kAsked << 20);
  EXPECT_EQ(server_->stats().refused, 0U);
}

TEST_F(ServerTest, AClientThatDoesNotReadWhatItWaitedForIsDroppedAtTheLimit) {
  StoreServerOptions options = server_options();
  options.max_unsent_bytes = 4U << 20;
  start(options);
  const auto good = connect();
  RawClient greedy = RawClient::connect(port_);
  for (std::uint64_t id = 1; id <= 100; ++id)
    greedy.ask({.op = wire::Op::get, .id = id, .keys = {"big"}, .value = {}, .expected = {}});
  greedy.ask({.keys = {"asked"}, .value = {}, .expected = {}});
  good->wait({"asked"}, soon());
  good->set("big", std::string(1 << 20, 'x'), soon());
  EXPECT_TRUE(reaches(&StoreServerStats::refused, 1));
  EXPECT_EQ(good->get("big", soon()).size(), std::size_t{1} << 20);
}

TEST_F(ServerTest, StopIsPromptAndIdempotent) {
  start();
  const auto client = connect();
  const UniqueFd idle = stranger(port_);
  const auto begin = std::chrono::steady_clock::now();
  server_->stop();
  server_->stop();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(2));
  EXPECT_TRUE(closed_within(idle.get(), seconds(10)));
}

// The server's process may have few descriptors; this one, as many as it needs.
class StarvedServerTest : public ServerTest {
 protected:
  void SetUp() override {
    Listener listener = listen_on("127.0.0.1", 0, soon());
    port_ = listener.port();
    child_ = serve_in_child(std::move(listener), 40);
  }
  void TearDown() override {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }

 private:
  pid_t child_ = 0;
};

TEST_F(StarvedServerTest, StrangersGiveUpTheirDescriptors) {
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 200; ++i) strangers.push_back(stranger(port_));
  EXPECT_EQ(connect()->add("n", 1, soon()), 1);
}

TEST_F(StarvedServerTest, WithoutDescriptorsItServesWhomItHasAndAcceptsAgainLater) {
  std::vector<std::unique_ptr<StoreClient>> clients;
  const auto fill = [&] {
    while (clients.size() < 100)
      clients.push_back(std::make_unique<StoreClient>(endpoint_of(port_), client_options(),
                                                      Deadline::after(milliseconds(500))));
  };
  EXPECT_THAT(peer_error_of(fill), HasSubstr("has not answered"));
  ASSERT_GT(clients.size(), 5U);
  EXPECT_EQ(clients.front()->add("n", 1, soon()), 1);
  clients.pop_back();
  EXPECT_EQ(connect()->add("n", 1, soon()), 2);
}

// Not a test but the figures in docs/decisions/003-store.md:
// unit_cluster_store --gtest_also_run_disabled_tests --gtest_filter='*Measure*'
TEST_F(ServerTest, DISABLED_MeasureJoinsAndRoundTrips) {
  start();
  const auto milliseconds_of = [](auto call) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  };
  const auto join_times = [&](int count) {
    std::vector<double> times;
    for (int i = 0; i < count; ++i)
      times.push_back(milliseconds_of([&] { connect(i)->add("n", 1, soon()); }));
    std::sort(times.begin(), times.end());
    return times;
  };
  std::printf("first join of the process, libcrypto's start included: %.2f ms\n", join_times(1)[0]);
  const auto quiet = join_times(1000);
  std::printf("join and first call: median %.3f ms, p99 %.3f ms\n", quiet[500], quiet[990]);
  const auto client = connect();
  const double calls = milliseconds_of([&] {
    for (int i = 0; i < 10000; ++i) client->add("n", 1, soon());
  });
  std::printf("call: %.1f us\n", calls / 10);
  const double barrier = milliseconds_of([&] {
    std::vector<std::unique_ptr<StoreClient>> clients;
    for (int i = 0; i < 400; ++i) clients.push_back(connect(i));
    std::vector<std::thread> threads;
    for (auto& each : clients) threads.emplace_back([&] { each->get("go", soon()); });
    client->set("go", "", soon());
    for (auto& thread : threads) thread.join();
  });
  std::printf("400 clients join and are woken by one key: %.1f ms\n", barrier);

  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 5000; ++i) strangers.push_back(stranger(port_));
  const auto beset = join_times(200);
  std::printf("join among 5000 idle strangers: median %.3f ms, p99 %.3f ms\n", beset[100], beset[198]);
}

}  // namespace
}  // namespace dtrain
