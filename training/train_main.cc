#include "training/train_main.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "cluster/detect/program_note.h"
#include "runtime/data/formats/text.h"
#include "training/options/combinations.h"
#include "training/options/foreign_options.h"
#include "training/serve.h"
#include "training/start/first_rank_error.h"
#include "training/start/threads.h"
#include "training/task_traits.h"
#include "training/use/commands.h"
#include "training/worker.h"

DTRAIN_PROGRAM_NOTE()

namespace dtrain {
namespace {

std::string name_of_process(const Placement& placement, const ServerRole& role) {
  if (role.server) return fmt::format("dtrain: server {}", *role.server);
  return worker_name(*placement.rank, role.workers);
}

/// What a worker is to do.
struct Assignment {
  Placement placement;
  ServerRole role;
  std::shared_ptr<const Task> task;
  TrainConfig config;
};

/// What a trained network is used with: "predict: dtrain predict RUN --input FILE".
std::string next_command(const TrainProgram& program, const Task& task) {
  constexpr std::string_view kTrain = " train";
  const std::string_view name = program.name;
  const bool ours = name.ends_with(kTrain);
  if (ours && task.shows()) return "generate: dtrain generate RUN --prompt TEXT";  // a language model
  return fmt::format("predict: {} predict RUN --input FILE",
                     ours ? name.substr(0, name.size() - kTrain.size()) : name);
}

Assignment find_assignment(const TrainProgram& program, const Options& options,
                           const Environment& environment) {
  Assignment found;
  found.placement = find_placement(environment);
  found.role = find_server_role(options, found.placement, environment);
  found.placement.world_size = found.role.workers;
  found.task = program.make_task(options);
  found.config = make_train_config(options, found.task->name(), worker_count(options, found.role),
                                   traits_of(*found.task));
  found.config.use = next_command(program, *found.task);
  for (const OptionSpec& spec : program.options) {
    const std::string name(spec.name);
    if (options.has(name)) found.config.settings[name] = options.text(name);
  }
  return found;
}

std::vector<OptionSpec> all_options(const TrainProgram& program) {
  std::vector<OptionSpec> all(program.options.begin(), program.options.end());
  all.insert(all.end(), train_options().begin(), train_options().end());
  return all;
}

std::string usage_of(const TrainProgram& program) {
  const std::string text = fmt::format(
      "usage: {} [options]\n\nTrains in one process, or as a worker of dtrain-launch, mpirun or srun.",
      program.name);
  return program.examples.empty() ? text : fmt::format("{}\n\nExamples:\n{}", text, program.examples);
}

/// What most runs need.
std::string common_options(const TrainProgram& program) {
  std::string names =
      "recipe, dataset, data-dir, epochs, max-steps, init-from, seed, global-batch-size, batch-size, shard, "
      "optimizer, lr, momentum, weight-decay, lr-schedule, warmup-steps, clip-grad-norm, device, precision, "
      "threads, "
      "loader-threads, augment, run-dir, resume, eval-every, checkpoint-every, config, help, help-all";
  if (!program.common.empty()) return names.append(", ").append(program.common);
  for (const OptionSpec& spec : program.options) names.append(", ").append(spec.name);
  return names;
}

// The rank is part of the line: every worker of a job may fail at once.
void report(const std::string& program, std::string_view message) {
  const char* rank = ::getenv("RANK");
  // Messages about a command's options begin with its full name already.
  if (message.starts_with(program + " ")) message.remove_prefix(program.size() + 1);
  const std::string text = printable(message, true);  // it may quote a file
  const std::string line = rank != nullptr ? fmt::format("{}: rank {}: {}\n", program, rank, text)
                                           : fmt::format("{}: {}\n", program, text);
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

// Each peer and each shard of the data takes one, and shells allow 1,024.
void raise_open_files() noexcept {
  constexpr rlim_t kMost = 65'536;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kMost) return;
  limit.rlim_cur = std::min(limit.rlim_max, kMost);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

Options resolve_training(const TrainProgram& program, const std::vector<std::string>& arguments,
                         const Environment& environment) {
  const std::vector<OptionSpec> specs = all_options(program);
  return with_preset(program.name, specs,
                     resolve_options(program.name, specs, arguments, environment, foreign_train_options()),
                     program.presets);
}

void check_training(const TrainProgram& program, const std::vector<std::string>& arguments,
                    const Environment& environment) {
  find_assignment(program, resolve_training(program, arguments, environment), environment);
}

ExitCode run_training(const TrainProgram& program, const std::vector<std::string>& arguments,
                      const Environment& environment) {
  const std::vector<OptionSpec> specs = all_options(program);
  const Options options = first_rank_error(find_placement(environment),
                                           [&] { return resolve_training(program, arguments, environment); });
  const std::string usage = usage_of(program);
  if (options.has("help") && options.text("help") == "combinations") {
    fmt::print("{}", combinations_markdown());
    return ExitCode::ok;
  }
  if (const auto help = asked_help(options, usage, specs, common_options(program))) {
    fmt::print("{}{}", *help, options.enabled("help-all") ? combinations_help() : "");
    return ExitCode::ok;
  }
  const auto [placement, role, task, config] = first_rank_error(
      find_placement(environment), [&] { return find_assignment(program, options, environment); });
  if (options.enabled("print-config")) {
    if (*placement.rank == 0 && !role.server) fmt::print("{}", options_table(options));
    return ExitCode::ok;
  }
  limit_threads(placement, environment, config.threads, static_cast<int>(config.devices.size()));
  StopSignal stop_signal;  // before any thread
  WorkerLog log(name_of_process(placement, role));
  try {
    if (role.server) return serve(config, role, placement, environment, stop_signal, log);
    const WorkerJob job{*task, environment, options, config, stop_signal};
    return config.thread_workers > 1 ? run_thread_workers(job, placement, log)
                                     : run_worker(job, placement, role, log);
  } catch (const Error& error) {
    log.note(LogLevel::error, error.what());
    throw;
  }
}

int run_main(const std::string& program, const std::function<ExitCode()>& body) {
  raise_open_files();
  try {
    return static_cast<int>(body());
  } catch (const Error& error) {
    report(program, error.what());
    return static_cast<int>(error.exit_code());
  } catch (const std::bad_alloc&) {
    report(program, "out of memory; use a smaller batch");
    return static_cast<int>(ExitCode::system);
  } catch (const std::system_error& error) {
    report(program, error.what());
    return static_cast<int>(ExitCode::system);
  } catch (const std::exception& error) {
    report(program, error.what());
    return static_cast<int>(ExitCode::failure);
  }
}

int train_main(int argc, char** argv, TrainProgram program) {
  if (program.name.empty()) program.name = std::filesystem::path(argc > 0 ? argv[0] : "program").filename();
  return run_main(program.name, [&] {
    const UseCommand* const command = argc > 1 ? find_use_command(argv[1]) : nullptr;
    if (command != nullptr) return command->run(program, {argv + 2, argv + argc}, current_environment());
    return run_training(program, {argv + std::min(argc, 1), argv + argc}, current_environment());
  });
}

int train_main(int argc, char** argv, const Task& task) {
  const auto borrow = [&](const Options&) {
    return std::shared_ptr<const Task>(std::shared_ptr<const Task>(), &task);
  };
  return train_main(argc, argv, TrainProgram{.name = {}, .options = {}, .make_task = borrow});
}

}  // namespace dtrain
