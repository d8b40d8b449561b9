#include "launcher/watch/stacks.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "launcher/system/helper.h"
#include "launcher/watch/process_facts.h"

namespace dtrain::launcher {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxLines = 200;
constexpr std::size_t kMaxThreads = 64;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream all(text);
  for (std::string line; std::getline(all, line);) {
    if (line.empty()) continue;
    if (lines.size() == kMaxLines) {
      lines.push_back("… and more");
      return lines;
    }
    lines.push_back(line);
  }
  return lines;
}

bool runs_python(pid_t pid) {
  std::error_code unknown;
  const fs::path program = fs::read_symlink("/proc/" + std::to_string(pid) + "/exe", unknown);
  return program.filename().string().starts_with("python");
}

/// The tool's stderr among its output. Exit code 127: there is no such tool.
HelperResult run_tool(const std::vector<std::string>& words, const Deadline& deadline) {
  std::vector<std::string> argv{"/bin/sh", "-c", "exec \"$@\" 2>&1", "sh"};
  argv.insert(argv.end(), words.begin(), words.end());
  return run_helper(argv, deadline);
}

constexpr int kNoSuchTool = 127;

/// What `words` print about a process from the first line on that starts with `start`, under a heading; empty
/// when they could not tell, and then `failures` has a line more.
std::vector<std::string> lines_by(const std::vector<std::string>& words, std::string_view start,
                                  const Deadline& deadline, std::vector<std::string>& failures) {
  const HelperResult result = run_tool(words, deadline);
  if (result.exit_code == kNoSuchTool && !result.timed_out) return {};
  std::vector<std::string> lines = lines_of(result.out);
  const auto first = std::find_if(lines.begin(), lines.end(),
                                  [start](const std::string& line) { return line.starts_with(start); });
  if (result.exit_code == 0 && first != lines.end()) {
    std::vector<std::string> kept{"stacks by " + words.front() + ":"};
    kept.insert(kept.end(), first, lines.end());
    return kept;
  }
  failures.push_back(words.front() + ": " +
                     (result.timed_out ? "no answer in time"
                      : lines.empty()  ? "says nothing"
                                       : lines.back()));
  return {};
}

/// The kernel's side of each thread: for root the functions it is in, for others what it waits in.
std::vector<std::string> lines_by_kernel(pid_t pid) {
  std::vector<std::string> lines{"threads as the kernel sees them (for stacks install gdb):"};
  const std::string folder = "/proc/" + std::to_string(pid) + "/task/";
  for (const ThreadFacts& thread : threads_of(pid, kMaxThreads)) {
    lines.push_back("thread " + std::to_string(thread.id) + " (" + thread.name + ") " + text_of(thread));
    std::ifstream stack(folder + std::to_string(thread.id) + "/stack");
    for (std::string line; std::getline(stack, line);) {
      const std::size_t name = line.find("] ");  // behind an address that is hidden
      lines.push_back("  " + (name == std::string::npos ? line : line.substr(name + 2)));
    }
  }
  return lines;
}

}  // namespace

std::vector<std::string> stacks_of(pid_t pid, const Deadline& deadline) {
  const std::string number = std::to_string(pid);
  std::vector<std::string> failures, lines;
  if (runs_python(pid)) {
    lines = lines_by({"py-spy", "dump", "--pid", number}, "", deadline, failures);
    if (lines.empty() && failures.empty()) failures.push_back("for Python's own functions install py-spy");
  }
  if (lines.empty()) {
    lines = lines_by({"gdb", "-nx", "-batch", "-iex", "set auto-load off", "-p", number, "-ex",
                      "thread apply all backtrace 40"},
                     "Thread ", deadline, failures);
  }
  if (lines.empty()) lines = lines_by_kernel(pid);
  lines.insert(lines.begin(), failures.begin(), failures.end());
  return lines;
}

}  // namespace dtrain::launcher
