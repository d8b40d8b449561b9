#include "launcher/watch/stacks.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <thread>

#include "launcher/system/helper.h"
#include "launcher/system/processes.h"
#include "launcher/watch/process_facts.h"

namespace dtrain::launcher {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxFrames = 12, kMaxStackBytes = 240;
constexpr Duration kPatience = std::chrono::seconds(1);  // until a continued process runs

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream all(text);
  for (std::string line; std::getline(all, line);) {
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

/// What threads do, each with the names of those that do it, in the order of the first ones.
class Activities {
 public:
  void add(const std::string& thread, const std::string& activity) {
    const auto found =
        std::find_if(all_.begin(), all_.end(), [&](const Activity& other) { return other.text == activity; });
    if (found == all_.end())
      all_.push_back({thread, activity, 1});
    else
      ++found->threads;
  }
  bool empty() const { return all_.empty(); }

  std::vector<std::string> lines(std::size_t at_most) const {
    std::vector<std::string> lines;
    for (const Activity& activity : all_) {
      if (lines.size() + 1 == at_most && all_.size() > at_most) {
        lines.push_back("… and " + std::to_string(all_.size() - lines.size()) + " more");
        break;
      }
      const std::string others =
          activity.threads > 1 ? " and " + std::to_string(activity.threads - 1) + " like it" : "";
      lines.push_back(activity.first + others + ": " + activity.text);
    }
    return lines;
  }

 private:
  struct Activity {
    std::string first, text;
    int threads;
  };
  std::vector<Activity> all_;
};

/// Innermost first: "a < b < c".
class Stack {
 public:
  void add(const std::string& function) {
    if (++frames_ > kMaxFrames || text_.size() + function.size() > kMaxStackBytes) {
      cut_ = true;
    } else if (!cut_) {
      text_ += (text_.empty() ? "" : " < ") + function;
    }
  }
  std::string text() const { return cut_ ? text_ + " < …" : text_; }

 private:
  std::string text_;
  std::size_t frames_ = 0;
  bool cut_ = false;
};

bool runs_python(pid_t pid) {
  std::error_code unknown;
  const fs::path program = fs::read_symlink(folder_of(pid) + "/exe", unknown);
  return program.filename().string().starts_with("python");
}

/// The tool's stderr among its output. Exit code 127: there is no such tool.
HelperResult run_tool(const std::vector<std::string>& words, const Deadline& deadline) {
  // gdb would ask a server on the network for what it does not find here.
  std::vector<std::string> argv{"/bin/sh", "-c", "unset DEBUGINFOD_URLS; exec \"$@\" 2>&1", "sh"};
  argv.insert(argv.end(), words.begin(), words.end());
  return run_helper(argv, deadline);
}

constexpr int kNoSuchTool = 127;

/// "#1  0x00007f in poll (fds=…) at poll.c:3", as gdb has it: "poll". py-spy's "    wait (threading.py:320)"
/// is kept.
std::string function_of(std::string_view frame) {
  const auto skip = [&frame](std::string_view what) {
    frame.remove_prefix(std::min(frame.find_first_not_of(what), frame.size()));
  };
  skip(" ");
  if (!frame.starts_with('#')) return std::string(frame);
  skip("#0123456789");
  skip(" ");
  if (const std::size_t in = frame.find(" in "); frame.starts_with("0x") && in != std::string_view::npos)
    frame.remove_prefix(in + 4);
  return std::string(frame.substr(0, frame.find(" (")));
}

/// The kernel's number and the name from gdb's "Thread 3 (Thread 0x7f (LWP 42) "loader"):", else all of it.
std::string name_of_thread(const std::string& line) {
  constexpr std::string_view kNumber = "(LWP ";
  const std::size_t number = line.find(kNumber);
  std::string name = line.substr(0, line.find_last_not_of(": ") + 1);
  if (number != std::string::npos) {
    const std::size_t from = number + kNumber.size(), quote = line.find('"', from);
    name.replace(7, std::string::npos, line, from, line.find(')', from) - from);
    if (quote != std::string::npos)
      name.append(" (").append(line, quote + 1, line.find('"', quote + 1) - quote - 1).append(")");
  }
  name.front() = 't';
  return name;
}

/// A tool's output: lines that start with "Thread ", each followed by that thread's frames.
Activities stacks_in(const std::vector<std::string>& lines) {
  Activities stacks;
  std::string thread;
  Stack stack;
  const auto add = [&] {
    if (!thread.empty()) stacks.add(thread, stack.text());
    stack = {};
  };
  for (const std::string& line : lines) {
    if (!line.starts_with("Thread ")) {
      stack.add(function_of(line));
      continue;
    }
    add();
    thread = name_of_thread(line);
  }
  add();
  return stacks;
}

bool is_stopped(pid_t pid) {
  const std::vector<ThreadFacts> threads = threads_of(pid, kMostThreads);
  return std::any_of(threads.begin(), threads.end(),
                     [](const ThreadFacts& thread) { return thread.state == 'T' || thread.state == 't'; });
}

/// A tool that is ended while it attaches leaves its SIGSTOP behind. False when the process stays stopped.
bool let_run(pid_t pid) {
  for (const Deadline end = Deadline::after(kPatience);;) {
    ::kill(pid, SIGCONT);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (!is_stopped(pid)) return true;
    if (end.expired()) return false;
  }
}

/// One tool's stacks of `pid`, at most `max_lines` lines; empty when it could not tell, and then `notes` may
/// have a line more.
std::vector<std::string> lines_by(const std::vector<std::string>& words, pid_t pid, const Deadline& deadline,
                                  std::size_t max_lines, std::vector<std::string>& notes) {
  const std::string& tool = words.front();
  const HelperResult result = run_tool(words, deadline);
  if (result.exit_code == kNoSuchTool && !result.timed_out) {
    notes.push_back(tool == "gdb" ? "for its stacks install gdb"
                                  : "for Python's own functions install " + tool);
    return {};
  }
  if (!let_run(pid))
    notes.push_back(tool + " has left it stopped: continue it by kill -CONT " + std::to_string(pid));
  const std::vector<std::string> lines = lines_of(result.out);
  const Activities stacks = stacks_in(lines);
  if (result.exit_code == 0 && !stacks.empty()) {
    std::vector<std::string> kept = stacks.lines(max_lines - 1);
    kept.insert(kept.begin(), "stacks by " + tool + ":");
    return kept;
  }
  notes.push_back(tool + ": " +
                  (result.timed_out ? "no answer in time"
                   : lines.empty()  ? "says nothing"
                                    : lines.back()));
  return {};
}

/// The kernel's side of each thread: what it waits in, and for root the functions it is in.
Activities threads_by_kernel(pid_t pid) {
  Activities threads;
  for (const ThreadFacts& thread : threads_of(pid, kMostThreads)) {
    Stack stack;
    std::ifstream frames(thread.folder + "/stack");
    for (std::string line; std::getline(frames, line);) {
      const std::size_t name = line.find("] ");  // behind an address that is hidden
      const std::string function = name == std::string::npos ? line : line.substr(name + 2);
      stack.add(function.substr(0, function.find('+')));
    }
    const std::string functions = stack.text();
    threads.add("thread " + std::to_string(thread.id) + " (" + thread.name + ")",
                text_of(thread) + (functions.empty() ? "" : ", in " + functions));
  }
  return threads;
}

}  // namespace

std::vector<std::string> stacks_of(pid_t pid, const Deadline& deadline, std::size_t max_lines) {
  // First, and not disturbed by any tool.
  std::vector<std::string> lines = threads_by_kernel(pid).lines(std::max<std::size_t>(1, max_lines / 3));
  lines.insert(lines.begin(), "threads as the kernel sees them:");
  if (is_stopped(pid)) {
    lines.push_back("it is stopped: continue it by kill -CONT " + std::to_string(pid));
    return lines;
  }
  const std::string number = std::to_string(pid);
  if (folder_of(pid) != "/proc/" + number) {
    lines.push_back(
        "no stacks: /proc is that of an outer PID namespace, where py-spy and gdb would take another "
        "process for it; mount one (unshare --pid --fork --mount-proc)");
    return lines;
  }
  const std::size_t left = max_lines - std::min(max_lines - 2, lines.size());
  std::vector<std::string> notes, stacks;
  if (runs_python(pid)) stacks = lines_by({"py-spy", "dump", "--pid", number}, pid, deadline, left, notes);
  if (stacks.empty()) {
    stacks = lines_by(
        {"gdb", "-nx", "-batch", "-iex", "set auto-load off", "-iex", "set print frame-arguments none", "-p",
         number, "-ex", "thread apply all -ascending backtrace 40"},
        pid, deadline, left, notes);
  }
  lines.insert(lines.end(), notes.begin(), notes.end());
  lines.insert(lines.end(), stacks.begin(), stacks.end());
  if (lines.size() > max_lines) lines.resize(max_lines);
  return lines;
}

}  // namespace dtrain::launcher
