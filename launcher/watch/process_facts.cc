#include "launcher/watch/process_facts.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <unordered_map>

#include "launcher/system/descendants.h"

namespace dtrain::launcher {
namespace {

namespace fs = std::filesystem;

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string first_word(const std::string& text) { return text.substr(0, text.find_first_of(" \n")); }

/// The values of /proc/…/stat behind the name, which may hold anything: the state is the first.
std::vector<std::string> stat_values(const std::string& folder) {
  const std::string text = read_text(folder + "/stat");
  const std::size_t close = text.rfind(')');
  if (close == std::string::npos) return {};
  std::istringstream rest(text.substr(close + 1));
  std::vector<std::string> values;
  for (std::string value; rest >> value;) values.push_back(value);
  return values;
}

/// Empty when the process has gone. Its waited-for children are in it: work does not get less when one ends.
std::optional<double> cpu_seconds(const std::string& folder) {
  constexpr std::size_t kUser = 11, kLast = 14;  // utime, stime, cutime, cstime
  const auto values = stat_values(folder);
  if (values.size() <= kLast) return std::nullopt;
  double ticks = 0;
  for (std::size_t i = kUser; i <= kLast; ++i) ticks += std::strtod(values[i].c_str(), nullptr);
  return ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

/// 0 where it may not be read.
std::uint64_t io_bytes(const std::string& folder) {
  std::ifstream file(folder + "/io");
  std::uint64_t total = 0, value = 0;
  std::string name;
  while (file >> name >> value) {
    if (name == "rchar:" || name == "wchar:") total += value;
  }
  return total;
}

/// 0 where it may not be read.
std::uint64_t resident_bytes(const std::string& folder) {
  std::ifstream file(folder + "/statm");
  std::uint64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

struct CallName {
  long number;
  const char* name;
};

// What programs wait in.
constexpr CallName kCalls[] = {
    {SYS_futex, "futex"},         {SYS_read, "read"},
    {SYS_write, "write"},         {SYS_readv, "readv"},
    {SYS_writev, "writev"},       {SYS_pread64, "pread"},
    {SYS_pwrite64, "pwrite"},     {SYS_openat, "openat"},
    {SYS_fsync, "fsync"},         {SYS_fdatasync, "fdatasync"},
    {SYS_ppoll, "ppoll"},         {SYS_pselect6, "pselect"},
    {SYS_epoll_pwait, "epoll"},   {SYS_recvfrom, "recvfrom"},
    {SYS_recvmsg, "recvmsg"},     {SYS_sendto, "sendto"},
    {SYS_sendmsg, "sendmsg"},     {SYS_accept, "accept"},
    {SYS_accept4, "accept"},      {SYS_connect, "connect"},
    {SYS_wait4, "wait4"},         {SYS_waitid, "waitid"},
    {SYS_nanosleep, "nanosleep"}, {SYS_clock_nanosleep, "clock_nanosleep"},
    {SYS_flock, "flock"},         {SYS_fcntl, "fcntl"},
    {SYS_ioctl, "ioctl"},         {SYS_rt_sigtimedwait, "sigtimedwait"},
    {SYS_munmap, "munmap"},       {SYS_rt_sigsuspend, "sigsuspend"},
#ifdef SYS_poll
    {SYS_poll, "poll"},           {SYS_select, "select"},
    {SYS_epoll_wait, "epoll"},    {SYS_open, "open"},
    {SYS_pause, "pause"},
#endif
};

/// `text` is /proc/…/syscall: "running", "-1 …" outside of any call, or a number and its arguments.
std::string call_in(const std::string& text) {
  const std::string word = first_word(text);
  if (word.empty() || word == "running" || word == "-1") return "";
  const long number = std::strtol(word.c_str(), nullptr, 10);
  const auto* found = std::find_if(std::begin(kCalls), std::end(kCalls),
                                   [number](const CallName& call) { return call.number == number; });
  return found != std::end(kCalls) ? found->name : "call " + word;
}

ThreadFacts thread_at(const fs::path& folder) {
  ThreadFacts thread;
  thread.id = number_of(folder);
  thread.folder = folder;
  thread.name = read_text(folder / "comm");
  while (thread.name.ends_with('\n')) thread.name.pop_back();
  const auto values = stat_values(folder);
  thread.state = values.empty() ? '?' : values[0][0];
  thread.system_call = call_in(read_text(folder / "syscall"));
  thread.wait_channel = first_word(read_text(folder / "wchan"));
  if (thread.wait_channel == "0") thread.wait_channel.clear();
  return thread;
}

const char* words_for(char state) {
  switch (state) {
    case 'R':
      return "computing";
    case 'S':
      return "sleeping";
    case 'D':
      return "stuck in the kernel (state D)";
    case 'T':
    case 't':
      return "stopped by a signal or a debugger (state T)";
    case 'Z':
      return "ended, not waited for (state Z)";
    default:
      return "in an unknown state";
  }
}

}  // namespace

std::vector<std::optional<Usage>> usage_of(const std::vector<pid_t>& roots) {
  std::unordered_map<pid_t, std::size_t> owner;  // of each process, in the order parents before children
  std::vector<std::optional<Usage>> usage(roots.size());
  for (std::size_t i = 0; i < roots.size(); ++i) {
    if (roots[i] > 0) owner.emplace(roots[i], i);
  }
  const auto add = [&](const Process& process, std::size_t worker) {
    const std::string folder = "/proc/" + std::to_string(process.shown_as);
    const auto cpu = cpu_seconds(folder);
    if (!cpu) return;
    if (!usage[worker]) usage[worker] = Usage{};
    usage[worker]->cpu_seconds += *cpu;
    usage[worker]->io_bytes += io_bytes(folder);
    usage[worker]->resident_bytes += resident_bytes(folder);
  };
  for (const Process& process : descendants()) {
    auto found = owner.find(process.pid);
    if (found == owner.end()) {
      const auto parent = owner.find(process.parent);
      if (parent == owner.end()) continue;
      found = owner.emplace(process.pid, parent->second).first;
    }
    add(process, found->second);
  }
  return usage;
}

std::vector<ThreadFacts> threads_of(pid_t pid, std::size_t limit) {
  std::vector<fs::path> folders;
  std::error_code gone;
  for (fs::directory_iterator at(folder_of(pid) + "/task", gone), end; !gone && at != end;
       at.increment(gone)) {
    folders.push_back(at->path());
  }
  std::sort(folders.begin(), folders.end(), [](const fs::path& a, const fs::path& b) {
    return std::strtol(a.filename().c_str(), nullptr, 10) < std::strtol(b.filename().c_str(), nullptr, 10);
  });
  folders.resize(std::min(folders.size(), limit));
  std::vector<ThreadFacts> threads;
  for (const fs::path& folder : folders) threads.push_back(thread_at(folder));
  return threads;
}

pid_t working_process(pid_t pid) {
  std::unordered_map<pid_t, std::vector<pid_t>> children;
  for (const Process& process : descendants()) {
    if (process.state != 'Z') children[process.parent].push_back(process.pid);
  }
  while (children[pid].size() == 1) {
    const std::vector<ThreadFacts> threads = threads_of(pid, 2);
    const bool waits = threads.size() == 1 &&
                       (threads[0].system_call.starts_with("wait") || threads[0].wait_channel == "do_wait");
    if (!waits) break;
    pid = children[pid].front();
  }
  return pid;
}

std::string text_of(const ThreadFacts& thread) {
  std::string text = words_for(thread.state);
  if (!thread.system_call.empty()) text += " in " + thread.system_call;
  if (!thread.wait_channel.empty()) text += " (" + thread.wait_channel + ")";
  return text;
}

}  // namespace dtrain::launcher
