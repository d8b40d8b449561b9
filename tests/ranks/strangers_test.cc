// Ranks that come together and work while strangers are at every port from the start to the end, and what
// somebody on the wire sees of their messages. DTRAIN_FAULT_ROUNDS=N: N rounds, and 5,000 idle strangers.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>

#include "runtime/base/fd.h"
#include "tests/ranks/strangers.h"
#include "tests/ranks/world.h"

namespace dtrain::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const Strangers* strangers = nullptr;

int rounds() {
  const char* text = std::getenv("DTRAIN_FAULT_ROUNDS");
  return text == nullptr ? 4 : std::atoi(text);
}

int idle() { return std::getenv("DTRAIN_FAULT_ROUNDS") == nullptr ? 400 : 5000; }

// The other ranks listen already: waits until strangers have been at all of their ports.
bool let_strangers_go_first(int listening) {
  const Deadline deadline = Deadline::after(seconds(20));
  const auto wait_for = [&](auto there) {
    while (!there() && !deadline.expired()) std::this_thread::sleep_for(milliseconds(1));
    return there();
  };
  // The store's port, and one of each rank below.
  if (!wait_for([&] { return strangers->counts().open_ports > listening; })) return false;
  const long before = strangers->counts().strikes;
  return wait_for([&] { return strangers->counts().strikes >= before + 30 * listening; });
}

// Descriptors that strangers could use up, where this rank does not serve the store as well.
void keep_few_descriptors(int rank) {
  if (rank == 0) return;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = 128;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

std::string work_among_strangers(Rank& self) {
  keep_few_descriptors(self.rank());
  Bootstrap bootstrap = self.bootstrap;
  NullLog log;
  double slowest = 0;
  for (int round = 0; round < rounds(); ++round) {
    self.communicator->barrier("round")->wait(Deadline::after(seconds(20)));
    const bool last = self.rank() == self.size() - 1;
    if (last && !let_strangers_go_first(self.size() - 1)) return "the strangers did not come";
    const TimePoint start = steady_clock().now();
    bootstrap.name = fmt::format("round {}", round);
    const auto part = make_communicator(Backend::tcp, bootstrap, log);
    if (last)
      slowest = std::max(slowest, std::chrono::duration<double>(steady_clock().now() - start).count());
    std::vector<std::int32_t> values(300'000);
    std::iota(values.begin(), values.end(), round);
    part->all_reduce({values.data(), values.size(), DType::i32}, ReduceOp::sum, "sum")
        ->wait(Deadline::after(seconds(20)));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const int expected = self.size() * (static_cast<int>(i) + round);
      if (values[i] != expected) return fmt::format("round {}: element {} is {}", round, i, values[i]);
    }
  }
  // Milliseconds on an idle machine; one that does other things too must pass.
  return slowest < 5 ? "ok" : fmt::format("connecting took {:.1f} s", slowest);
}

TEST(AmongStrangers, NoRankIsLostAndNoByteIsTheirs) {
  const Strangers crowd(idle());
  strangers = &crowd;
  for (const auto& verdict : run_world("tcp", 4, "among_strangers")) EXPECT_EQ(verdict, "ok");
  EXPECT_GT(crowd.counts().strikes, 30L * 3 * rounds());
  strangers = nullptr;
}

// --- what the wire shows
// ----------------------------------------------------------------------------------------

constexpr float kTelltale = 0x1.5a5a5ap3F;
constexpr std::size_t kRun = 8;

struct Seen {
  std::atomic<bool> looking{false};
  std::atomic<long> packets{0}, telltales{0};
};

// Everything that passes the loopback interface, until killed.
[[noreturn]] void look_at_packets(int fd, Seen& seen) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::vector<float> run(kRun, kTelltale);
  std::vector<char> packet(1 << 17);
  seen.looking = true;
  while (true) {
    const ssize_t got = ::recv(fd, packet.data(), packet.size(), 0);
    if (got <= 0) continue;
    ++seen.packets;
    if (::memmem(packet.data(), static_cast<std::size_t>(got), run.data(), kRun * sizeof(float)) != nullptr)
      ++seen.telltales;
  }
}

UniqueFd packet_socket() {
  UniqueFd fd(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL)));
  if (!fd) return fd;
  sockaddr_ll loopback{};
  loopback.sll_family = AF_PACKET;
  loopback.sll_protocol = htons(ETH_P_ALL);
  loopback.sll_ifindex = static_cast<int>(::if_nametoindex("lo"));
  const int room = 64 << 20;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&loopback), sizeof loopback) != 0) fd.reset();
  return fd;
}

std::string tell(Rank& self) {
  std::vector<float> values(100'000, self.rank() == 0 ? kTelltale : 0.0F);
  self.communicator->broadcast({values.data(), values.size(), DType::f32}, 0, "telltale")
      ->wait(Deadline::after(seconds(20)));
  return values.front() == kTelltale && values.back() == kTelltale ? "ok" : "something else came";
}

// Packets with the tensor's values in them, while two ranks broadcast it.
long telltales_of(const std::string& scenario) {
  UniqueFd fd = packet_socket();
  if (!fd) return -1;
  void* memory = ::mmap(nullptr, sizeof(Seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Seen& seen = *new (memory) Seen;
  const pid_t looker = ::fork();
  if (looker == 0) look_at_packets(fd.get(), seen);
  while (!seen.looking) std::this_thread::sleep_for(milliseconds(1));
  for (const auto& verdict : run_world("tcp", 2, scenario)) EXPECT_EQ(verdict, "ok");
  std::this_thread::sleep_for(milliseconds(100));
  const long packets = seen.packets, telltales = seen.telltales;
  ::kill(looker, SIGKILL);
  ::waitpid(looker, nullptr, 0);
  ::munmap(memory, sizeof(Seen));
  EXPECT_GT(packets, 10);
  return telltales;
}

TEST(OnTheWire, EncryptedMessagesShowNothing) {
  const long plain = telltales_of("tell");
  if (plain < 0) GTEST_SKIP() << "capturing packets needs root (CAP_NET_RAW)";
  EXPECT_GT(plain, 0) << "what is only authenticated can be read, or the capture shows nothing at all";
  EXPECT_EQ(telltales_of("tell_encrypted"), 0);
}

}  // namespace
}  // namespace dtrain::test

int main(int argc, char** argv) {
  using namespace dtrain::test;
  WorldOptions options;
  options.token = dtrain::make_token();
  options.run_timeout = std::chrono::seconds(60 + 2 * rounds());
  register_scenario("among_strangers", work_among_strangers, options);
  register_scenario("tell", tell, options);
  options.protection = dtrain::Protection::encrypt;
  register_scenario("tell_encrypted", tell, options);
  return run_tests_or_scenario(argc, argv);
}
