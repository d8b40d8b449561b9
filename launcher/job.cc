// Starts, reports, restarts.
#include "launcher/job.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "cluster/endpoint.h"
#include "cluster/token.h"
#include "launcher/descendants.h"
#include "launcher/group.h"
#include "runtime/base/check.h"

namespace dtrain::launcher {
namespace {

constexpr std::chrono::seconds kResolveTimeout{30};

// A folder in TMPDIR; empty when none can be made.
std::string make_temporary_folder(const Environment& environment, const std::string& name) {
  std::string pattern = variable_or(environment, "TMPDIR", "/tmp") + "/" + name + "-XXXXXX";
  return ::mkdtemp(pattern.data()) == nullptr ? "" : pattern;
}

// Holds the workers' error files; lives as long as the job.
class ScratchFolder {
 public:
  explicit ScratchFolder(const Environment& environment)
      : path_(make_temporary_folder(environment, "dtrain")) {}
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const noexcept { return path_; }
  /// A folder for one start; empty when there is none.
  std::string make(int restart_count) const {
    std::error_code error;
    const std::string folder = path_ + "/" + std::to_string(restart_count);
    return !path_.empty() && std::filesystem::create_directory(folder, error) ? folder : "";
  }

 private:
  std::string path_;
};

// Soft limit up to what two pipes a worker need; workers get the old limit back.
void raise_descriptor_limit(int workers) {
  constexpr rlim_t kOwn = 64;
  rlimit limit{};
  check(Sys{::getrlimit(RLIMIT_NOFILE, &limit)}, "getrlimit RLIMIT_NOFILE");
  const rlim_t needed = kOwn + 6 * static_cast<rlim_t>(workers);
  if (limit.rlim_cur >= needed) return;
  if (limit.rlim_max < needed)
    throw UsageError(std::to_string(workers) + " workers need " + std::to_string(needed) +
                     " open files, but the limit is " + std::to_string(limit.rlim_max) +
                     "; raise it (ulimit -n) or start fewer workers on this node");
  limit.rlim_cur = needed;
  check(Sys{::setrlimit(RLIMIT_NOFILE, &limit)}, "setrlimit RLIMIT_NOFILE");
}

std::string token_of(const Job& job) {
  if (!job.plan.program.builtin) return "";
  if (const auto token = find_token(job.environment)) return token->hex();
  if (job.plan.nnodes > 1)
    throw UsageError(
        "DTRAIN_TOKEN: with --nnodes=" + std::to_string(job.plan.nnodes) +
        " every node needs the same secret of 64 hexadecimal digits in its environment; make one with: "
        "openssl rand -hex 32");
  return make_token().hex();
}

struct MasterPort {
  std::uint16_t port = 0;
  UniqueFd socket;  // listens there; empty where the port is left free
};

Listener listen_for_master(const std::string& address, std::uint16_t port) {
  const Deadline deadline = Deadline::after(kResolveTimeout);
  try {
    return port == 0 ? listen_on_lasting_port(address, deadline) : listen_on(address, port, deadline);
  } catch (const SystemError& error) {
    if (error.error_number() != EADDRINUSE) throw;
    throw UsageError(std::string("--master-port: ") + error.what());
  } catch (const Error& error) {
    throw UsageError(std::string("--master-addr: ") + error.what());
  }
}

class JobRun {
 public:
  JobRun(const Job& job, Console& console)
      : job_(job),
        console_(console),
        signals_(job.options.stop_signals),
        token_(token_of(job)),
        scratch_(job.environment),
        log_root_(log_root()) {
    raise_descriptor_limit(job.plan.nproc);
    become_subreaper();
  }

  int run() {
    for (int restarts = 0;; ++restarts) {
      const GroupResult result = run_group(restarts);
      report(result);
      const bool again =
          result.failure && !result.outcome.signal && !result.stuck && restarts < job_.options.max_restarts;
      if (!again) return exit_code(result);
      console_.say("starting the group again: restart " + std::to_string(restarts + 1) + " of " +
                   std::to_string(job_.options.max_restarts));
    }
  }

 private:
  std::string log_root() {
    if (!job_.plan.writes_files) return "";
    if (!job_.options.log_dir.empty()) return job_.options.log_dir;
    const std::string folder = make_temporary_folder(job_.environment, "dtrain-logs");
    if (folder.empty())
      throw UsageError("--log-dir: expected a folder for --redirects and --tee, and none could be made in " +
                       variable_or(job_.environment, "TMPDIR", "/tmp"));
    console_.say("log files are in " + folder);
    return folder;
  }

  // The port is settled here, at the last moment. Only the built-in program can be given the socket itself;
  // any other finds the port free.
  MasterPort settle_port() const {
    // With more nodes the address may be one that only the network knows (a load balancer, NAT): not ours to
    // try.
    const Plan& plan = job_.plan;
    const bool remote = plan.nnodes > 1 && !plan.program.builtin;
    if (plan.node_rank != 0 || remote) return {plan.master_port, UniqueFd()};
    Listener listener = listen_for_master(plan.master_addr, plan.master_port);
    const std::uint16_t port = listener.port();
    return {port, plan.program.builtin ? std::move(listener.fd) : UniqueFd()};
  }

  GroupResult run_group(int restarts) {
    MasterPort master = settle_port();
    Attempt attempt;
    attempt.restart_count = restarts;
    attempt.master_port = master.port;
    attempt.error_folder = scratch_.make(restarts);
    attempt.token = token_;
    attempt.store_fd = master.socket.get();
    attempt.launch_time_ns = launch_time_ns_;
    GroupSettings settings;
    settings.policy = {job_.options.failure_grace, job_.options.signal_grace, job_.plan.program.builtin};
    settings.passthrough = job_.options.passthrough;
    settings.log_folder = log_root_ + "/attempt_" + std::to_string(restarts);
    settings.scratch_folder = scratch_.path();
    settings.title = job_.title;
    return GroupRun(job_.plan, attempt, job_.environment, settings, signals_, console_,
                    std::move(master.socket))
        .run();
  }

  void report(const GroupResult& result) {
    if (result.outcome.signal && !result.failure)
      console_.say("the job was ended by " + signal_name(*result.outcome.signal));
    if (result.keeper_lost) console_.complain("the keeper process was killed; its workers have been ended");
    if (result.stuck) console_.complain("some processes could not be ended: they do not react to SIGKILL");
    if (!result.failure) return;
    for (const std::string& line : failure_report(*result.failure)) console_.complain(line);
  }

  static int exit_code(const GroupResult& result) {
    const bool broken = result.keeper_lost || result.stuck;
    return broken && result.outcome.exit_code == 0 ? static_cast<int>(ExitCode::failure)
                                                   : result.outcome.exit_code;
  }

  const Job& job_;
  Console& console_;
  Signals signals_;
  std::string token_;
  ScratchFolder scratch_;
  std::string log_root_;
  std::int64_t launch_time_ns_ =
      std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
};

}  // namespace

int run_job(const Job& job, Console& console) { return JobRun(job, console).run(); }

}  // namespace dtrain::launcher
