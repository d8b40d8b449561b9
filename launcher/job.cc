// Starts, reports, restarts.
#include "launcher/job.h"

#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "launcher/descendants.h"
#include "launcher/group.h"
#include "launcher/ports.h"
#include "runtime/base/check.h"

namespace dtrain::launcher {
namespace {

constexpr std::size_t kTokenBytes = 32;

std::string value_or(const Environment& environment, const std::string& name, const std::string& otherwise) {
  const auto found = environment.find(name);
  return found == environment.end() || found->second.empty() ? otherwise : found->second;
}

// A folder in TMPDIR; empty when none can be made.
std::string make_temporary_folder(const Environment& environment, const std::string& name) {
  std::string pattern = value_or(environment, "TMPDIR", "/tmp") + "/" + name + "-XXXXXX";
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
  const std::string given = value_or(job.environment, "DTRAIN_TOKEN", "");
  if (!given.empty()) {
    if (given.size() != 2 * kTokenBytes ||
        given.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos)
      throw UsageError("DTRAIN_TOKEN: expected 64 hexadecimal digits, got " + std::to_string(given.size()) +
                       " characters that are not that");
    return given;
  }
  if (job.plan.nnodes > 1)
    throw UsageError(
        "DTRAIN_TOKEN: with --nnodes=" + std::to_string(job.plan.nnodes) +
        " every node needs the same secret of 64 hexadecimal digits in its environment; make one with: "
        "openssl rand -hex 32");
  std::array<unsigned char, kTokenBytes> bytes{};
  check(Sys{::getrandom(bytes.data(), bytes.size(), 0)}, "getrandom");
  std::string token;
  for (const unsigned char byte : bytes) {
    token += "0123456789abcdef"[byte >> 4];
    token += "0123456789abcdef"[byte & 15];
  }
  return token;
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
                       value_or(job_.environment, "TMPDIR", "/tmp"));
    console_.say("log files are in " + folder);
    return folder;
  }

  // The port is settled here, at the last moment. Only the built-in program can be given the socket itself;
  // any other finds the port free.
  Listener settle_port() const {
    // With more nodes the address may be one that only the network knows (a load balancer, NAT): not ours to
    // try.
    const bool remote = job_.plan.nnodes > 1 && !job_.plan.program.builtin;
    if (job_.plan.node_rank != 0 || remote) return {UniqueFd(), job_.plan.master_port};
    Listener listener = listen_on(job_.plan.master_addr, job_.plan.master_port);
    if (!job_.plan.program.builtin) listener.fd.reset();
    return listener;
  }

  GroupResult run_group(int restarts) {
    Listener listener = settle_port();
    Attempt attempt;
    attempt.restart_count = restarts;
    attempt.master_port = listener.port;
    attempt.error_folder = scratch_.make(restarts);
    attempt.token = token_;
    attempt.store_fd = listener.fd.get();
    attempt.launch_time_ns = launch_time_ns_;
    GroupSettings settings;
    settings.policy = {job_.options.failure_grace, job_.options.signal_grace, job_.plan.program.builtin};
    settings.passthrough = job_.options.passthrough;
    settings.log_folder = log_root_ + "/attempt_" + std::to_string(restarts);
    settings.scratch_folder = scratch_.path();
    settings.title = job_.title;
    return GroupRun(job_.plan, attempt, job_.environment, settings, signals_, console_,
                    std::move(listener.fd))
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
