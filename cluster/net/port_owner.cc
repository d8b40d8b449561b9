// Finds the process behind a listening port by way of /proc: socket inode from net/tcp, then the descriptor
// that holds it. Only used to word an error, so every failure here means "not known".
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cluster/net/endpoint.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kListening = "0A";

// The inodes of sockets that listen on `port`, from one of the kernel's tables.
void collect_inodes(const char* table, std::uint16_t port, std::vector<std::string>& inodes) {
  std::ifstream in(table);
  const std::string suffix = fmt::format(":{:04X}", port);
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, queues, timer, retries, user, timeout, inode;
    fields >> slot >> local >> remote >> state >> queues >> timer >> retries >> user >> timeout >> inode;
    if (state == kListening && local.ends_with(suffix)) inodes.push_back("socket:[" + inode + "]");
  }
}

bool holds_one_of(const fs::path& process, const std::vector<std::string>& inodes) {
  std::error_code error;
  for (fs::directory_iterator entry(process / "fd", error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code unreadable;
    const std::string target = fs::read_symlink(entry->path(), unreadable).string();
    for (const std::string& inode : inodes) {
      if (target == inode) return true;
    }
  }
  return false;
}

}  // namespace

std::string port_owner(const SocketAddress& address) {
  std::vector<std::string> inodes;
  collect_inodes("/proc/net/tcp", address.port(), inodes);
  collect_inodes("/proc/net/tcp6", address.port(), inodes);
  if (inodes.empty()) return {};
  std::error_code error;
  for (fs::directory_iterator entry("/proc", error), end; !error && entry != end; entry.increment(error)) {
    const std::string pid = entry->path().filename().string();
    if (pid.empty() || std::isdigit(static_cast<unsigned char>(pid.front())) == 0) continue;
    if (!holds_one_of(entry->path(), inodes)) continue;
    std::string name;
    std::ifstream comm(entry->path() / "comm");
    std::getline(comm, name);
    return fmt::format("pid {} ({})", pid, name);
  }
  return {};
}

}  // namespace dtrain
