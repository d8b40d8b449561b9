// Opens, describes and finishes workers; runs none.
#include "launcher/process/workers.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "launcher/process/supervisor.h"
#include "runtime/base/check.h"

namespace dtrain::launcher {
namespace {

// Whether a log file takes more.
constexpr std::chrono::milliseconds kSettleRound{20};

}  // namespace

Workers::Workers(const Plan& plan, const Attempt& attempt, const GroupSettings& settings, Console& console,
                 const Clock& clock)
    : plan_(plan),
      attempt_(attempt),
      settings_(settings),
      console_(console),
      clock_(clock),
      null_(static_cast<int>(check(Sys{::open("/dev/null", O_RDWR | O_CLOEXEC)}, "open /dev/null"))),
      oom_before_(read_oom_kills()) {
  filtered_out_ = open_filtered("filtered_stdout", settings.stdout_filters);
  filtered_err_ = open_filtered("filtered_stderr", settings.stderr_filters);
  all_.reserve(plan.workers.size());
  for (const WorkerPlan& worker : plan.workers) all_.push_back(open_worker(worker));
}

// One file a node, since nodes may share the folder.
std::unique_ptr<FilteredLog> Workers::open_filtered(const char* name,
                                                    const std::vector<std::string>& texts) const {
  if (texts.empty() || !plan_.writes_files) return nullptr;
  std::string path = settings_.log_folder + "/" + name;
  if (plan_.share.nnodes > 1) path += "_node" + std::to_string(plan_.share.node_rank);
  return std::make_unique<FilteredLog>(path + ".log", texts, settings_.log_mark);
}

std::vector<SpawnRequest> Workers::requests(const Environment& environment, bool has_keyboard) const {
  std::vector<SpawnRequest> requests;
  for (const WorkerPlan& worker : plan_.workers)
    requests.push_back(request_for(worker, environment, null_.get(), has_keyboard));
  return requests;
}

void Workers::started() {
  for (Worker& worker : all_) {
    worker.out.started();
    worker.err.started();
  }
}

bool Workers::shows_progress(const WorkerPlan& worker) const {
  return worker.local_rank == 0 && plan_.share.group_rank == 0 && console_.err().terminal() &&
         worker.err.console && worker.prefix.empty();
}

bool Workers::inherits_stdout(const WorkerPlan& worker) const {
  // The built-in program shows progress on stderr, which the launcher has to keep apart from its stdout.
  return plan_.nproc == 1 && !plan_.program.uses_dtrain && console_.out().terminal() && worker.out.console &&
         worker.out.file.empty() && worker.prefix.empty();
}

Workers::Worker Workers::open_worker(const WorkerPlan& worker) {
  CaptureOptions out;
  out.passthrough = settings_.passthrough;
  out.alone = plan_.workers.size() == 1;
  out.log_folder = settings_.log_folder;
  out.mark = settings_.log_mark;
  out.filtered = filtered_out_.get();
  out.name = name_of(worker) + ": ";
  out.order = 2 * worker.local_rank;
  CaptureOptions err = out;
  out.inherit = inherits_stdout(worker);
  err.filtered = filtered_err_.get();
  err.to_err = true;
  err.progress = shows_progress(worker);
  ++err.order;
  return {Capture(worker.out, worker.prefix, out, console_, clock_),
          Capture(worker.err, worker.prefix, err, console_, clock_)};
}

Environment Workers::terminal_environment(const WorkerPlan& worker) const {
  if (!shows_progress(worker)) return {};
  return {{"DTRAIN_STDERR_TTY", "1"}, {"DTRAIN_COLUMNS", std::to_string(console_.columns())}};
}

SpawnRequest Workers::request_for(const WorkerPlan& worker, const Environment& environment, int null_fd,
                                  bool has_keyboard) const {
  const Environment attempt = attempt_environment(plan_, worker, attempt_);
  const Environment terminal = terminal_environment(worker);
  const Worker& streams = all_[static_cast<std::size_t>(worker.local_rank)];
  SpawnRequest request;
  request.worker = worker.local_rank;
  request.path = plan_.program.path;
  request.argv = worker.argv;
  request.environment =
      merged_environment(environment, plan_.removed_variables, {&worker.environment, &attempt, &terminal});
  const bool reads_input = worker.rank == 0 && (::isatty(0) == 0 || has_keyboard);
  request.in = reads_input ? -1 : null_fd;
  request.out = streams.out.worker_end();
  request.err = streams.err.worker_end();
  if (plan_.program.uses_dtrain) {
    if (worker.rank == 0 && attempt_.store_fd >= 0) request.kept_fds.push_back(attempt_.store_fd);
    if (attempt_.status_fd >= 0) request.kept_fds.push_back(attempt_.status_fd);
    if (attempt_.lease_fd >= 0) request.kept_fds.push_back(attempt_.lease_fd);
  }
  // Rank 0 serves the store, which is lost with it.
  request.may_return = settings_.policy.servers > 0 && settings_.policy.returns > 0 && worker.rank != 0;
  request.cpus = worker.cpus;
  return request;
}

// Log files get a little time for their last bytes, unless somebody is in a hurry.
void Workers::finish_output(const std::function<bool()>& is_hurried) {
  for (Worker& worker : all_) {
    worker.out.finish();
    worker.err.finish();
  }
  const Deadline settled = Deadline::after(LogFile::kStall);
  const auto settle = [&](auto&& settle_file) {
    while (!settle_file(Deadline::after(kSettleRound)) && !settled.expired() && !is_hurried()) {
    }
  };
  for (Worker& worker : all_) {
    for (Capture* stream : {&worker.out, &worker.err}) {
      settle([stream](const Deadline& deadline) { return stream->settle_file(deadline); });
      stream->give_up_file();
    }
  }
  for (FilteredLog* log : {filtered_out_.get(), filtered_err_.get()}) {
    if (log == nullptr) continue;
    settle([log](const Deadline& deadline) { return log->file().settle(deadline); });
    log->file().give_up();
    if (const auto news = log->file().take_news()) console_.complain(*news);
  }
}

// Rank 0 is where the others meet, and keeps the run's records; and until a worker has met the others, they
// wait for it.
bool Workers::is_needed(int local_rank) const {
  const WorkerPlan& worker = plan_.workers[static_cast<std::size_t>(local_rank)];
  return worker.rank == 0 || (!attempt_.error_folder.empty() &&
                              ::access(met_file_of(attempt_.error_folder, worker).c_str(), F_OK) != 0);
}

// Whose file says that it is writing a checkpoint.
std::optional<int> Workers::saving_rank() const {
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const WorkerPlan& worker = plan_.workers[i];
    if (!attempt_.error_folder.empty() && !all_[i].gone &&
        ::access(saving_file_of(attempt_.error_folder, worker).c_str(), F_OK) == 0)
      return worker.rank;
  }
  return std::nullopt;
}

Failure Workers::failure_of(int local_rank, int status, bool consequence) const {
  const Worker& worker = all_[static_cast<std::size_t>(local_rank)];
  const WorkerPlan& plan = plan_.workers[static_cast<std::size_t>(local_rank)];
  FailedWorker failed;
  failed.consequence = consequence;
  failed.rank = plan.rank;
  failed.local_rank = local_rank;
  failed.server = plan.server;
  failed.host = plan_.host;
  if (plan_.share.nnodes > 1 || settings_.others != nullptr) failed.node_rank = plan_.share.node_rank;
  failed.pid = worker.pid;
  failed.status = status;
  failed.exec_error = worker.exec_error;
  failed.program = plan_.program.path;
  failed.out_of_memory =
      exit_code_of(failed.status) == 128 + SIGKILL && oom_since(oom_before_, read_oom_kills());
  failed.max_rss_kib = worker.max_rss_kib;
  if (!attempt_.error_folder.empty())
    failed.error_text = read_error_file(error_file_of(attempt_.error_folder, plan));
  failed.last_lines = worker.err.last_lines();
  failed.log_file = worker.err.file_path();
  if (!plan_.program.uses_dtrain && !plan.environment.contains("TORCHELASTIC_USE_AGENT_STORE"))
    failed.master = plan_.master_addr + ":" + std::to_string(attempt_.master_port);
  return launcher::failure_of(failed);
}

}  // namespace dtrain::launcher
