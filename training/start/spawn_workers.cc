#include "training/start/spawn_workers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/base/environment.h"
#include "runtime/base/error.h"
#include "training/start/peers.h"

namespace dtrain {
namespace {

// Ended by zeros, each.
std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

std::ptrdiff_t threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

}  // namespace

void spawn_workers(int count) {
  if (count < 1) throw UsageError(fmt::format("spawn_workers: expected at least 1 worker, got {}", count));
  if (find_placement(current_environment()).system != JobSystem::none) return;
  if (const auto running = threads(); running > 1)
    throw UsageError(fmt::format(
        "spawn_workers: expected the process to have one thread, found {}; call it first in main()",
        running));
  std::vector<std::string> command = own_arguments();
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  command.erase(command.begin(), command.begin() + (command.empty() ? 0 : 1));
  command.insert(command.begin(), {"dtrain-launch", fmt::format("--nproc_per_node={}", count), program});
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp("dtrain-launch", argv.data());
  const int in_path = errno;
  ::execv(DTRAIN_INSTALLED_LAUNCHER, argv.data());
  throw UsageError(fmt::format(
      "spawn_workers: expected dtrain-launch in PATH ({}) or at {} ({}); install it, add its folder to PATH, "
      "or start this program with dtrain-launch --nproc_per_node={}",
      std::strerror(in_path), DTRAIN_INSTALLED_LAUNCHER, std::strerror(errno), count));
}

}  // namespace dtrain
