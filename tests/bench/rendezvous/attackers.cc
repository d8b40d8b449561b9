// One loop: keep the idle crowd full, send this millisecond's share of the rest, close what is done.
#include "tests/bench/rendezvous/attackers.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <atomic>
#include <deque>
#include <random>
#include <string>

#include "cluster/net/handshake.h"
#include "runtime/base/check.h"
#include "tests/bench/rendezvous/server_process.h"

namespace dtrain::bench {
namespace {

using std::chrono::milliseconds;

// How long an attack's connection stays open, for the server to answer or not.
constexpr Duration kLinger = milliseconds(200);
constexpr int kIdlePerTurn = 4;

}  // namespace

struct Attackers::Shared {
  std::atomic<bool> on{false};
  std::atomic<long> idle_opened{0}, garbage{0}, wrong_tokens{0}, replays{0}, lengths{0}, idle_now{0};
};

namespace {

class Attack {
 public:
  Attack(const rendezvous::MemberOptions& target, const AttackPlan& plan)
      : plan_(plan), address_(resolve(target.server, Deadline::after(std::chrono::seconds(5))).front()) {
    // What a listener on the wire would have kept of a launcher's coming: hello, proof, first frame.
    net::Initiator initiator(target.token->bytes(), {target.job, "launcher", 1});
    hello_ = initiator.hello();
    const MacKey key(target.token->bytes());
    const net::Admit anyone = [](const net::Identity&) { return std::string(); };
    net::Responder responder(key, Protection::authenticate, anyone);
    std::string challenge, proof, verdict;
    responder.feed(hello_, challenge);
    initiator.feed(challenge, proof);
    recording_ = hello_ + proof;
    responder.feed(proof, verdict);
    initiator.feed(verdict, proof);
    const net::SealedFrame frame =
        initiator.stream(UniqueFd())
            .seal(0, std::as_bytes(std::span(std::string_view("set rdzv/node_event"))));
    for (const auto bytes :
         {std::span<const std::byte>(frame.header), frame.body, std::span<const std::byte>(frame.mac)})
      recording_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  template <class Shared>
  [[noreturn]] void run(Shared& shared) {
    TimePoint last = steady_clock().now();
    double owed = 0, idle_owed = 0;
    while (true) {
      const TimePoint now = steady_clock().now();
      if (!shared.on) {
        lingering_.clear();
        owed = idle_owed = 0;
      } else {
        owed += std::chrono::duration<double>(now - last).count() * plan_.per_second;
        for (; owed >= 1; owed -= 1) strike(shared);
        // The crowd comes at once; those it loses come again.
        const bool complete = shared.idle_opened >= plan_.idle;
        idle_owed += complete ? std::chrono::duration<double>(now - last).count() * plan_.idle_per_second
                              : kIdlePerTurn;
        for (; idle_owed >= 1; idle_owed -= 1) {
          if (static_cast<int>(idle_.size()) >= plan_.idle) continue;
          if (UniqueFd fd = connect()) idle_.push_back(std::move(fd));
          ++shared.idle_opened;
        }
        drop_closed();
        while (!lingering_.empty() && lingering_.front().until <= now) lingering_.pop_front();
      }
      shared.idle_now = static_cast<long>(idle_.size());
      last = now;
      ::usleep(1000);
    }
  }

 private:
  UniqueFd connect() {
    UniqueFd fd(::socket(address_.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd || ::connect(fd.get(), address_.get(), address_.length()) != 0) return {};
    return fd;
  }

  std::string random_bytes(std::size_t most) {
    std::string bytes(random_() % most + 1, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_());
    return bytes;
  }

  template <class Shared>
  void strike(Shared& shared) {
    switch (turn_++ % 8) {
      case 0:
        ++shared.wrong_tokens;
        return send(hello_ + random_bytes(1).append(31, 'x'));
      case 1:
        ++shared.replays;
        return send(recording_);
      case 2:
        ++shared.lengths;
        return send(std::string("\x00\x00\x00\x00\x00\x00\x00\x80", 8) + hello_);
      case 3:
        ++shared.lengths;
        return send("\xff\xff" + std::string(7, '\xff') + "\x7f" + random_bytes(4000));
      case 4:
        ++shared.garbage;
        return send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
      case 5:
        ++shared.garbage;
        return send(hello_.substr(0, random_() % hello_.size()));
      default:
        ++shared.garbage;
        return send(random_bytes(600));
    }
  }

  void send(const std::string& bytes) {
    UniqueFd fd = connect();
    if (!fd) return;
    [[maybe_unused]] const ssize_t sent =
        ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    lingering_.push_back({std::move(fd), steady_clock().now() + kLinger});
  }

  // A few of the idle ones a turn.
  void drop_closed() {
    for (int i = 0; i < 16 && !idle_.empty(); ++i) {
      char byte;
      UniqueFd fd = std::move(idle_.front());
      idle_.pop_front();
      const ssize_t got = ::recv(fd.get(), &byte, 1, MSG_DONTWAIT);
      if (got < 0 && errno == EAGAIN) idle_.push_back(std::move(fd));
    }
  }

  struct Lingering {
    UniqueFd fd;
    TimePoint until{};
  };
  AttackPlan plan_;
  SocketAddress address_;
  std::string hello_, recording_;
  std::mt19937 random_{1};
  std::deque<UniqueFd> idle_;
  std::deque<Lingering> lingering_;
  unsigned turn_ = 0;
};

}  // namespace

Attackers::Attackers(const rendezvous::MemberOptions& target, const AttackPlan& plan) {
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw SystemError("mmap", errno);
  shared_ = new (memory) Shared;
  pid_ = static_cast<pid_t>(check(Sys{::fork()}, "fork"));
  if (pid_ != 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::setpriority(PRIO_PROCESS, 0, 19);
  raise_open_files();
  Attack(target, plan).run(*shared_);
}

Attackers::~Attackers() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  ::munmap(shared_, sizeof(Shared));
}

void Attackers::attack(bool on) noexcept { shared_->on = on; }

Attackers::Counts Attackers::counts() const noexcept {
  return {shared_->idle_opened, shared_->garbage, shared_->wrong_tokens,
          shared_->replays,     shared_->lengths, shared_->idle_now};
}

}  // namespace dtrain::bench
