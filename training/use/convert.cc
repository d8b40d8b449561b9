// `dtrain convert`: weights from and to safetensors files of other programs, under their names.
#include <fmt/format.h>
#include <unistd.h>

#include "runtime/base/error.h"
#include "runtime/checkpoint/safetensors.h"
#include "training/options/train_config.h"
#include "training/use/commands.h"
#include "training/use/name_map.h"
#include "training/use/output_file.h"
#include "training/use/saved_run.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

// clang-format off
constexpr OptionSpec kConvertOptions[] = {
    {"from", "What to convert", "PATH", "", "a .safetensors file of another program (such as a PyTorch state_dict), or a run or checkpoint of dtrain"},
    {"run", "What to convert", "RUN", "", "with a file: a run with the network that the weights are for, instead of the options that describe the network"},
    {"dataset", "What to convert", "NAME", "fashion-mnist", "with a file, without --run: the data set that the network is for, as in dtrain train"},
    {"data-dir", "What to convert", "DIR", "", "folder with the data set's files"},
    {"to", "Output", "FILE", "", "the .safetensors file to write, with dtrain's names (for --init-from and --checkpoint) or with the other program's names"},
    {"names", "Output", "FILE", "", "file that maps dtrain's names to the other program's, one pair per line: fc.weight = head.weight, or conv1.* = stem.*"},
    {"overwrite", "Output", "", "", "replace the file if it exists"},
    {"help", "Output", "", "", "print this text"},
};
// clang-format on

/// Names and views to write, and what keeps the views' memory.
struct Converted {
  std::vector<NamedView> tensors;
  std::vector<Tensor> memory;
};

NameMap names_of(const Options& options) {
  return options.has("names") ? NameMap::read(options.text("names")) : NameMap();
}

/// The network that the options mean, with any weights.
std::unique_ptr<Module> network_of(const TrainProgram& program, const Options& options,
                                   const std::shared_ptr<Device>& device, std::string& name, Log& log) {
  Generator unused(0);
  if (options.has("run")) {
    const SavedRun run = open_run(program, options.text("run"), log);
    name = run.task->name();
    return run.task->build(run.fields, unused, device);
  }
  const auto task = program.make_task(options);
  name = task->name();
  const Splits splits = task->open({.dataset = options.text("dataset"),
                                    .data_dir = options.has("data-dir") ? options.text("data-dir") : "",
                                    .log = &log});
  return task->build(splits.train->fields(), unused, device);
}

/// Their file, as this network's state.
Converted from_theirs(const TrainProgram& program, const Options& options, Log& log) {
  const auto device = make_device("cpu");
  std::string name;
  const auto network = network_of(program, options, device, name, log);
  const NamedTensors state = network->state_dict();
  std::vector<std::string> ours;
  for (const auto& [tensor_name, tensor] : state) ours.push_back(tensor_name);
  SavedWeights weights = open_weights(options.text("from"), "--from", log);
  weights.names = names_of(options).theirs(ours);
  load_weights(*network, weights, name);
  Converted result;
  for (const auto& [tensor_name, tensor] : state) {
    result.memory.push_back(tensor.contiguous());
    result.tensors.push_back({tensor_name, result.memory.back().view()});
  }
  return result;
}

/// A checkpoint of ours, however it was cut, under their names.
Converted to_theirs(const Options& options, Log& log) {
  if (options.has("run")) {
    throw UsageError(
        fmt::format("--run {}: expected only with weights of a .safetensors file; --from {} is a run or a "
                    "checkpoint, which knows its network",
                    options.text("run"), options.text("from")));
  }
  const SavedWeights weights = open_weights(options.text("from"), "--from", log);
  const auto device = make_device("cpu");
  std::vector<std::string> ours;
  for (const SavedTensor& saved : weights.tensors.tensors()) ours.push_back(saved.name);
  const auto names = names_of(options).theirs(ours);
  Converted result;
  for (const SavedTensor& saved : weights.tensors.tensors()) {
    result.memory.push_back(Tensor::empty(saved.shape, device, saved.dtype));
    weights.read(saved.name, result.memory.back().view());
    result.tensors.push_back({names.at(saved.name), result.memory.back().view()});
  }
  return result;
}

void write(const Converted& converted, const fs::path& path, bool overwrite) {
  const fs::path draft = draft_of(path);
  try {
    write_safetensors(draft, converted.tensors, {{"format", "pt"}});
    put_in_place(draft, path, overwrite);
  } catch (...) {
    ::unlink(draft.c_str());
    throw;
  }
}

std::vector<OptionSpec> convert_specs(const TrainProgram& program) {
  std::vector<OptionSpec> specs(std::begin(kConvertOptions), std::end(kConvertOptions));
  specs.insert(specs.begin() + 2, program.options.begin(), program.options.end());
  return specs;
}

std::string path_option(const Options& options, const std::string& name, const char* expected) {
  if (!options.has(name)) throw UsageError(fmt::format("--{}: expected {}, got none", name, expected));
  return options.text(name);
}

}  // namespace

ExitCode convert_command(const TrainProgram& program, const std::vector<std::string>& arguments,
                         const Environment& environment) {
  const std::string name = program.name + " convert";
  const std::vector<OptionSpec> specs = convert_specs(program);
  const Options options = resolve_options(name, specs, arguments, environment);
  const std::string usage = fmt::format(
      "usage: {} --from PATH --to FILE.safetensors [options]\n\nExamples:\n"
      "  {} --from runs/mine --to pytorch.safetensors",
      name, name);
  if (const auto help = asked_help(options, usage, specs)) {
    fmt::print("{}", *help);
    return ExitCode::ok;
  }
  const fs::path from = path_option(options, "from", "a .safetensors file, a run or a checkpoint"),
                 to = path_option(options, "to", "the .safetensors file to write");
  if (to.extension() != ".safetensors") options.refuse("to", "a file name that ends in .safetensors");
  check_free(to, options.enabled("overwrite"));
  FdLog log(STDERR_FILENO, "dtrain", LogLevel::warning);
  const bool theirs = fs::is_regular_file(from);
  const Converted converted = theirs ? from_theirs(program, options, log) : to_theirs(options, log);
  write(converted, to, options.enabled("overwrite"));
  fmt::print("{}: {} tensors of {}\n", to.string(), converted.tensors.size(), from.string());
  return ExitCode::ok;
}

}  // namespace dtrain
