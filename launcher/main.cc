// dtrain-launch: from argv to an exit code. The only place that prints errors and decides exit codes.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <system_error>

#include "launcher/control/commands.h"
#include "launcher/hosts/proxy.h"
#include "launcher/nodes/hand_over.h"
#include "launcher/nodes/reach.h"
#include "launcher/output/lines.h"
#include "launcher/plan/flags.h"
#include "launcher/plan/foreign_options.h"
#include "launcher/process/job.h"
#include "launcher/system/init.h"
#include "runtime/base/error.h"

namespace dtrain::launcher {
namespace {

constexpr std::chrono::milliseconds kLook{100};
constexpr std::chrono::seconds kPatience{5};  // as with a log file that has stalled

// A closed standard stream would be taken by the next pipe and then confused with it.
void open_standard_streams() {
  int fd = 0;
  do {
    fd = ::open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd < 3);
  if (fd >= 3) ::close(fd);
}

std::span<char> argv_memory(int argc, char** argv) {
  if (argc == 0) return {};
  char* end = argv[0];
  for (int i = 0; i < argc && argv[i] == end; ++i) end += std::strlen(argv[i]) + 1;
  return {argv[0], end};
}

int print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0)
    throw SystemError("write to stdout", errno);
  return 0;
}

// Of those that are blocked since the job began.
bool end_is_asked_for() {
  sigset_t pending;
  sigemptyset(&pending);
  ::sigpending(&pending);
  sigdelset(&pending, SIGCHLD);
  return sigisemptyset(&pending) == 0;
}

// A reader that does not read is waited for, until Ctrl-C or SIGTERM ends the wait, or only for a little
// where one has ended the job; the job's code stays.
void flush(Console& console) {
  for (Sink* sink : {&console.out(), &console.err()}) {
    Deadline patience = Deadline::after(kPatience);
    while (sink->wants_to_write() && !end_is_asked_for() && !(console.hurried() && patience.expired())) {
      const std::size_t before = sink->unwritten();
      sink->flush(Deadline::after(kLook));
      if (sink->unwritten() < before) patience = Deadline::after(kPatience);
    }
  }
  console.flush(Deadline::after(Duration::zero()));
}

int explain(const Job& job) {
  std::string text = explanation_text(job.placement);
  if (job.placement.many())
    text += "secret          " + secret_source(job.placement, job.token, job.options) + "\n";
  return print(text);
}

// What a user may not know and would want to.
std::vector<std::string> place_notes(const Job& job) {
  std::vector<std::string> notes = job.placement.notes;
  const auto cores = static_cast<std::size_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  const bool bound = job.hardware.cpus.allowed.size() < cores && job.placement.system == JobSystem::openmpi;
  if (bound)
    notes.push_back("mpirun has bound this launcher, and with it its workers, to " +
                    std::to_string(job.hardware.cpus.allowed.size()) + " of " + std::to_string(cores) +
                    " cores; mpirun --bind-to none gives them all");
  return notes;
}

ExitCode code_of(const std::exception& error) {
  if (const auto* ours = dynamic_cast<const Error*>(&error)) return ours->exit_code();
  const bool system = dynamic_cast<const std::system_error*>(&error) != nullptr;
  return system ? ExitCode::system : ExitCode::failure;
}

int launch(const ParsedCommand& line, Environment environment, std::span<char> title, char** argv) {
  Job job;
  job.options = make_options(line);
  take_shutdown_timeout(environment, job.options);
  if (job.options.print_config) return print(options_table(line.options));
  if (!job.options.hosts.empty()) {
    hand_over_to_nodes(folder_of_this_binary(), argv);
    Console console(STDOUT_FILENO, STDERR_FILENO, environment);
    for (const std::string& note : line.notes) console.say(note);
    const int code = run_hosts(line, job.options, environment, folder_of_this_binary(), console);
    flush(console);
    return code;
  }
  job.token = find_secret(job.options, environment);
  job.placement = settle_placement(job.options, environment, this_machine(), job.token.has_value());
  if (job.options.explain) return explain(job);
  const std::string own_folder = folder_of_this_binary();
  job.program = resolve_program(job.options, environment, own_folder);
  if (!job.program.uses_dtrain && asks_for_agent_store(environment)) job.options.agent_store = true;
  job.hardware = read_hardware(job.options, environment);
  // Made before anything else starts: whatever cannot be meant is refused here.
  const NodeShare share = equal_share(job.placement, count_workers(job.options, job.hardware));
  const Plan plan = make_plan(job.options, job.placement, share, job.program, environment, job.hardware);
  if (job.options.dry_run) return print(plan_text(plan));

  if (job.placement.many()) hand_over_to_nodes(own_folder, argv);
  leave_process_one();

  Console console(STDOUT_FILENO, STDERR_FILENO, environment);
  for (const std::string& note : line.notes) console.say(note);
  for (const std::string& note : place_notes(job)) console.say(note);
  JobEvents events(job.options.events, job.placement.host);
  job.events = &events;
  JobStatus about;
  about.host = job.placement.host;
  about.version = DTRAIN_VERSION;
  about.program = job.program.argv;
  JobControl control(std::move(about), job.options);
  job.control = &control;
  job.environment = std::move(environment);
  job.version = DTRAIN_VERSION;
  job.title = title;
  try {
    const auto say = [&console](const std::string& text) {
      console.say(text);
      console.flush();
    };
    if (job.placement.many()) complete_placement(job.placement, job.token, job.options, own_folder, say);
    const int code = job.placement.many() ? run_many(job, console) : run_job(job, console);
    events.end(code);
    if (const auto news = events.take_news()) console.complain(*news);
    flush(console);
    return code;
  } catch (const std::exception& error) {
    events.end(static_cast<int>(code_of(error)), error.what());
    flush(console);  // what was said before it went wrong
    throw;
  }
}

int run(int argc, char** argv) {
  open_standard_streams();
  Environment environment = current_environment();
  const std::vector<std::string> arguments(argv + (argc > 0), argv + argc);
  if (const auto text = control_command(arguments, environment)) return print(*text);
  if (arguments.size() == 2 && arguments[0] == "--from-stdin")
    return run_proxy(arguments[1], DTRAIN_VERSION, folder_of_this_binary());
  const ParsedCommand line =
      resolve_command("dtrain-launch", launch_options(), arguments, environment, "PET_", foreign_options());
  if (const auto help = asked_help(line.options)) return print(*help);
  if (line.options.has("print-completion")) return print(completion_script(line.options));
  if (line.options.enabled("version")) return print("dtrain-launch " DTRAIN_VERSION "\n");
  return launch(line, std::move(environment), argv_memory(argc, argv), argv);
}

int report(std::string_view message, ExitCode code) {
  constexpr std::string_view kName = "dtrain-launch: ";
  if (message.starts_with(kName)) message.remove_prefix(kName.size());  // said once is enough
  std::fprintf(stderr, "dtrain-launch: %s\n", escape_controls(message).c_str());
  return static_cast<int>(code);
}

}  // namespace
}  // namespace dtrain::launcher

int main(int argc, char** argv) {
  try {
    return dtrain::launcher::run(argc, argv);
  } catch (const std::exception& error) {
    return dtrain::launcher::report(error.what(), dtrain::launcher::code_of(error));
  }
}
