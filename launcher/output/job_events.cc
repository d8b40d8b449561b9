// One line, one write: the queue of the file is empty nearly always.
#include "launcher/output/job_events.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/wait.h>

#include <nlohmann/json.hpp>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/base/options.h"

namespace dtrain::launcher {
namespace {

using Json = nlohmann::ordered_json;

std::string utc_now() {
  const auto now =
      std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now()).time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(now);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(static_cast<std::time_t>(seconds.count())),
                     (now - seconds).count());
}

double in_seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

/// Exit code, and the signal that killed it.
void add_status(Json& event, int status) {
  event["exit_code"] = exit_code_of(status);
  if (WIFSIGNALED(status)) event["signal"] = signal_name(WTERMSIG(status));
}

const char* name_of(Failure::Kind kind) {
  switch (kind) {
    case Failure::Kind::worker:
      return "worker";
    case Failure::Kind::launcher_lost:
      return "launcher_lost";
    case Failure::Kind::node_lost:
      return "node_lost";
    case Failure::Kind::signal:
      return "signal";
    case Failure::Kind::requeue:
      return "requeue";
    case Failure::Kind::unusable:
      return "unusable";
  }
  return "worker";
}

UniqueFd open_target(const std::string& to) {
  const auto number = parse_integer(to);
  if (!number) return open_log_file(to);
  const int fd = static_cast<int>(*number);
  const int flags = *number < 0 || *number > 1 << 20 ? -1 : ::fcntl(fd, F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
    throw UsageError(fmt::format(
        "--events: expected a file, or the number of a descriptor that is open for writing, got {}{}", to,
        flags < 0 ? ", which is not open; a file of that name is ./" + to : ", which is open for reading"));
  UniqueFd copy(static_cast<int>(check(Sys{::fcntl(fd, F_DUPFD_CLOEXEC, 3)}, "dup of --events " + to)));
  // Ours alone: a reader waits for the end of the launcher, not of what its workers leave behind.
  if (fd > 2) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return copy;
}

}  // namespace

class JobEvents::Record {
 public:
  Record(const JobEvents& of, const char* name) {
    json_["schema"] = kSchema;
    json_["event"] = name;
    json_["time"] = utc_now();
    json_["host"] = of.host_;
    if (!of.start_) return;
    json_["run_id"] = of.start_->run_id;
    json_["node_rank"] = of.node_rank_;
    json_["round"] = of.start_->round;
  }

  Json& operator*() { return json_; }
  void add_worker(const WorkerPlan& worker, pid_t pid) {
    json_["rank"] = worker.rank;
    json_["local_rank"] = worker.local_rank;
    if (worker.server) json_["server"] = *worker.server;
    json_["pid"] = pid;
  }
  std::string text() const { return json_.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

 private:
  Json json_;
};

JobEvents::JobEvents(const std::string& to, std::string host) : host_(std::move(host)) {
  if (!to.empty()) file_ = std::make_unique<LogFile>(open_target(to), "--events " + to);
}

void JobEvents::write(const Record& line) {
  // A line that was cut short ends here: the next one is whole.
  if (file_->torn()) file_->append("\n");
  file_->append(line.text());
  file_->settle(Deadline::after(kPatience));
}

void JobEvents::start(const Plan& plan, const Start& start, std::uint16_t master_port) {
  exits_.clear();
  start_ = start;
  node_rank_ = plan.share.node_rank;
  if (!on()) return;
  Record line(*this, "start");
  Json& event = *line;
  event["pid"] = ::getpid();
  event["restart"] = start.restart_count;
  event["nodes"] = plan.share.nnodes;
  event["world_size"] = plan.share.world_size;
  event["first_rank"] = plan.share.first_rank;
  event["workers"] = plan.nproc;
  if (plan.workers.size() > static_cast<std::size_t>(plan.nproc))
    event["servers"] = plan.workers.size() - static_cast<std::size_t>(plan.nproc);
  event["master"] = fmt::format("{}:{}", plan.master_addr, master_port);
  event["program"] = plan.program.argv;
  write(line);
}

void JobEvents::worker_start(const WorkerPlan& worker, pid_t pid) {
  exits_.erase(worker.rank);
  if (!on()) return;
  Record line(*this, "worker_start");
  line.add_worker(worker, pid);
  write(line);
}

void JobEvents::ready(Duration after) {
  if (!on()) return;
  Record line(*this, "ready");
  (*line)["seconds"] = in_seconds(after);
  write(line);
}

void JobEvents::worker_exit(const WorkerPlan& worker, pid_t pid, int status, long max_rss_kib,
                            const std::string& log_file) {
  exits_[worker.rank] = {worker.local_rank, pid, status, log_file};
  if (!on()) return;
  Record line(*this, "worker_exit");
  line.add_worker(worker, pid);
  add_status(*line, status);
  (*line)["max_rss_bytes"] = std::int64_t{max_rss_kib} * 1024;
  if (!log_file.empty()) (*line)["log_file"] = log_file;
  write(line);
}

void JobEvents::straggler(const WorkerPlan& worker, pid_t pid, const Slowness& slowness) {
  if (!on()) return;
  const bool begins = slowness.phase != StragglerPhase::none;
  Record line(*this, begins ? "straggler" : "straggler_recovered");
  line.add_worker(worker, pid);
  (*line)["device"] = device_of(worker);
  if (begins) {
    (*line)["phase"] = dtrain::name_of(slowness.phase);
    (*line)["factor"] = slowness.factor;
  }
  write(line);
}

void JobEvents::signal(int number) {
  if (!on()) return;
  Record line(*this, "signal");
  (*line)["signal"] = signal_name(number);
  write(line);
}

void JobEvents::failure(const Failure& failure) {
  if (!on()) return;
  Record line(*this, "failure");
  Json& event = *line;
  event["kind"] = name_of(failure.kind);
  // Where it happened, which may be another node than the one that tells.
  event["failed_host"] = failure.host.empty() ? host_ : failure.host;
  event["exit_code"] = failure.exit_code;
  if (failure.rank >= 0) event["rank"] = failure.rank;
  const auto here = exits_.find(failure.rank);
  if (failure.kind == Failure::Kind::worker && here != exits_.end() && event["failed_host"] == host_) {
    const Exit& exit = here->second;
    event["local_rank"] = exit.local_rank;
    event["pid"] = exit.pid;
    add_status(event, exit.status);
    if (!exit.log_file.empty()) event["log_file"] = exit.log_file;
  }
  event["message"] = failure.lines.empty() ? "" : failure.lines.front();
  event["details"] = Json::array();
  for (std::size_t i = 1; i < failure.lines.size(); ++i) event["details"].push_back(failure.lines[i]);
  write(line);
}

void JobEvents::restart(int restart_count, int max_restarts) {
  if (!on()) return;
  Record line(*this, "restart");
  (*line)["restart"] = restart_count;
  (*line)["max_restarts"] = max_restarts;
  write(line);
}

void JobEvents::end(int exit_code, const std::string& error) {
  if (!on()) return;
  Record line(*this, "end");
  (*line)["exit_code"] = exit_code;
  (*line)["seconds"] = in_seconds(steady_clock().now() - began_);
  if (!error.empty()) (*line)["error"] = error;
  write(line);
  file_->settle(Deadline::after(kLastPatience));
  file_->give_up();
}

std::optional<std::string> JobEvents::take_news() { return file_ ? file_->take_news() : std::nullopt; }

}  // namespace dtrain::launcher
