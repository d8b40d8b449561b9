// `dtrain eval`: the test accuracy of a checkpoint, alone or sharded over workers.
#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "models/vision/image_input.h"
#include "runtime/checkpoint/checkpoint_store.h"
#include "runtime/data/sources/open_source.h"
#include "training/engine/evaluate.h"
#include "training/run/saved_tensors.h"
#include "training/start/peers.h"
#include "training/start/threads.h"
#include "worker/commands.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

// clang-format off
constexpr OptionSpec kOptions[] = {
    {"checkpoint", "What to evaluate", "PATH", "", "a run directory, a checkpoint directory or a .safetensors file"},
    {"model", "What to evaluate", "NAME", "", "unset: the model the checkpoint was made with"},
    {"dataset", "What to evaluate", "NAME", "", "unset: the data set the checkpoint was made with"},
    {"data-dir", "What to evaluate", "DIR", "", "folder of the data set's files; unset: where Debian's package puts them"},
    {"batch-size", "What to evaluate", "N", "256", "samples of one pass on one worker"},
    {"device", "Machine", "NAME", "auto", "auto, cpu, cuda (this worker's GPU) or cuda:N"},
    {"backend", "Machine", "NAME", "auto", "collectives: auto, gloo or mpi"},
    {"timeout", "Machine", "SECONDS", "300", "longest wait for the peers"},
    {"json", "Output", "", "", "print one JSON object"},
    {"help", "Output", "", "", "this text"},
};
// clang-format on

/// A file of weights and what is known of the run it came from.
struct Weights {
  TensorFiles file;
  std::map<std::string, std::string> identity;
};

Weights open_weights(const fs::path& path, Log& log) {
  if (fs::is_regular_file(path)) return {TensorFiles::open(path), {}};
  if (!fs::is_directory(path))
    throw UsageError(
        fmt::format("--checkpoint {}: expected a run directory, a checkpoint directory or a .safetensors "
                    "file; there is none",
                    path.string()));
  if (fs::exists(path / "state.json")) {
    Checkpoint checkpoint = load_checkpoint(path);
    return {std::move(checkpoint.model), checkpoint.state.extra};
  }
  const fs::path folder = fs::exists(path / "checkpoints") ? path / "checkpoints" : path;
  auto newest = CheckpointStore(folder, 0, log).latest();
  if (!newest) throw DataError(folder.string(), -1, "a checkpoint that verifies", "none");
  return {std::move(newest->model), newest->state.extra};
}

std::string option_or(const Options& options, const std::string& name, const Weights& weights) {
  if (options.has(name)) return options.text(name);
  const auto found = weights.identity.find(name);
  if (found == weights.identity.end())
    throw UsageError(fmt::format("--{}: expected a name, got none, and the checkpoint does not say", name));
  return found->second;
}

}  // namespace

ExitCode run_eval(const Invocation& invocation) {
  const Options options =
      resolve_options("dtrain eval", kOptions, invocation.arguments, invocation.environment);
  if (options.enabled("help")) {
    fmt::print("{}", options_help("usage: dtrain eval --checkpoint PATH [options]", kOptions));
    return ExitCode::ok;
  }
  const Placement placement = find_placement(invocation.environment);
  limit_threads(placement, invocation.environment);
  FdLog log(STDERR_FILENO, "dtrain", LogLevel::info);
  const auto timeout =
      std::chrono::nanoseconds(static_cast<std::int64_t>(options.real("timeout", 0.001, 1e6) * 1e9));
  const Weights weights = open_weights(options.text("checkpoint"), log);
  const auto source =
      open_source(option_or(options, "dataset", weights), Split::test,
                  {.data_dir = options.has("data-dir") ? options.text("data-dir") : "", .log = &log});
  Peers peers(placement, options.choice("backend", {"auto", "gloo", "mpi"}), invocation.environment, timeout,
              log);
  const auto device = make_device(options.text("device"), {.local_rank = *placement.local_rank});
  Generator unused(0);
  const auto network =
      make_network(option_or(options, "model", weights), image_input(*source), unused, device);
  network->load_state_dict(load_tensors(weights.file, device));
  const Evaluation result = evaluate(*network, source, options.integer("batch-size", 1, INT32_MAX),
                                     peers.communicator(), device, timeout);
  if (*placement.rank == 0) {
    const nlohmann::json json = {
        {"loss", result.loss}, {"accuracy", result.accuracy}, {"samples", result.samples}};
    fmt::print("{}\n", options.enabled("json")
                           ? json.dump()
                           : fmt::format("test accuracy {:.4f}, test loss {:.4f} ({} images)",
                                         result.accuracy, result.loss, result.samples));
  }
  peers.leave();
  return ExitCode::ok;
}

}  // namespace dtrain
