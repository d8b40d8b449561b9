#include "launcher/system/processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <sstream>
#include <unordered_map>

#include "runtime/base/fd.h"

namespace dtrain::launcher {
namespace {

struct DirectoryCloser {
  void operator()(DIR* directory) const noexcept { ::closedir(directory); }
};

std::string read_file_at(int folder, const std::string& path) {
  const UniqueFd file(::openat(folder, path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  char chunk[4096];
  ssize_t got = 0;
  while (file && (got = ::read(file.get(), chunk, sizeof chunk)) > 0)
    text.append(chunk, static_cast<std::size_t>(got));
  return text;
}

// Behind "name:\t" in /proc/<pid>/status; empty where there is no such line.
std::string line_of_status(const std::string& status, const char* name) {
  const std::string start = std::string("\n") + name + ":";
  const std::size_t at = status.find(start);
  if (at == std::string::npos) return "";
  const std::size_t from = at + start.size();
  return status.substr(from, status.find('\n', from) - from);
}

std::vector<pid_t> numbers_in(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<pid_t>(words), {}};
}

// One number for each PID namespace, from that of /proc to that of the process.
std::optional<pid_t> number_at(const std::string& status, const char* name, std::size_t level) {
  const std::vector<pid_t> numbers = numbers_in(line_of_status(status, name));
  return level < numbers.size() ? std::optional(numbers[level]) : std::nullopt;
}

// /proc, and how many PID namespaces further in than that we are.
struct View {
  UniqueFd folder;
  std::size_t level = 0;
};

std::optional<View> open_view() {
  View view;
  view.folder.reset(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!view.folder) return std::nullopt;
  const std::string status = read_file_at(view.folder.get(), "self/status");
  const std::vector<pid_t> numbers = numbers_in(line_of_status(status, "NSpid"));
  if (!numbers.empty()) {
    view.level = numbers.size() - 1;
    return numbers.back() == ::getpid() ? std::optional(std::move(view)) : std::nullopt;
  }
  // Kernels before 4.1, and those that know one namespace only.
  if (numbers_in(line_of_status(status, "Pid")) != std::vector{::getpid()}) return std::nullopt;
  return view;
}

// /proc/<pid>/stat: "pid (name) state ppid pgrp session …", where the name may hold anything; the 22nd value
// is the start. Zombies count: one whose first thread has ended may have others that run.
std::optional<Process> read_stat(int proc, const char* shown_as) {
  const std::string text = read_file_at(proc, std::string(shown_as) + "/stat");
  const std::size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return std::nullopt;
  Process process;
  unsigned long long started = 0;
  if (std::sscanf(text.c_str() + close + 1,
                  " %c %d %d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                  &process.state, &process.parent, &process.group, &process.session, &started) != 5)
    return std::nullopt;
  process.pid = process.shown_as = std::atoi(shown_as);
  process.started = started;
  process.name = text.substr(open + 1, close - open - 1);
  return process;
}

// In our numbers, but for the parent.
std::optional<Process> read_process(const View& view, const char* shown_as) {
  auto process = read_stat(view.folder.get(), shown_as);
  if (!process || view.level == 0) return process;
  const std::string status = read_file_at(view.folder.get(), std::string(shown_as) + "/status");
  const auto pid = number_at(status, "NSpid", view.level);
  if (!pid) return std::nullopt;  // of an outer namespace, or gone
  process->pid = *pid;
  process->group = number_at(status, "NSpgid", view.level).value_or(0);
  process->session = number_at(status, "NSsid", view.level).value_or(0);
  return process;
}

void translate_parents(std::vector<Process>& all) {
  std::unordered_map<pid_t, pid_t> own;
  for (const Process& process : all) own.emplace(process.shown_as, process.pid);
  for (Process& process : all) {
    const auto parent = own.find(process.parent);
    process.parent = parent == own.end() ? 0 : parent->second;
  }
}

bool is_shell(const View& view, const Process& process) {
  static constexpr const char* kShells[] = {"sh",  "bash", "dash", "ash", "busybox", "zsh",
                                            "ksh", "mksh", "fish", "csh", "tcsh"};
  char path[PATH_MAX];
  const std::string link = std::to_string(process.shown_as) + "/exe";
  const ssize_t length = ::readlinkat(view.folder.get(), link.c_str(), path, sizeof path);
  if (length <= 0) return false;
  const std::string whole(path, static_cast<std::size_t>(length));
  const std::string name = whole.substr(whole.rfind('/') + 1);
  return std::find(std::begin(kShells), std::end(kShells), name) != std::end(kShells);
}

// A thread that waits for signals (sigwait) has them unblocked meanwhile: the call's first argument is where
// the set of them is.
bool waits_for_signal(const View& view, const Process& process, int signal) {
  const std::string text = read_file_at(view.folder.get(), std::to_string(process.shown_as) + "/syscall");
  long call = -1;
  unsigned long address = 0;
  if (std::sscanf(text.c_str(), "%ld 0x%lx", &call, &address) != 2 || call != SYS_rt_sigtimedwait)
    return false;
  std::uint64_t set = 0;
  iovec here{&set, sizeof set}, there{reinterpret_cast<void*>(address), sizeof set};
  const bool known =
      ::process_vm_readv(process.pid, &here, 1, &there, 1, 0) == static_cast<ssize_t>(sizeof set);
  return !known || (set >> (signal - 1) & 1) != 0;
}

bool has_signal(const std::string& status, const char* set, int signal) {
  const std::uint64_t signals = std::strtoull(line_of_status(status, set).c_str(), nullptr, 16);
  return (signals >> (signal - 1) & 1) != 0;
}

}  // namespace

std::vector<Process> all_processes() {
  std::vector<Process> all;
  const auto view = open_view();
  if (!view) return all;
  const std::unique_ptr<DIR, DirectoryCloser> proc(::opendir("/proc"));
  if (!proc) return all;
  while (const dirent* entry = ::readdir(proc.get())) {
    if (!std::isdigit(static_cast<unsigned char>(entry->d_name[0]))) continue;
    if (auto process = read_process(*view, entry->d_name)) all.push_back(std::move(*process));
  }
  if (view->level > 0) translate_parents(all);
  return all;
}

std::optional<Process> find_process(pid_t pid) {
  const auto view = open_view();
  if (!view) return std::nullopt;
  if (view->level == 0) return read_process(*view, std::to_string(pid).c_str());
  for (Process& process : all_processes()) {
    if (process.pid == pid) return std::move(process);
  }
  return std::nullopt;
}

std::string folder_of(pid_t pid) {
  const auto process = find_process(pid);
  return process ? "/proc/" + std::to_string(process->shown_as) : "";
}

pid_t number_of(const std::string& folder) {
  const auto view = open_view();
  if (!view) return 0;
  if (view->level == 0) return std::atoi(folder.substr(folder.rfind('/') + 1).c_str());
  return number_at(read_file_at(view->folder.get(), folder + "/status"), "NSpid", view->level).value_or(0);
}

std::optional<Process> look_again(const Process& process) {
  const auto view = open_view();
  if (!view) return std::nullopt;
  auto now = read_process(*view, std::to_string(process.shown_as).c_str());
  return now && now->started == process.started ? now : std::nullopt;
}

bool has_ended_child(pid_t parent) {
  const std::vector<Process> all = all_processes();
  return std::any_of(all.begin(), all.end(), [parent](const Process& process) {
    return process.parent == parent && process.state == 'Z';
  });
}

std::string text_of(const Process& process) {
  std::string text =
      "process " + std::to_string(process.pid) + " (" + process.name + ", state " + process.state;
  struct stat status {};
  if (::stat(("/proc/" + std::to_string(process.shown_as)).c_str(), &status) == 0 &&
      status.st_uid != ::geteuid())
    text += ", of user " + std::to_string(status.st_uid);
  return text + ")";
}

Manner manner_of(const Process& process, int signal) {
  const auto view = open_view();
  if (!view) return Manner::dies;
  const std::string status = read_file_at(view->folder.get(), std::to_string(process.shown_as) + "/status");
  if (has_signal(status, "SigIgn", signal)) return Manner::ignores;
  const bool shell = is_shell(*view, process);
  // No shell reads a signal that it blocks: it is starting a command (dash blocks all of them around vfork),
  // and would die of the signal when it has.
  if (!shell && has_signal(status, "SigBlk", signal)) return Manner::handles;
  if (waits_for_signal(*view, process, signal)) return Manner::handles;
  if (!has_signal(status, "SigCgt", signal)) return Manner::dies;
  return shell ? Manner::waits : Manner::handles;
}

std::optional<std::string> proc_trouble() {
  if (open_view()) return std::nullopt;
  return "/proc is not that of this PID namespace";
}

}  // namespace dtrain::launcher
