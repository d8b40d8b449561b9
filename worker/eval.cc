// `dtrain eval`: the test accuracy of a checkpoint, alone or sharded over workers.
#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "models/tasks/built_in.h"
#include "runtime/data/fingerprint.h"
#include "training/engine/evaluate.h"
#include "training/start/peers.h"
#include "training/start/same_data.h"
#include "training/start/threads.h"
#include "training/start/unused_gpus.h"
#include "training/use/weights.h"
#include "worker/commands.h"

namespace dtrain {
namespace {

// clang-format off
constexpr OptionSpec kOptions[] = {
    {"checkpoint", "What to evaluate", "PATH", "", "a run directory, a checkpoint directory or a .safetensors file"},
    {"model", "What to evaluate", "NAME", "", "model; unset: the checkpoint's"},
    {"task", "What to evaluate", "NAME", "", "task; unset: the checkpoint's"},
    {"dataset", "What to evaluate", "NAME", "", "data set; unset: the checkpoint's"},
    {"data-dir", "What to evaluate", "DIR", "", "folder of the data set's files; unset: where Debian's package puts them"},
    {"on-bad-sample", "What to evaluate", "HOW", "stop", "a picture that cannot be decoded: stop, or skip (report it and take the next one in its place)"},
    {"batch-size", "What to evaluate", "N", "256", "samples per worker and batch"},
    {"device", "Machine", "NAME", "auto", "auto, cpu, cuda (this worker's GPU) or cuda:N"},
    {"backend", "Machine", "NAME", "auto", "collectives: auto, nccl, tcp, gloo or mpi"},
    {"timeout", "Machine", "SECONDS", "300", "longest wait for the peers"},
    {"json", "Output", "", "", "print one JSON object"},
    {"help", "Output", "", "", "this text"},
};
// clang-format on

// `otherwise`: what it was before checkpoints said so.
std::string option_or(const Options& options, const std::string& name, const SavedWeights& weights,
                      const std::optional<std::string>& otherwise = {}) {
  if (options.has(name)) return options.text(name);
  const auto found = weights.identity.find(name);
  if (found == weights.identity.end() && otherwise) return *otherwise;
  if (found == weights.identity.end())
    throw UsageError(fmt::format("--{}: expected a name, got none, and the checkpoint does not say", name));
  return found->second;
}

/// A language model's sizes as the run had them.
void adjust(const SavedWeights& weights, TransformerShape& shape) {
  for (const auto& [name, value] :
       {std::pair{"width", &shape.width}, {"heads", &shape.heads}, {"layers", &shape.layers}}) {
    const auto found = weights.identity.find(name);
    if (found != weights.identity.end()) *value = parse_integer(found->second).value_or(*value);
  }
  if (weights.identity.contains("tied")) shape.tied = true;
}

/// The run's own data must have the columns it learned from; held-out samples that differ are reported.
void check_data(const SavedWeights& weights, const DataFingerprint& found, bool own, Log& log) {
  const auto learned = from_entries(weights.identity);
  if (!learned) return;
  if (learned->fields != found.fields) {
    throw UsageError(fmt::format("--dataset: expected samples of {}, as {} was trained on, got {}",
                                 learned->fields, weights.path.string(), found.fields));
  }
  if (!own || fits(learned->test, found.test)) return;
  log.write(LogLevel::warning,
            fmt::format("the held-out samples are not those of {}: {} then, {} now", weights.path.string(),
                        learned->test.to_string(), found.test.to_string()));
}

std::string json_of(const Evaluation& result) {
  nlohmann::json json = {{"loss", result.loss}, {"samples", result.samples}};
  for (const auto& [name, value] : result.metrics) json[name] = value;
  return json.dump();
}

std::string text_of(const Evaluation& result) {
  std::string text;
  for (const auto& [name, value] : result.metrics) text += fmt::format("test {} {:.4f}, ", name, value);
  return text + fmt::format("test loss {:.4f} ({} samples)", result.loss, result.samples);
}

}  // namespace

ExitCode run_eval(const Invocation& invocation) {
  const Options options =
      resolve_options("dtrain eval", kOptions, invocation.arguments, invocation.environment);
  if (const auto help = asked_help(options, "usage: dtrain eval --checkpoint PATH [options]", kOptions)) {
    fmt::print("{}", *help);
    return ExitCode::ok;
  }
  const Placement placement = find_placement(invocation.environment);
  limit_threads(placement, invocation.environment);
  FdLog log(STDERR_FILENO, "dtrain", LogLevel::info);
  const auto timeout =
      std::chrono::nanoseconds(static_cast<std::int64_t>(options.real("timeout", 0.001, 1e6) * 1e9));
  const SavedWeights weights = open_weights(options.text("checkpoint"), "--checkpoint", log);
  const std::string model = option_or(options, "model", weights);
  const auto task = make_task(option_or(options, "task", weights, std::string(default_task(model))), model,
                              [&](TransformerShape& shape) { adjust(weights, shape); });
  const Splits splits = task->open(
      {.dataset = option_or(options, "dataset", weights),
       .data_dir = options.has("data-dir") ? options.text("data-dir") : "",
       .log = &log,
       .on_bad_sample = options.choice("on-bad-sample", {"stop", "skip"}) == "skip" ? OnBadSample::skip
                                                                                    : OnBadSample::stop});
  const DataFingerprint data = fingerprint(*splits.train, *splits.test);
  check_data(weights, data, !options.has("dataset") && *placement.rank == 0, log);
  const auto& source = splits.test;
  const auto device = make_device(options.text("device"), {.local_rank = *placement.local_rank});
  if (const std::string why = why_no_gpu(*device, invocation.environment);
      options.text("device") == "auto" && *placement.rank == 0 && !why.empty())
    log.write(LogLevel::warning, why);
  Peers peers(placement, backend_named(options.choice("backend", {"auto", "nccl", "tcp", "gloo", "mpi"})),
              invocation.environment, timeout, log, device.get());
  check_same_data(data, peers.communicator(), Deadline::after(timeout));
  Generator unused(0);
  const auto network = task->build(source->fields(), unused, device);
  load_weights(*network, weights, model);
  network->eval();
  const Evaluation result = evaluate(
      *task, [&](const Tensors& inputs) { return (*network)(inputs); }, source,
      {.batch_size = options.integer("batch-size", 1, INT32_MAX),
       .share = {peers.communicator().rank(), peers.communicator().size()},
       .patience = timeout},
      peers.communicator(), device);
  if (*placement.rank == 0) fmt::print("{}\n", options.enabled("json") ? json_of(result) : text_of(result));
  peers.leave();
  return ExitCode::ok;
}

}  // namespace dtrain
