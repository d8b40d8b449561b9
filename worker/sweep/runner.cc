#include "worker/sweep/runner.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

#include "runtime/base/error.h"
#include "worker/sweep/results.h"

namespace dtrain::sweep {
namespace {

namespace fs = std::filesystem;

constexpr std::streamoff kLogTail = 64 * 1024;
constexpr std::size_t kLongestCause = 400;
constexpr int kRequeue = static_cast<int>(ExitCode::requeue);

int exit_code_of(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

std::string tail_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return {};
  const std::streamoff size = in.tellg();
  in.seekg(std::max<std::streamoff>(0, size - kLogTail));
  return {std::istreambuf_iterator<char>(in), {}};
}

// "accuracy 0.8912, loss 0.3012 (12.3 s)"
std::string outcome_text(const RunResult& result) {
  std::string text;
  for (const auto& [name, value] : result.values)
    text += fmt::format("{}{} {:.4f}", text.empty() ? "" : ", ", name, value);
  return text;
}

}  // namespace

std::string cause_in(const std::string& log) {
  std::istringstream lines(log);
  std::string of_worker, of_launcher;
  for (std::string line; std::getline(lines, line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (!line.starts_with("dtrain-launch: ")) {
      of_worker = line;
    } else if (of_launcher.empty() || line.find(" failed first: ") != std::string::npos) {
      of_launcher = line;
    }
  }
  return (of_worker.empty() ? of_launcher : of_worker).substr(0, kLongestCause);
}

Runner::Runner(const SweepFolder& folder, const std::vector<Run>& runs, std::vector<Place> places,
               const RunnerOptions& options, Show& show)
    : folder_(folder),
      runs_(runs),
      places_(std::move(places)),
      options_(options),
      show_(show),
      active_(places_.size()) {}

SweepEnd Runner::work() {
  take_stock();
  check_metric();
  start_more();
  while (jobs_.running() > 0) {
    jobs_.wait(show_.redraw_ms());
    take_signals();
    take_ends();
    start_more();
    show_.draw();
  }
  result_.unfinished = runs_.size() - done_;
  return result_;
}

void Runner::take_stock() {
  std::size_t begun = 0;
  std::vector<const Run*> fresh;
  for (const Run& run : runs_) {
    std::error_code none;
    if (const auto end = folder_.end_of(run)) {
      ++done_;
      result_.failed += end->finished ? 0 : 1;
    } else if (fs::exists(folder_.run(run.name), none)) {  // these first: they are nearer to their end
      waiting_.push_back(&run);
      ++begun;
    } else {
      fresh.push_back(&run);
    }
  }
  waiting_.insert(waiting_.end(), fresh.begin(), fresh.end());
  show_.done(done_);
  if (done_ + begun > 0)
    show_.say(fmt::format("resuming the sweep in {}: {} of {} runs have ended, {} were interrupted",
                          folder_.path().string(), done_, runs_.size(), begun));
}

void Runner::start_more() {
  for (std::size_t place = 0; place < places_.size() && !waiting_.empty() && !stopping_; ++place) {
    if (active_[place].run != nullptr) continue;
    const Run& run = *waiting_.front();
    waiting_.pop_front();
    start(static_cast<int>(place), run);
  }
}

void Runner::start(int place, const Run& run) {
  active_[static_cast<std::size_t>(place)] = {&run, steady_clock().now()};
  jobs_.start(place, job_of(place, run));
  show_.begin(place, run.name, folder_.run(run.name));
  show_.say(fmt::format("{}: started", run.name));
}

Job Runner::job_of(int place, const Run& run) const {
  const Place& where = places_[static_cast<std::size_t>(place)];
  Job job{{options_.launcher, "--standalone", fmt::format("--nproc-per-node={}", options_.workers),
           fmt::format("--max-restarts={}", options_.max_restarts)},
          options_.environment,
          where,
          folder_.log(run.name)};
  job.command.insert(job.command.end(), options_.program.begin(), options_.program.end());
  const std::vector<std::string> arguments = arguments_of(run);
  job.command.insert(job.command.end(), arguments.begin(), arguments.end());
  job.command.push_back("--run-dir=" + folder_.run(run.name).string());
  job.environment.erase("DTRAIN_RESUME");  // a run that exists is always resumed
  if (!where.gpus.empty()) {
    std::string list;
    for (const std::string& gpu : where.gpus) list += (list.empty() ? "" : ",") + gpu;
    job.environment["CUDA_VISIBLE_DEVICES"] = list;
  }
  return job;
}

void Runner::take_ends() {
  while (const auto ended = jobs_.take_end()) end(ended->id, ended->status);
}

void Runner::end(int place, int status) {
  Active& active = active_[static_cast<std::size_t>(place)];
  const Run& run = *active.run;
  const double seconds = std::chrono::duration<double>(steady_clock().now() - active.since).count();
  active.run = nullptr;
  show_.end(place);
  if (goes_on(status)) return show_.say(fmt::format("{}: interrupted; resumes with the sweep", run.name));
  const RunEnd end = judge(run, status, seconds);
  folder_.note_end(run, end);
  ++done_;
  show_.done(done_);
  if (end.finished) {
    const std::string values = outcome_text(read_results(folder_, {run}).front());
    show_.say(
        fmt::format("{}: finished: {}{}{:.1f} s", run.name, values, values.empty() ? "" : ", ", seconds));
    return check_metric();
  }
  ++result_.failed;
  show_.say(fmt::format("{}: failed: {}", run.name, end.cause));
  if (options_.stop_on_failure) stop(SIGTERM);
}

// More runs would give it no more than this one.
void Runner::check_metric() {
  result_.wrong_metric = wrong_metric(options_.metric, read_results(folder_, runs_));
  if (!result_.wrong_metric.empty()) stop(SIGTERM);
}

// What ended because somebody ended it, with its checkpoint or without, is not at its end.
bool Runner::goes_on(int status) const {
  const int code = exit_code_of(status);
  if (code == kRequeue || code == 128 + SIGKILL) return true;
  return stopping_ && (code == 128 + SIGTERM || code == 128 + SIGINT || code == 128 + SIGHUP);
}

RunEnd Runner::judge(const Run& run, int status, double seconds) const {
  RunEnd end{.finished = false, .exit_code = exit_code_of(status), .cause = {}, .seconds = seconds};
  end.finished = end.exit_code == 0 && is_finished(folder_.run(run.name));
  if (end.finished) return end;
  end.cause = end.exit_code == 0 ? "it ended without a summary.json in --run-dir that says that it finished"
                                 : cause_in(tail_of(folder_.log(run.name)));
  if (end.cause.empty()) end.cause = fmt::format("exit code {}", end.exit_code);
  return end;
}

void Runner::take_signals() {
  while (const auto signal = jobs_.take_signal()) {
    if (!result_.signal) show_.say("stopping: each run writes a checkpoint; once more to stop at once");
    result_.signal = signal;
    stop(*signal);
  }
}

void Runner::stop(int signal) {
  stopping_ = true;
  waiting_.clear();
  jobs_.signal_all(signal);
}

}  // namespace dtrain::sweep
