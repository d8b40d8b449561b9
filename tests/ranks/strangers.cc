#include "tests/ranks/strangers.h"

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <deque>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "cluster/net/handshake.h"
#include "runtime/base/check.h"
#include "runtime/base/fd.h"

namespace dtrain::test {
namespace {

namespace fs = std::filesystem;

// How long an attack's connection stays open, for its victim to answer or not.
constexpr std::size_t kMostLingering = 200;

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  std::error_code error;
  for (const auto& task : fs::directory_iterator("/proc/" + std::to_string(parent) + "/task", error)) {
    std::ifstream in(task.path() / "children");
    for (pid_t child = 0; in >> child;) children.push_back(child);
  }
  return children;
}

void add_sockets_of(pid_t pid, std::set<std::string>& inodes) {
  std::error_code error;
  for (const auto& fd : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd", error)) {
    const std::string target = fs::read_symlink(fd.path(), error).string();
    if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
  }
}

std::vector<std::uint16_t> listening_ports(pid_t parent) {
  std::set<std::string> inodes;
  for (const pid_t child : children_of(parent)) {
    if (child != ::getpid()) add_sockets_of(child, inodes);
  }
  std::vector<std::uint16_t> ports;
  std::ifstream table("/proc/net/tcp");
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, queues, timer, retries, user, timeout, inode;
    fields >> slot >> local >> remote >> state >> queues >> timer >> retries >> user >> timeout >> inode;
    if (state == "0A" && inodes.contains(inode))
      ports.push_back(static_cast<std::uint16_t>(std::stoul(local.substr(local.find(':') + 1), nullptr, 16)));
  }
  return ports;
}

class Crowd {
 public:
  Crowd(Strangers::Counts& counts, std::size_t idle, pid_t parent)
      : counts_(counts), most_idle_(idle), parent_(parent) {}

  [[noreturn]] void run() {
    while (true) {
      const auto ports = listening_ports(parent_);
      counts_.open_ports = static_cast<int>(ports.size());
      for (const std::uint16_t port : ports) {
        for (int i = 0; i < 10; ++i) strike(port);
        for (int i = 0; i < 25 && idle_.size() < most_idle_; ++i) idle_.push_back(connect(port));
      }
      answer_challenges();
      drop_closed();
      counts_.idle = static_cast<long>(idle_.size());
      while (lingering_.size() > kMostLingering) lingering_.pop_front();
      ::usleep(500);
    }
  }

 private:
  static UniqueFd connect(std::uint16_t port) {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    static_cast<void>(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to));
    return fd;
  }

  std::string random_bytes(std::size_t count) {
    std::string bytes(count, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_());
    return bytes;
  }

  // A greeting that only the secret is missing from.
  std::string hello() {
    const int from = 1 + static_cast<int>(random_() % 4);
    return net::Initiator("", {"rank 0", "rank", from}).hello();
  }

  void strike(std::uint16_t port) {
    UniqueFd fd = connect(port);
    ++counts_.strikes;
    const auto say = [&](const std::string& bytes) {
      static_cast<void>(::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
    };
    switch (turn_++ % 8) {
      case 0:
        return;  // a scan
      case 1:
        say("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        break;
      case 2:
        say(random_bytes(600));
        break;
      case 3:
        say(hello().substr(0, random_() % 40));  // half a greeting
        break;
      case 4:
        say(hello() + random_bytes(32));  // as a recording would
        break;
      case 5:
        say(std::string("\xff\xff\xff\xff", 4) + random_bytes(100));
        break;
      case 6:
        say(std::string("\x10\x00\x00\x00", 4) + random_bytes(8) + random_bytes(32));  // a frame
        break;
      default:
        say(hello());
        greeted_.push_back(std::move(fd));
        return;
    }
    lingering_.push_back(std::move(fd));
  }

  // With proofs that are none.
  void answer_challenges() {
    for (UniqueFd& fd : greeted_) {
      const std::string proof = random_bytes(32);
      static_cast<void>(::send(fd.get(), proof.data(), proof.size(), MSG_NOSIGNAL));
      lingering_.push_back(std::move(fd));
    }
    greeted_.clear();
  }

  void drop_closed() {
    for (std::size_t i = idle_.size(); i > 0; --i) {
      UniqueFd fd = std::move(idle_.front());
      idle_.pop_front();
      pollfd closed{fd.get(), POLLRDHUP, 0};
      if (fd && ::poll(&closed, 1, 0) == 0) idle_.push_back(std::move(fd));
    }
  }

  Strangers::Counts& counts_;
  const std::size_t most_idle_;
  const pid_t parent_;
  std::deque<UniqueFd> idle_, lingering_;
  std::vector<UniqueFd> greeted_;
  std::mt19937 random_{1};
  unsigned turn_ = 0;
};

}  // namespace

Strangers::Strangers(int idle) {
  void* memory = ::mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw SystemError("mmap", errno);
  counts_ = new (memory) Counts;
  const pid_t parent = ::getpid();
  pid_ = static_cast<pid_t>(check(Sys{::fork()}, "fork"));
  if (pid_ != 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  try {
    Crowd(*counts_, static_cast<std::size_t>(idle), parent).run();
  } catch (...) {
    ::_exit(1);
  }
}

Strangers::~Strangers() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  ::munmap(counts_, sizeof(Counts));
}

}  // namespace dtrain::test
