#include "launcher/watch/hang_report.h"

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <mutex>
#include <system_error>
#include <thread>

#include "launcher/watch/nccl_status.h"
#include "launcher/watch/process_facts.h"
#include "launcher/watch/stacks.h"
#include "runtime/base/check.h"
#include "runtime/base/fd.h"

namespace dtrain::launcher {
namespace {

using std::chrono::seconds;

constexpr Duration kForAStack = seconds(10), kForAll = seconds(60), kForNccl = seconds(5);
// Half a page in all: its reader has a job that hangs.
constexpr std::size_t kMaxLines = 32, kMaxWorkers = 8, kMaxNcclLines = 8, kLeastForAStack = 6;

std::string in_seconds(Duration time) {
  return fmt::format("{:.3g}", std::chrono::duration<double>(time).count());
}

std::string headline(const HangQuestion& question) {
  if (question.asked) return "hang: what the workers here are doing:";
  std::string ranks;
  int count = 0;
  for (const HungWorker& worker : question.workers) {
    if (!worker.hangs) continue;
    ranks += (count++ == 0 ? "" : ", ") + std::to_string(worker.rank);
  }
  return fmt::format(
      "hang: rank{} {} made no progress for {} s: no CPU time, no I/O, no output. The job continues; this is "
      "what its workers here are doing:",
      count == 1 ? "" : "s", ranks + (count == 1 ? " has" : " have"), in_seconds(question.timeout));
}

/// What the first thread of the process that does its work is doing, and how many more there are.
std::string text_of_threads(pid_t worker) {
  const pid_t pid = working_process(worker);
  const std::vector<ThreadFacts> threads = threads_of(pid, kMostThreads);
  if (threads.empty()) return "its threads cannot be read";
  std::string text = pid != worker ? fmt::format("its process {} ({}): ", pid, threads.front().name) : "";
  text += text_of(threads.front());
  if (threads.size() > 1) text += fmt::format(", {} threads more", threads.size() - 1);
  return text;
}

std::string line_of(const HungWorker& worker) {
  const WorkerProgress& progress = worker.progress;
  const std::string printed = progress.since_line
                                  ? fmt::format("last output {} s ago", in_seconds(*progress.since_line))
                                  : "no output yet";
  const std::string uses =
      progress.cpu_share ? fmt::format("uses {:.2f} cores, ", *progress.cpu_share) : std::string();
  return fmt::format("hang:   rank {} (pid {}): {}, {}{}; {}", worker.rank, worker.pid,
                     worker.hangs ? fmt::format("idle for {} s", in_seconds(progress.idle)) : "running", uses,
                     printed, text_of_threads(worker.pid));
}

void add_indented(std::vector<std::string>& lines, const std::string& heading,
                  const std::vector<std::string>& more) {
  if (more.empty()) return;
  lines.push_back("hang:   " + heading + more.front());
  for (std::size_t i = 1; i < more.size(); ++i) lines.push_back("hang:     " + more[i]);
}

/// Those that hang first: the others may be waiting for them.
std::vector<HungWorker> hanging_first(std::vector<HungWorker> workers) {
  std::stable_partition(workers.begin(), workers.end(), [](const HungWorker& w) { return w.hangs; });
  return workers;
}

void add_stacks(std::vector<std::string>& lines, const std::vector<HungWorker>& workers) {
  const Deadline end = Deadline::after(kForAll);
  for (std::size_t i = 0; i < workers.size(); ++i) {
    const std::size_t left = kMaxLines - std::min(kMaxLines, lines.size());
    if (end.expired() || left < kLeastForAStack) {
      lines.push_back(fmt::format("hang:   (stacks of {} more left out)", workers.size() - i));
      return;
    }
    const std::size_t share = std::max(kLeastForAStack, left / (workers.size() - i));
    add_indented(lines, fmt::format("rank {}, ", workers[i].rank),
                 stacks_of(working_process(workers[i].pid),
                           Deadline::after(std::min(end.remaining(), kForAStack)), share));
  }
}

}  // namespace

std::vector<std::string> hang_report(const HangQuestion& question) {
  std::vector<std::string> lines{headline(question)};
  const std::vector<HungWorker> workers = hanging_first(question.workers);
  for (std::size_t i = 0; i < workers.size(); ++i) {
    if (i == kMaxWorkers) {
      lines.push_back(fmt::format("hang:   … and {} more", workers.size() - i));
      break;
    }
    lines.push_back(line_of(workers[i]));
  }
  if (!question.nccl_monitor.empty()) {
    std::vector<std::string> status = nccl_status(question.nccl_monitor, Deadline::after(kForNccl));
    if (status.size() > kMaxNcclLines) {
      status.resize(kMaxNcclLines);
      status.emplace_back("…");
    }
    add_indented(lines, "NCCL says: ", status);
  }
  if (question.stacks) add_stacks(lines, workers);
  return lines;
}

struct PendingHangReport::Shared {
  std::mutex mutex;
  std::vector<std::string> lines;  // guarded by the mutex
  UniqueFd done;

  void finish(std::vector<std::string> report) {
    {
      const std::lock_guard lock(mutex);
      lines = std::move(report);
    }
    ::eventfd_write(done.get(), 1);
  }
};

void PendingHangReport::report_to(const std::shared_ptr<Shared>& shared, const HangQuestion& question) {
  std::vector<std::string> lines;
  try {
    lines = hang_report(question);
  } catch (const std::exception& error) {
    lines = {std::string("hang: a worker makes no progress, and no report can be made: ") + error.what()};
  }
  shared->finish(std::move(lines));
}

PendingHangReport::PendingHangReport(HangQuestion question) : shared_(std::make_shared<Shared>()) {
  shared_->done.reset(static_cast<int>(check(Sys{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)}, "eventfd")));
  std::string heading = headline(question);
  try {
    std::thread(report_to, shared_, std::move(question)).detach();
  } catch (const std::system_error& error) {
    shared_->finish(
        {std::move(heading), std::string("hang:   what they are doing is not known: no thread can be "
                                         "started for it (") +
                                 error.what() + "); raise the limit: ulimit -u, pids.max of the cgroup"});
  }
}

int PendingHangReport::fd() const noexcept { return shared_->done.get(); }

std::vector<std::string> PendingHangReport::take() {
  const std::lock_guard lock(shared_->mutex);
  return std::move(shared_->lines);
}

}  // namespace dtrain::launcher
