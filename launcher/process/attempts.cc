// Folders, limits and ports of all starts; starting and reporting one.
#include "launcher/process/attempts.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "cluster/net/endpoint.h"
#include "launcher/output/log_lock.h"
#include "launcher/system/descendants.h"
#include "launcher/system/temporary_folder.h"
#include "runtime/base/check.h"

namespace dtrain::launcher {
namespace {

constexpr std::chrono::seconds kResolveTimeout{30};
constexpr const char* kWithoutScratch =
    "workers cannot report why they fail (TORCHELASTIC_ERROR_FILE) or that they are saving "
    "(DTRAIN_SAVING_FILE)";

// Soft limit up to what two pipes a worker need, and as far as it goes for the agent's store, whose clients
// are on all nodes; workers get the old limit back.
void raise_descriptor_limit(int workers, bool agent_store) {
  constexpr rlim_t kOwn = 64;
  rlimit limit{};
  check(Sys{::getrlimit(RLIMIT_NOFILE, &limit)}, "getrlimit RLIMIT_NOFILE");
  const rlim_t needed = kOwn + 6 * static_cast<rlim_t>(workers);
  if (limit.rlim_cur >= needed && !agent_store) return;
  if (limit.rlim_max < needed)
    throw UsageError(std::to_string(workers) + " workers need " + std::to_string(needed) +
                     " open files, but the limit is " + std::to_string(limit.rlim_max) +
                     "; raise it (ulimit -n) or start fewer workers on this node");
  limit.rlim_cur = agent_store ? limit.rlim_max : needed;
  check(Sys{::setrlimit(RLIMIT_NOFILE, &limit)}, "setrlimit RLIMIT_NOFILE");
}

bool writes_files(const LaunchOptions& options) {
  return !options.log_dir.empty() || options.redirects.any() || options.tee.any();
}

// Programs made with another version of the library say nothing, those that have met nobody yet neither.
std::int64_t last_step(const StatusPage& page, int workers) {
  std::int64_t step = -1;
  for (int worker = 0; worker < workers; ++worker) {
    const auto status = page.slot(worker).read();
    if (status) step = std::max(step, status->step);
  }
  return step;
}

}  // namespace

MasterPort settle_master_port(const std::string& address, std::uint16_t port, bool uses_dtrain) {
  const Deadline deadline = Deadline::after(kResolveTimeout);
  try {
    Listener listener =
        port == 0 ? listen_on_lasting_port(address, deadline) : listen_on(address, port, deadline);
    const std::uint16_t settled = listener.port();
    return {settled, uses_dtrain ? std::move(listener.fd) : UniqueFd()};
  } catch (const SystemError& error) {
    if (error.error_number() != EADDRINUSE) throw;
    throw UsageError(std::string("--master-port: ") + error.what());
  } catch (const Error& error) {
    throw UsageError(std::string("--master-addr: ") + error.what());
  }
}

MasterPort MasterPorts::settle(const std::string& address, std::uint16_t port) {
  if (!agent_store_) return settle_master_port(address, port, uses_dtrain_);
  if (store_) {
    store_->clear();
  } else {
    MasterPort master = settle_master_port(address, port, true);
    store_.emplace(std::move(master.socket), master.port);
  }
  return {store_->port(), {}};
}

Attempts::Attempts(const Job& job, Console& console)
    : job_(job), console_(console), signals_(job.options.stop_signals) {
  raise_descriptor_limit(count_workers(job.options, job.hardware) + job.options.servers,
                         job.options.agent_store);
  job.control->listen(job.options, job.environment, console);
  log_root_ = find_log_root();
  scratch_ = find_scratch();  // last: nothing that throws comes after it
  for (const std::string& trouble : trouble_with_ending()) console.complain(trouble);
}

Attempts::~Attempts() {
  std::error_code ignored;
  if (!scratch_.empty()) std::filesystem::remove_all(scratch_, ignored);
}

std::string Attempts::find_scratch() {
  const TemporaryFolder folder = make_temporary_folder(job_.environment, "dtrain");
  if (folder.path.empty())
    console_.complain(folder.note + ", nor in /tmp, /var/tmp and /dev/shm: " + kWithoutScratch);
  else if (!folder.note.empty())
    console_.complain(folder.note);
  return folder.path;
}

std::string Attempts::find_log_root() {
  if (!writes_files(job_.options)) {
    if (!job_.options.stdout_filters.empty() || !job_.options.stderr_filters.empty())
      console_.say(
          "--duplicate-stdout-filters and --duplicate-stderr-filters have no effect without -t or --log-dir");
    return "";
  }
  if (!job_.options.log_dir.empty()) return job_.options.log_dir;
  const std::string folder = make_temporary_folder(job_.environment, "dtrain-logs").path;
  if (folder.empty())
    throw UsageError("--log-dir: expected a folder for --redirects and --tee, but none could be made in " +
                     variable_or(job_.environment, "TMPDIR", "/tmp"));
  console_.say("log files are in " + folder);
  return folder;
}

// Holds the error files of one start; empty when there is none.
std::string Attempts::make_scratch(int number) const {
  std::error_code error;
  const std::string folder = scratch_ + "/" + std::to_string(number);
  if (scratch_.empty()) return "";
  if (std::filesystem::create_directory(folder, error)) return folder;
  console_.complain("the folder " + folder + " cannot be made: " + error.message() + ": " + kWithoutScratch);
  return "";
}

// For any program, since a script may start one that uses dtrain. Workers run without a page, and only nobody
// sees at which step they are.
std::optional<StatusPage> Attempts::make_status_page(const Plan& plan) const {
  try {
    return std::optional<StatusPage>(std::in_place, static_cast<int>(plan.workers.size()));
  } catch (const SystemError& error) {
    console_.complain(std::string("the steps of the workers cannot be shown: ") + error.what());
    return std::nullopt;
  }
}

GroupResult Attempts::run(const Plan& plan, const Start& start, MasterPort master, OtherNodes* others) {
  Attempt attempt;
  attempt.restart_count = start.restart_count;
  attempt.master_port = master.port;
  attempt.error_folder = make_scratch(start.number);
  attempt.token = start.token;
  attempt.memory_folder = memory_.path();
  attempt.store_fd = master.socket.get();
  if (others != nullptr && others->lease() != nullptr) attempt.lease_fd = others->lease()->readable_fd();
  attempt.launch_time_ns = start.launch_time_ns;
  GroupSettings settings;
  settings.policy = {job_.options.failure_grace,
                     job_.options.signal_grace,
                     job_.options.saving_grace,
                     plan.program.uses_dtrain,
                     static_cast<int>(plan.workers.size()) - plan.nproc,
                     job_.options.max_restarts};
  settings.hang = job_.options.hang;
  settings.passthrough = job_.options.passthrough;
  settings.log_folder = log_root_ + "/attempt_" + std::to_string(start.restart_count);
  const std::string run_id = run_id_of(job_, start.launch_time_ns);
  settings.log_mark = mark_of_job(run_id, start.launch_time_ns);
  settings.stdout_filters = job_.options.stdout_filters;
  settings.stderr_filters = job_.options.stderr_filters;
  for (const std::string& folder : {scratch_, memory_.path()}) {
    if (!folder.empty()) settings.scratch_folders.push_back(folder);
  }
  settings.title = job_.title;
  settings.others = others;
  settings.events = job_.events;
  const std::optional<StatusPage> status = make_status_page(plan);
  if (status) {
    settings.status = &*status;
    attempt.status_fd = status->fd();
  }
  settings.control = job_.control;
  const JobEvents::Start event{run_id, start.number, start.restart_count};
  job_.control->start(plan, event);
  job_.events->start(plan, event, attempt.master_port);
  GroupResult result =
      GroupRun(plan, attempt, job_.environment, settings, signals_, console_, std::move(master.socket)).run();
  if (status) result.step = last_step(*status, static_cast<int>(plan.workers.size()));
  return result;
}

void Attempts::report(const GroupResult& result) {
  if (result.signal && !result.failure) console_.say("the job was ended by " + signal_name(*result.signal));
  for (const std::string& line : troubles(result)) console_.complain(line);
  if (!result.failure) return;
  job_.events->failure(*result.failure);
  for (const std::string& line : result.failure->lines) console_.complain(line);
}

int Attempts::exit_code(const GroupResult& result) {
  if (result.subreaper_error && !result.first_failed) return static_cast<int>(ExitCode::system);
  return result.subreaper_lost && result.exit_code == 0 ? static_cast<int>(ExitCode::failure)
                                                        : result.exit_code;
}

std::vector<std::string> Attempts::troubles(const GroupResult& result) {
  std::vector<std::string> lines;
  if (result.subreaper_error)
    lines.push_back(fmt::format(
        "the subreaper process, which starts the workers, cannot start: {}{}",
        std::generic_category().message(*result.subreaper_error),
        *result.subreaper_error == EAGAIN ? "; raise the limit: ulimit -u, pids.max of the cgroup" : ""));
  else if (result.subreaper_lost)
    lines.push_back("the subreaper process was killed; its workers have been ended");
  for (const std::string& process : result.stuck)
    lines.push_back("stuck: " + process + " does not end on SIGKILL and is left behind");
  return lines;
}

}  // namespace dtrain::launcher
