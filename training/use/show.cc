// `dtrain show`: a network as text, with what it holds.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <memory>

#include "runtime/nn/print.h"
#include "training/log/introduction.h"
#include "training/options/train_config.h"
#include "training/use/commands.h"
#include "training/use/saved_run.h"

namespace dtrain {
namespace {

// clang-format off
constexpr OptionSpec kShowOptions[] = {
    {"dataset", "What to show", "NAME", "", "without a run: the data set that the network is for, as in dtrain train; unset: fashion-mnist"},
    {"data-dir", "What to show", "DIR", "", "folder with the data set's files"},
    {"parameters", "Output", "", "", "also list each parameter and buffer with its dtype and shape"},
    {"help", "Output", "", "", "print this text"},
};
// clang-format on

std::vector<OptionSpec> show_specs(const TrainProgram& program) {
  std::vector<OptionSpec> specs(program.options.begin(), program.options.end());
  specs.insert(specs.end(), std::begin(kShowOptions), std::end(kShowOptions));
  return specs;
}

/// A network with any weights, and what it is fed.
struct Shown {
  std::unique_ptr<Module> network;
  std::vector<Field> fields;
};

Shown of_run(const TrainProgram& program, const std::string& path, Log& log) {
  SavedRun run = open_run(program, path, log);
  Generator unused(0);
  return {run.task->build(run.fields, unused, make_device("cpu")), std::move(run.fields)};
}

Shown of_options(const TrainProgram& program, const Options& options, Log& log) {
  const auto task = program.make_task(options);
  const Splits splits =
      task->open({.dataset = options.has("dataset") ? options.text("dataset") : "fashion-mnist",
                  .data_dir = options.has("data-dir") ? options.text("data-dir") : "",
                  .log = &log});
  const auto fields = splits.train->fields();
  Generator unused(0);
  return {task->build(fields, unused, make_device("cpu")), {fields.begin(), fields.end()}};
}

std::int64_t bytes_of(const NamedTensors& tensors) {
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors)
    bytes += tensor.numel() * static_cast<std::int64_t>(size_of(tensor.dtype()));
  return bytes;
}

std::string list_of(const Module& network) {
  const NamedTensors state = network.state_dict();
  std::size_t width = 0;
  for (const auto& [name, tensor] : state) width = std::max(width, name.size());
  std::string text;
  for (const auto& [name, tensor] : state)
    text += fmt::format("  {:<{}}  {}\n", name, width, tensor.describe());
  return text;
}

}  // namespace

ExitCode show_command(const TrainProgram& program, const std::vector<std::string>& arguments,
                      const Environment& environment) {
  const std::string name = program.name + " show";
  const std::vector<OptionSpec> specs = show_specs(program);
  std::vector<std::string> rest = arguments;
  const std::vector<std::string> words = take_words(rest, 1);
  const Options options = resolve_options(name, specs, rest, environment);
  const bool has_models =
      std::ranges::any_of(program.options, [](const OptionSpec& option) { return option.name == "model"; });
  const std::string usage =
      fmt::format("usage: {} [RUN] [options]\n\nExamples:\n  {} runs/mine\n  {} {}--dataset cifar10", name,
                  name, name, has_models ? "--model resnet18 " : "");
  if (const auto help = asked_help(options, usage, specs)) {
    fmt::print("{}", *help);
    return ExitCode::ok;
  }
  FdLog log(STDERR_FILENO, "dtrain", LogLevel::warning);
  const Shown shown = words.empty() ? of_options(program, options, log) : of_run(program, words[0], log);
  fmt::print("{}\n\n", to_string(*shown.network));
  if (options.enabled("parameters")) fmt::print("{}\n", list_of(*shown.network));
  fmt::print("{} parameters, {:.1f} MiB; samples: {}\n", format_count(shown.network->parameter_count()),
             static_cast<double>(bytes_of(shown.network->state_dict())) / (1 << 20), describe(shown.fields));
  return ExitCode::ok;
}

}  // namespace dtrain
