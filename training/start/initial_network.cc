#include "training/start/initial_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "parallel/sync/batch_peers.h"
#include "runtime/base/error.h"
#include "runtime/data/loader.h"
#include "runtime/nn/layers.h"
#include "runtime/nn/trainable.h"
#include "training/batch_tensors.h"
#include "training/start/same_data.h"
#include "training/use/published_weights.h"
#include "training/use/weight_mismatch.h"
#include "training/use/weights.h"

namespace dtrain {
namespace {

MissingWeights missing_weights(const TrainConfig& config) {
  return config.init_partial ? MissingWeights::kept : MissingWeights::refused;
}

std::string told(const TrainConfig& config, const LeftOut& left) {
  std::string text;
  if (!left.kept.empty())
    text =
        fmt::format("not in {}, so they keep their initial values: {}", config.init_from, some_of(left.kept));
  if (!left.unused.empty())
    text += fmt::format("{}in {}, but not in the network, so they are not used: {}", text.empty() ? "" : "; ",
                        config.init_from, some_of(left.unused));
  return text.empty() ? "" : "--init-partial: " + text;
}

/// --init, before anything is loaded. What it did, for people.
std::string draw_weights(const TrainConfig& config, Module& network, Generator& generator) {
  if (!config.init) return "";
  const int count = initialize_weights(network, config.init, generator);
  if (count > 0) return fmt::format("--init: {} parameter{} drawn", count, count == 1 ? "" : "s");
  throw UsageError(
      fmt::format("--init: expected a model with parameters of two and more dimensions, got {}, which has "
                  "none; leave the "
                  "option out",
                  config.model));
}

// What a checkpoint has, if the run resumes from one, comes later and wins.
std::string load_published_weights(const TrainConfig& config, const PublishedFormat& format,
                                   Module& network) {
  return told(config, load_published(network, PublishedWeights::open(config.init_from), format, config.model,
                                     missing_weights(config)));
}

// What of the network the weights did not have, for people.
std::string load_initial_weights(const TrainConfig& config, const Task& task, std::span<const Field> fields,
                                 Module& network, Log& log) {
  if (config.init_from.empty()) {
    if (config.init_partial)
      throw UsageError("--init-partial: expected only with --init-from, which is not set");
    return "";
  }
  if (PublishedWeights::is_folder(config.init_from)) {
    const auto format = task.published_format(fields);
    if (format) return load_published_weights(config, *format, network);
    throw UsageError(
        fmt::format("--init-from {}: expected a run, a checkpoint or a .safetensors file, got a folder of "
                    "published weights, whose "
                    "names for {} are not known; name the tensors with dtrain convert --names",
                    config.init_from, config.model));
  }
  const SavedWeights weights = open_weights(config.init_from, "--init-from", log);
  check_initial_columns(weights.path.string(), weights.identity, fields);
  return told(config, load_weights(network, weights, config.model, missing_weights(config)));
}

// Before anything looks at which parameters learn. What it did, for people.
std::string freeze_parameters(const TrainConfig& config, Module& network) {
  if (config.freeze.empty()) return "";
  const std::size_t all = network.named_parameters().size();
  try {
    freeze(network, config.freeze);
  } catch (const UsageError& error) {
    throw UsageError(std::string("--") + error.what());
  }
  const NamedTensors frozen = frozen_parameters(network);
  if (frozen.size() == all)
    throw UsageError(fmt::format(
        "--freeze: expected patterns that leave a parameter to train, got some that match all {}", all));
  std::int64_t elements = 0;
  for (const auto& [name, tensor] : frozen) elements += tensor.numel();
  return fmt::format("--freeze: {} of {} parameters are frozen, {} of {} elements", frozen.size(), all,
                     elements, network.parameter_count());
}

/// Fills `own`, and returns what it holds for people. The task's groups come first, so that options win.
std::string name_groups(const TrainConfig& config, const Task& task, const Module& network,
                        OwnOptionsByName& own) {
  const NamedTensors all = parameters_by_all_names(network);
  std::string text;
  const auto add = [&](const NamedGroup& group, const std::string& what) {
    const std::vector<std::string> names = names_that_match(what, group.names, all);
    for (const std::string& name : names) {
      OwnOptions& options = own[name];
      if (group.lr) options.lr = group.lr;
      if (group.weight_decay) options.weight_decay = group.weight_decay;
    }
    const auto learning = std::ranges::count_if(trainable_parameters(network), [&](const NamedTensor& one) {
      return std::ranges::find(names, one.first) != names.end();
    });
    if (learning == 0)
      throw UsageError(
          fmt::format("{}: expected parameters that are trained, got '{}', all of which are "
                      "frozen; leave it out, or train them",
                      what, group.names));
    text += fmt::format("{}{}: {} parameter{}", text.empty() ? "parameter groups: " : "; ", group.names,
                        learning, learning == 1 ? "" : "s");
    if (group.lr) text += fmt::format(", learning rate {:g}", *group.lr);
    if (group.weight_decay) text += fmt::format(", weight decay {:g}", *group.weight_decay);
  };
  const std::vector<NamedGroup> of_task = task.parameter_groups();
  if (!of_task.empty() && config.servers > 0)
    throw UsageError(
        fmt::format("task {}: expected no parameter_groups() with --servers, which are sent one "
                    "learning rate a step, got {}; leave one of the two out",
                    task.name(), of_task.size()));
  for (const NamedGroup& group : of_task) add(group, fmt::format("task {}: parameter_groups()", task.name()));
  for (const NamedGroup& group : config.optimizer.groups)
    add(group, group.lr ? "--lr-of" : "--weight-decay-of");
  return text;
}

/// Which parameters Muon takes and which AdamW; empty for another optimizer. Throws UsageError where none is
/// left for Muon.
std::string muon_note(const TrainConfig& config, const Module& network, const ParameterKinds& kinds) {
  if (!std::holds_alternative<MuonOptions>(config.optimizer.rule)) return "";
  std::int64_t matrices = 0, elements = 0, others = 0;
  std::string example;
  for (const auto& [name, tensor] : trainable_parameters(network)) {
    if (kinds.outer.contains(name) || kinds.vectors.contains(name)) {
      ++others;
      continue;
    }
    if (example.empty()) example = name;
    ++matrices;
    elements += tensor.numel();
  }
  if (matrices == 0) {
    throw UsageError(fmt::format(
        "--optimizer muon: expected a model with weight matrices between its first and last layer, got {}, "
        "all of whose parameters are for adamw; use --optimizer adamw, or choose with --adamw-for",
        config.model));
  }
  return fmt::format("optimizer muon: {} matri{} ({}{}) of {} elements; adamw: the other {}", matrices,
                     matrices == 1 ? "x" : "ces", example, matrices == 1 ? "" : ", …", elements, others);
}

void apply_layer_options(const TrainConfig& config, Module& network, Communicator& sharing) {
  if (config.recompute && recompute_blocks(network) == 0) {
    throw UsageError(
        fmt::format("--recompute: expected a model with blocks that can be recomputed (residual networks, "
                    "language models), got {}, which has none; leave the option out",
                    config.model));
  }
  if (!config.sync_batch_norm) return;
  const auto peers = sharing.size() == 1 ? nullptr : make_batch_peers(sharing, config.collective_timeout);
  if (synchronize_batch_norms(network, peers) > 0) return;
  throw UsageError(
      fmt::format("--sync-batch-norm: expected a model with batch norm (resnet18, resnet50, …), got {}, "
                  "which has none; leave the option out",
                  config.model));
}

bool has_batch_norm(Module& network) {
  bool found = false;
  network.visit([&](Module& module) { found = found || dynamic_cast<BatchNorm*>(&module) != nullptr; });
  return found;
}

}  // namespace

InitialNetwork make_initial_network(const TrainConfig& config, const Task& task,
                                    std::span<const Field> fields, Communicator& sharing,
                                    const std::shared_ptr<Device>& device, Log& log) {
  Generator generator(config.seed);
  InitialNetwork made;
  made.network = task.build(fields, generator, device);
  if (made.network == nullptr) {
    throw UsageError(fmt::format("task {}: expected build() to return a network, got null", task.name()));
  }
  const std::string drawn = draw_weights(config, *made.network, generator);
  made.generator_state = generator.state();
  const std::string kept = load_initial_weights(config, task, fields, *made.network, log);
  for (std::string note : {freeze_parameters(config, *made.network),
                           name_groups(config, task, *made.network, made.own), kept, drawn}) {
    if (!note.empty()) made.notes.push_back(std::move(note));
  }
  made.parameters = made.trained = made.network->parameter_count();
  for (const auto& [name, tensor] : frozen_parameters(*made.network)) made.trained -= tensor.numel();
  made.kinds = kinds_of(config.optimizer, *made.network);
  if (std::string note = muon_note(config, *made.network, made.kinds); !note.empty())
    made.notes.push_back(std::move(note));
  apply_layer_options(config, *made.network, sharing);
  return made;
}

Tensors example_inputs(const Task& task, const std::shared_ptr<const Source>& source, std::int64_t samples,
                       const std::shared_ptr<Device>& device, const Deadline& deadline) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(std::min(samples, source->size())));
  std::iota(order.begin(), order.end(), 0);
  Loader loader(source, device, {.batch_size = static_cast<std::int64_t>(order.size())});
  loader.start(std::move(order), 0);
  const auto batch = loader.next(deadline);
  Tensors inputs;
  for (const Tensor& input : task.inputs(to_tensors(*batch, device))) inputs.push_back(input.clone());
  device->compute_stream().synchronize();  // the batch is still being copied from
  return inputs;
}

void check_smallest_batch(const TrainConfig& config, const TrainingData& data, Strategy& strategy,
                          int world_size, const std::function<Tensors()>& example) {
  const bool alone = !config.sync_batch_norm || world_size == 1;
  if (!alone || data.smallest_pass() > 1 || !has_batch_norm(strategy.module())) return;
  const NamedTensors buffers = strategy.module().named_buffers();
  std::vector<Tensor> before;
  for (const auto& [name, tensor] : buffers) before.push_back(tensor.detach().clone());
  try {
    strategy.evaluate(example());  // the network is in training: nobody has said otherwise
  } catch (const UsageError& error) {
    throw UsageError(fmt::format(
        "{}; some micro-batches of an epoch have one sample ({} samples, {} in a step, {} shares), too few "
        "for batch norm's statistics: use --drop-last, another --global-batch-size, or --sync-batch-norm",
        error.what(), data.train().size(), config.batch.global, strategy.share().size));
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) Tensor(buffers[i].second).copy_from(before[i]);
}

}  // namespace dtrain
