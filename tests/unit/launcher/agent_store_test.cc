// The store on a real port: clients that are slow, silent or mad hold up no other.
#include "launcher/agent_store/agent_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <vector>

#include "cluster/net/endpoint.h"
#include "runtime/base/check.h"

namespace dtrain::launcher {
namespace {

constexpr auto kPatience = std::chrono::seconds(20);

std::string number(std::uint64_t value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::string sized(const std::string& text) { return number(text.size()) + text; }

const std::string kHello("\0\xce\xf7\x85\x3c", 5);
const std::string kSet(1, 1), kGet(1, 3), kWait(1, 6), kCount(1, 7);

class Client {
 public:
  explicit Client(std::uint16_t port, const std::string& hello = kHello)
      : fd_(static_cast<int>(check(Sys{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)}, "socket"))) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    check(Sys{::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address)}, "connect");
    send(hello);
  }
  void send(const std::string& bytes) {
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t sent = ::send(fd_.get(), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
      if (sent <= 0) return;  // cut off
      done += static_cast<std::size_t>(sent);
    }
  }
  /// So many bytes; fewer when the connection ends or nothing comes.
  std::string receive(std::size_t size) {
    std::string bytes;
    while (bytes.size() < size) {
      pollfd ready{fd_.get(), POLLIN, 0};
      if (::poll(&ready, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())) <= 0) break;
      std::string chunk(size - bytes.size(), '\0');
      const ssize_t got = ::recv(fd_.get(), chunk.data(), chunk.size(), 0);
      if (got <= 0) break;
      bytes.append(chunk, 0, static_cast<std::size_t>(got));
    }
    return bytes;
  }
  std::string ask(const std::string& bytes, std::size_t size) {
    send(bytes);
    return receive(size);
  }
  bool ended() {
    char byte = 0;
    pollfd ready{fd_.get(), POLLIN, 0};
    return ::poll(&ready, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())) > 0 &&
           ::recv(fd_.get(), &byte, 1, 0) <= 0;
  }

 private:
  UniqueFd fd_;
};

class AgentStoreTest : public ::testing::Test {
 protected:
  static AgentStore make(const TorchStore::Limits& limits = {}) {
    Listener listener = listen_on("127.0.0.1", 0, Deadline::after(kPatience));
    return {std::move(listener.fd), listener.port(), limits};
  }
};

TEST_F(AgentStoreTest, ServesManyClients) {
  AgentStore store = make();
  Client waits(store.port());
  waits.send(kWait + number(1) + sized("last"));
  for (int i = 0; i < 50; ++i) {
    Client client(store.port());
    client.send(kSet + sized("key" + std::to_string(i)) + sized(std::string(1000, 'v')));
    EXPECT_EQ(client.ask(kGet + sized("key" + std::to_string(i)), 1008).size(), 1008u);
  }
  Client(store.port()).send(kSet + sized("last") + sized("1"));
  EXPECT_EQ(waits.receive(1), std::string(1, '\0'));
  EXPECT_EQ(waits.ask(kCount, 8), number(51));
  store.clear();
  EXPECT_EQ(waits.ask(kCount, 8), number(0));
}

TEST_F(AgentStoreTest, StrangersAreCutOffAndSilentOnesHoldUpNobody) {
  AgentStore store = make();
  Client silent(store.port(), ""), half(store.port(), kHello.substr(0, 3));
  Client http(store.port(), "GET / HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(http.ended());
  Client huge(store.port());
  huge.send(kSet + number(~std::uint64_t{0}));
  EXPECT_TRUE(huge.ended());
  half.send(kHello.substr(3));
  EXPECT_EQ(half.ask(kCount, 8), number(0)) << "it was only slow";
}

// Its replies wait; the store takes no more questions from it, and has ears for the others.
TEST_F(AgentStoreTest, AClientThatDoesNotTakeItsRepliesIsNotServedMeanwhile) {
  AgentStore store = make();
  const std::string value(std::size_t{4} << 20, 'v');
  Client reads_late(store.port());
  ASSERT_EQ(reads_late.ask(kSet + sized("k") + sized(value) + kCount, 8), number(1));
  constexpr int kQuestions = 16;  // for 64 MiB, more than sockets hold
  for (int i = 0; i < kQuestions; ++i) reads_late.send(kGet + sized("k"));
  Client other(store.port());
  EXPECT_EQ(other.ask(kCount, 8), number(1));
  for (int i = 0; i < kQuestions; ++i)
    ASSERT_EQ(reads_late.receive(8 + value.size()), sized(value)) << "answer " << i;
}

TEST_F(AgentStoreTest, WhoAsksForTooMuchIsCutOff) {
  AgentStore store = make({.kept_bytes = 1 << 20});
  Client greedy(store.port());
  for (int i = 0; i < 3; ++i)
    greedy.send(kSet + sized(std::to_string(i)) + sized(std::string(std::size_t{512} << 10, 'v')));
  EXPECT_TRUE(greedy.ended());
  EXPECT_EQ(Client(store.port()).ask(kCount, 8), number(1));
}

TEST_F(AgentStoreTest, EndsWithOpenConnections) {
  auto store = std::unique_ptr<AgentStore>(new AgentStore(make()));
  Client waits(store->port());
  waits.send(kWait + number(1) + sized("never"));
  store.reset();
  EXPECT_TRUE(waits.ended());
}

}  // namespace
}  // namespace dtrain::launcher
