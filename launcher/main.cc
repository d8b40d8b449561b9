// dtrain-launch: from argv to an exit code. The only place that prints errors and decides exit codes.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string_view>

#include "launcher/flags.h"
#include "launcher/job.h"
#include "runtime/base/error.h"

namespace dtrain::launcher {
namespace {

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
  std::fputs(text.c_str(), stdout);
  return std::fflush(stdout) == 0 ? 0 : static_cast<int>(ExitCode::system);
}

// A reader that does not read is waited for, but as any program would, so that Ctrl-C ends the wait.
void flush(Console& console) {
  console.out().flush(Deadline::never());
  console.err().flush(Deadline::never());
}

int launch(const ParsedCommand& line, Environment environment, std::span<char> title) {
  Options options = make_options(line);
  if (options.print_config) return print(options_table(line.options));
  const Program program = resolve_program(options, environment, folder_of_this_binary());
  Plan plan = make_plan(options, program, environment, read_machine(options, environment));
  if (options.dry_run) return print(plan_text(plan));

  Console console(STDOUT_FILENO, STDERR_FILENO, environment.contains("NO_COLOR"));
  for (const std::string& note : line.notes) console.say(note);
  const Job job{std::move(options), std::move(plan), std::move(environment), title};
  try {
    const int code = run_job(job, console);
    flush(console);
    return code;
  } catch (...) {
    flush(console);  // what was said before it went wrong
    throw;
  }
}

int run(int argc, char** argv) {
  open_standard_streams();
  Environment environment = current_environment();
  const std::vector<std::string> arguments(argv + (argc > 0), argv + argc);
  const ParsedCommand line = resolve_command("dtrain-launch", launch_options(), arguments, environment);
  if (line.options.enabled("help")) return print(help_text());
  if (line.options.enabled("version")) return print("dtrain-launch " DTRAIN_VERSION "\n");
  return launch(line, std::move(environment), argv_memory(argc, argv));
}

int report(std::string_view message, ExitCode code) {
  constexpr std::string_view kName = "dtrain-launch: ";
  if (message.starts_with(kName)) message.remove_prefix(kName.size());  // said once is enough
  std::fprintf(stderr, "dtrain-launch: %.*s\n", static_cast<int>(message.size()), message.data());
  return static_cast<int>(code);
}

}  // namespace
}  // namespace dtrain::launcher

int main(int argc, char** argv) {
  try {
    return dtrain::launcher::run(argc, argv);
  } catch (const dtrain::Error& error) {
    return dtrain::launcher::report(error.what(), error.exit_code());
  } catch (const std::exception& error) {
    return dtrain::launcher::report(error.what(), dtrain::ExitCode::failure);
  }
}
