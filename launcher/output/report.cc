// Words for a failure, and the places where its cause can be read.
#include "launcher/output/report.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "launcher/output/lines.h"

namespace dtrain::launcher {
namespace {

std::string cause(const FailedWorker& failed) {
  if (failed.exec_error != 0)
    return "cannot start " + failed.program + ": " + std::strerror(failed.exec_error);
  if (!WIFSIGNALED(failed.status)) return "exit code " + std::to_string(WEXITSTATUS(failed.status));
  const int signal = WTERMSIG(failed.status);
  std::string text = "killed by " + signal_name(signal);
  if (signal >= SIGRTMIN) return text;
  text += " (signal " + std::to_string(signal) + ", " + std::string(::strsignal(signal)) + ")";
  if (WCOREDUMP(failed.status)) text += ", core dumped";
  if (failed.out_of_memory) text = "out of memory: " + text + " while the kernel was freeing memory";
  return text;
}

std::string gibibytes(long kib) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f GiB", static_cast<double>(kib) / (1 << 20));
  return text;
}

std::optional<std::uint64_t> value_in(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string name;
  std::uint64_t value = 0;
  while (file >> name >> value) {
    if (name == key) return value;
  }
  return std::nullopt;
}

// The own group's counter; inside a container the group is often mounted as the root.
std::optional<std::uint64_t> group_kills() {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1),
                      path = line.substr(second + 1);
    const bool version1 = controllers == "memory";
    if (!version1 && !controllers.empty()) continue;
    const std::string root = version1 ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup";
    const std::string name = version1 ? "/memory.oom_control" : "/memory.events";
    for (const std::string& folder : {root + path, root}) {
      if (const auto kills = value_in(folder + name, "oom_kill")) return kills;
    }
  }
  return std::nullopt;
}

bool speaks_of_no_connection(const std::string& text, const std::string& port) {
  if (text.find("onnection refused") != std::string::npos || text.find("ECONNREFUSED") != std::string::npos)
    return true;
  const bool names_port = text.find(port) != std::string::npos;
  return names_port && (text.find("trying to connect") != std::string::npos ||
                        text.find("failed to connect") != std::string::npos);
}

// To a port that nobody has opened: rank 0 does that under us, and its agent under torchrun.
bool missed_the_store(const FailedWorker& failed) {
  const std::string port = failed.master.substr(failed.master.rfind(':') + 1);
  if (failed.master.empty()) return false;
  return speaks_of_no_connection(failed.error_text, port) ||
         std::any_of(failed.last_lines.begin(), failed.last_lines.end(),
                     [&](const std::string& line) { return speaks_of_no_connection(line, port); });
}

}  // namespace

std::string failure_line(const FailedWorker& failed) {
  std::string text = failed.server ? "parameter server " + std::to_string(*failed.server) + " ("
                                   : "rank " + std::to_string(failed.rank) + " (";
  if (failed.node_rank) text += "node_rank " + std::to_string(*failed.node_rank) + ", ";
  text += "host " + failed.host;
  if (!failed.server) text += ", local rank " + std::to_string(failed.local_rank);
  if (failed.pid > 0) text += ", pid " + std::to_string(failed.pid);
  return text + ") failed first: " + cause(failed);
}

Failure failure_of(const FailedWorker& failed) {
  return {Failure::Kind::worker,       failed.node_rank.value_or(0), failed.host,           failed.rank,
          exit_code_of(failed.status), failed.consequence,           failure_report(failed)};
}

int exit_code_of(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

std::vector<std::string> failure_report(const FailedWorker& failed) {
  std::vector<std::string> report{failure_line(failed)};
  if (failed.out_of_memory)
    report.push_back("its memory had grown to " + gibibytes(failed.max_rss_kib) +
                     "; give the job more, or use a smaller batch");
  if (!failed.error_text.empty()) report.push_back("its error: " + failed.error_text);
  if (!failed.last_lines.empty()) {
    report.push_back("its last lines on stderr:");
    for (const std::string& line : failed.last_lines) report.push_back("    " + line);
  }
  if (missed_the_store(failed))
    report.push_back(
        "if it looked for a store at " + failed.master +
        " (MASTER_ADDR, MASTER_PORT): rank 0 opens that port; --agent-store has the launcher serve "
        "it from the start, as torchrun does");
  if (!failed.log_file.empty()) report.push_back("its log: " + failed.log_file);
  return report;
}

std::string read_error_file(const std::string& path) {
  constexpr std::size_t kMaxText = 2048;
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error || size > (std::size_t{1} << 20)) return "";
  std::ifstream file(path, std::ios::binary);
  const nlohmann::json json = nlohmann::json::parse(file, nullptr, false);
  if (!json.is_object() || !json.contains("message")) return "";
  const nlohmann::json* message = &json["message"];
  if (message->is_object() && message->contains("message")) message = &(*message)["message"];
  if (!message->is_string()) return "";
  const std::string text = message->get<std::string>();
  return escape_controls(std::string_view(text).substr(0, std::min(text.find('\n'), kMaxText)));
}

OomKills read_oom_kills() { return {group_kills(), value_in("/proc/vmstat", "oom_kill")}; }

bool oom_since(const OomKills& before, const OomKills& after) {
  if (before.group && after.group) return *after.group > *before.group;
  return before.machine && after.machine && *after.machine > *before.machine;
}

}  // namespace dtrain::launcher
