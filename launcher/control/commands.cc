// A job is named by its id or its launcher's pid; without a name the only one is meant.
#include "launcher/control/commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "launcher/control/control_socket.h"
#include "launcher/control/job_status.h"
#include "runtime/base/error.h"

namespace dtrain::launcher {
namespace {

constexpr std::chrono::seconds kPatience{5};
// Debuggers take their time; see hang_report().
constexpr std::chrono::seconds kStacksPatience{90};

constexpr OptionSpec kHelp{"help", "", "", "", "print this text", 'h'};
constexpr OptionSpec kStatusOptions[] = {
    {"json", "", "", "", "print one JSON object, as docs/status.schema.json describes it"}, kHelp};
constexpr OptionSpec kNoOptions[] = {kHelp};

constexpr ControlCommand kCommands[] = {
    {"status", "show a running job: steps, rate, and each worker of this node", kStatusOptions},
    {"stop", "end a running job as SIGTERM does: programs that use dtrain save first", kNoOptions},
    {"save", "ask the workers of a running job for a checkpoint", kNoOptions},
    {"stacks", "print what the workers of this node are doing, with their stacks", kNoOptions},
};

/// A launcher, and what it said of its job.
struct Job {
  RunningLauncher launcher;
  std::string status;   ///< JSON; empty: it did not answer
  std::string trouble;  ///< why not

  bool is_called(const std::string& name) const {
    if (name == std::to_string(launcher.pid)) return true;
    const auto json = nlohmann::json::parse(status, nullptr, false);
    return json.is_object() && json.value("run_id", "") == name;
  }
};

std::vector<Job> running_jobs(const Environment& environment) {
  std::vector<Job> jobs;
  for (const RunningLauncher& launcher : running_launchers(control_folders(environment))) {
    Job job{launcher, {}, {}};
    try {
      job.status = ask(launcher, {"GET", "/status"}, Deadline::after(kPatience)).body;
    } catch (const PeerError& error) {
      job.trouble = error.what();
    }
    jobs.push_back(std::move(job));
  }
  return jobs;
}

std::string list_of(const std::vector<Job>& jobs) {
  std::vector<std::string> statuses;
  std::string troubles;
  for (const Job& job : jobs) {
    if (job.trouble.empty())
      statuses.push_back(job.status);
    else
      troubles += job.trouble + "\n";
  }
  return jobs_text(statuses) + troubles;
}

/// The job that is meant; nullptr: one of several, and the caller may list them.
const Job* meant(const std::vector<Job>& jobs, const std::string& name, const Environment& environment) {
  const auto none = [&](const std::string& which) {
    std::vector<std::string> folders;
    for (const auto& folder : control_folders(environment)) folders.push_back(folder.string());
    throw UsageError(fmt::format("expected {} of user {} on this machine, found none (in {})", which,
                                 ::geteuid(), fmt::join(folders, ", ")));
  };
  if (jobs.empty()) none("a running job");
  if (name.empty()) return jobs.size() == 1 ? &jobs.front() : nullptr;
  std::vector<const Job*> called;
  for (const Job& job : jobs) {
    if (job.is_called(name)) called.push_back(&job);
  }
  if (called.size() == 1) return called.front();
  if (!called.empty())
    throw UsageError(
        fmt::format("expected one launcher, got {}, the name of {} on this machine; give the "
                    "pid of one:\n{}",
                    name, called.size(), list_of(jobs)));
  throw UsageError(fmt::format("expected a running job's id or its launcher's pid, got {}; these run:\n{}",
                               name, list_of(jobs)));
}

std::string usage_of(const ControlCommand& command) {
  return fmt::format(
      "usage: dtrain-launch {} [OPTIONS] [JOB]\n\n{}{}.\n\nJOB is the id of a job that runs on this machine "
      "(--rdzv-id), or its\nlauncher's pid; without it the only one is meant.",
      command.name, static_cast<char>(std::toupper(command.help.front())), command.help.substr(1));
}

std::string run(const ControlCommand& command, const ParsedCommand& line, const Environment& environment) {
  if (line.rest.size() > 1)
    throw UsageError(fmt::format("expected at most one job, got {}", fmt::join(line.rest, " ")));
  const std::string name = line.rest.empty() ? "" : line.rest.front();
  const std::vector<Job> jobs = running_jobs(environment);
  const Job* job = meant(jobs, name, environment);
  const bool is_status = command.name == "status";
  if (job == nullptr && is_status && !line.options.enabled("json")) return list_of(jobs);
  if (job == nullptr)
    throw UsageError(
        fmt::format("expected a job's id or its launcher's pid, since several run:\n{}", list_of(jobs)));
  if (!job->trouble.empty())
    throw PeerError(job->trouble, {.rank = -1, .host = {}, .operation = "ask", .tensor = {}});
  if (is_status) return line.options.enabled("json") ? job->status : status_text(job->status);
  const Duration patience = command.name == "stacks" ? kStacksPatience : kPatience;
  const HttpAnswer answer =
      ask(job->launcher, {"POST", fmt::format("/{}", command.name)}, Deadline::after(patience));
  if (answer.status == 200) return answer.body;
  std::string why = answer.body;
  while (why.ends_with('\n')) why.pop_back();
  throw UsageError(why);
}

}  // namespace

std::span<const ControlCommand> control_commands() noexcept { return kCommands; }

std::optional<std::string> control_command(const std::vector<std::string>& arguments,
                                           const Environment& environment) {
  if (arguments.empty()) return std::nullopt;
  const auto* command = std::find_if(std::begin(kCommands), std::end(kCommands),
                                     [&](const ControlCommand& each) { return each.name == arguments[0]; });
  if (command == std::end(kCommands)) return std::nullopt;
  const std::string name = fmt::format("dtrain-launch {}", command->name);
  const ParsedCommand line =
      resolve_command(name, command->options, {arguments.begin() + 1, arguments.end()}, environment);
  if (const auto help = asked_help(line.options, usage_of(*command), command->options)) return help;
  try {
    return run(*command, line, environment);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{}: {}", command->name, error.what()));
  }
}

}  // namespace dtrain::launcher
