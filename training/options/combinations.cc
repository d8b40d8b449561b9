#include "training/options/combinations.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "runtime/base/error.h"
#include "training/options/parallelism.h"

namespace dtrain {
namespace {

struct Asked {
  const Options& options;
  const TrainConfig& config;
};

/// By the person who starts the run: on the command line, in the environment or in a file. Every run has the
/// others.
bool is_given(const Options& options, const std::string& name) {
  return options.has(name) && options.at(name).source != "default";
}

bool is_one_of(const Asked& asked, std::initializer_list<std::string_view> optimizers) {
  return std::ranges::find(optimizers, asked.options.text("optimizer")) != optimizers.end();
}

/// What can be asked for by an option.
struct Form {
  std::string_view option;
  std::string_view shown;    ///< where it is the other of a pair
  std::string_view allowed;  ///< what `option` may be where this does not go
  bool (*is_asked)(const Asked&);
};

#define DTRAIN_WHERE(condition) [](const Asked& asked) -> bool { return condition; }
#define DTRAIN_GIVEN(name) DTRAIN_WHERE(is_given(asked.options, name))

// clang-format off
constexpr Form
    kGlobalBatchSize{"global-batch-size", "--global-batch-size", "nothing", DTRAIN_GIVEN("global-batch-size")},
    kBatchSize{"batch-size", "--batch-size", "nothing", DTRAIN_GIVEN("batch-size")},
    kAccumulate{"accumulate", "--accumulate", "1", DTRAIN_WHERE(asked.config.accumulate > 1)},
    kVirtualWorkers{"virtual-workers", "--virtual-workers", "nothing", DTRAIN_WHERE(asked.config.virtual_workers > 0)},
    kSyncBatchNorm{"sync-batch-norm", "--sync-batch-norm", "nothing", DTRAIN_WHERE(asked.config.sync_batch_norm)},
    kCompress{"compress", "--compress", "none", DTRAIN_WHERE(asked.config.compress.kind != Compression::Kind::none)},
    kShard{"shard", "--shard", "nothing", DTRAIN_WHERE(asked.config.shard.has_value())},
    kShardGradients{"shard", "--shard gradients and parameters", "optimizer or none", DTRAIN_WHERE(asked.config.shard.value_or(ShardStage::optimizer) != ShardStage::optimizer)},
    kShardParameters{"shard", "--shard parameters", "optimizer, gradients or none", DTRAIN_WHERE(asked.config.shard == ShardStage::parameters)},
    kShardPartitioned{"shard", "--shard optimizer", "none", DTRAIN_WHERE(asked.config.mesh.empty() && partitions_optimizer(asked.config))},
    kShardRanges{"shard", "--shard", "none", DTRAIN_WHERE(asked.config.shard.has_value() && !partitions_optimizer(asked.config))},
    kShardGroup{"shard-group", "--shard-group", "job", DTRAIN_WHERE(asked.config.shard_group != 0)},
    kTensor{"tensor", "--tensor", "1", DTRAIN_WHERE(asked.config.tensor > 1 || axis_size(asked.config, "tp") > 1)},
    kPipeline{"pipeline", "--pipeline", "1", DTRAIN_WHERE(axis_size(asked.config, "pp") > 1 || asked.config.device_stages > 0)},
    kWorkerStages{"pipeline", "--pipeline", "1", DTRAIN_WHERE(axis_size(asked.config, "pp") > 1)},
    kDeviceStages{"pipeline", "--pipeline over --devices", "1", DTRAIN_WHERE(asked.config.device_stages > 0)},
    kMesh{"mesh", "--mesh", "nothing", DTRAIN_GIVEN("mesh")},
    kModelParallel{"mesh", "--tensor and --pipeline", "nothing", DTRAIN_WHERE(!asked.config.mesh.empty())},
    kMicroBatches{"micro-batches", "--micro-batches", "nothing", DTRAIN_GIVEN("micro-batches")},
    kSchedule{"schedule", "--schedule", "1f1b", DTRAIN_WHERE(asked.config.schedule != PipelineSchedule::one_forward_one_backward)},
    kInterleaved{"schedule", "--schedule interleaved", "1f1b or gpipe", DTRAIN_WHERE(asked.config.schedule == PipelineSchedule::interleaved)},
    kChunks{"chunks", "--chunks", "nothing", DTRAIN_GIVEN("chunks")},
    kStages{"stages", "--stages", "even", DTRAIN_WHERE(asked.config.stages.kind != StageCut::Kind::even)},
    kSequenceParallel{"sequence-parallel", "--sequence-parallel", "nothing", DTRAIN_WHERE(asked.config.sequence_parallel)},
    kSyncEvery{"sync-every", "--sync-every", "0", DTRAIN_WHERE(asked.config.sync_every > 0)},
    kLocalSgd{"sync-every", "--sync-every without --outer-lr", "0", DTRAIN_WHERE(asked.config.sync_every > 0 && !asked.config.outer_lr)},
    kOuterLr{"outer-lr", "--outer-lr", "nothing", DTRAIN_WHERE(asked.config.outer_lr.has_value())},
    kOuterMomentum{"outer-momentum", "--outer-momentum", "nothing", DTRAIN_GIVEN("outer-momentum")},
    kServers{"servers", "--servers", "0", DTRAIN_WHERE(asked.config.servers > 0)},
    kSeveralServers{"servers", "--servers 2 and more", "0 or 1", DTRAIN_WHERE(asked.config.servers > 1)},
    kAsync{"update", "--update async", "sync", DTRAIN_WHERE(asked.config.update == ServerUpdate::async)},
    kMaxStaleness{"max-staleness", "--max-staleness", "nothing", DTRAIN_GIVEN("max-staleness")},
    kLayerwise{"optimizer", "--optimizer lars and lamb", "one without a rate for each layer", DTRAIN_WHERE(is_one_of(asked, {"lars", "lamb"}))},
    kSgd{"optimizer", "--optimizer sgd", "another", DTRAIN_WHERE(is_one_of(asked, {"sgd"}))},
    kMoments{"optimizer", "--optimizer adam, adamw or lamb", "another", DTRAIN_WHERE(is_one_of(asked, {"adam", "adamw", "lamb"}))},
    kRmsProp{"optimizer", "--optimizer rmsprop", "another", DTRAIN_WHERE(is_one_of(asked, {"rmsprop"}))},
    kAdagrad{"optimizer", "--optimizer adagrad", "another", DTRAIN_WHERE(is_one_of(asked, {"adagrad"}))},
    kLars{"optimizer", "--optimizer lars", "another", DTRAIN_WHERE(is_one_of(asked, {"lars"}))},
    kTakesMomentum{"optimizer", "--optimizer sgd, rmsprop or lars", "another", DTRAIN_WHERE(is_one_of(asked, {"sgd", "rmsprop", "lars"}))},
    kTakesEps{"optimizer", "--optimizer adam, adamw, lamb, rmsprop or adagrad", "another", DTRAIN_WHERE(!is_one_of(asked, {"sgd", "lars"}))},
    kMomentum{"momentum", "--momentum", "0", DTRAIN_WHERE(asked.config.momentum > 0)},
    kDampening{"dampening", "--dampening", "0", DTRAIN_WHERE(asked.config.dampening > 0)},
    kNesterov{"nesterov", "--nesterov", "nothing", DTRAIN_WHERE(asked.config.nesterov)},
    kPlainMomentum{"momentum", "--momentum", "0", DTRAIN_WHERE(asked.config.momentum > 0 && asked.config.dampening == 0)},
    kBetas{"betas", "--betas", "nothing", DTRAIN_GIVEN("betas")},
    kEps{"eps", "--eps", "nothing", DTRAIN_GIVEN("eps")},
    kAlpha{"alpha", "--alpha", "nothing", DTRAIN_GIVEN("alpha")},
    kCentered{"centered", "--centered", "nothing", DTRAIN_WHERE(asked.config.centered)},
    kLrDecay{"lr-decay", "--lr-decay", "0", DTRAIN_WHERE(asked.config.lr_decay > 0)},
    kAccumulator{"initial-accumulator", "--initial-accumulator", "0", DTRAIN_WHERE(asked.config.initial_accumulator > 0)},
    kTrust{"trust", "--trust", "nothing", DTRAIN_GIVEN("trust")},
    kClipNorm{"clip-grad-norm", "--clip-grad-norm", "nothing", DTRAIN_GIVEN("clip-grad-norm")},
    kStepDecay{"lr-schedule", "--lr-schedule step", "constant or cosine", DTRAIN_WHERE(asked.config.lr_kind == LrKind::step)},
    kDecayEvery{"lr-decay-every", "--lr-decay-every", "nothing", DTRAIN_GIVEN("lr-decay-every")},
    kGamma{"lr-gamma", "--lr-gamma", "nothing", DTRAIN_GIVEN("lr-gamma")},
    kCosine{"lr-schedule", "--lr-schedule cosine", "constant or step", DTRAIN_WHERE(asked.config.lr_kind == LrKind::cosine)},
    kMinLr{"min-lr", "--min-lr", "nothing", DTRAIN_GIVEN("min-lr")},
    kScaleLr{"scale-lr", "--scale-lr", "none", DTRAIN_WHERE(asked.options.text("scale-lr") != "none")},
    kBaseBatch{"base-batch-size", "--base-batch-size", "nothing", DTRAIN_GIVEN("base-batch-size")},
    kDevice{"device", "--device", "nothing", DTRAIN_WHERE(asked.config.device != "auto")},
    kDevices{"devices", "--devices", "nothing", DTRAIN_GIVEN("devices")},
    kStageDevices{"devices", "--devices", "nothing", DTRAIN_WHERE(asked.config.device_stages > 0)},
    kReplicas{"devices", "--devices", "nothing", DTRAIN_WHERE(has_replicas(asked.config))},
    kSeveralDevices{"devices", "--devices", "nothing", DTRAIN_WHERE(is_given(asked.options, "devices") || asked.config.placed)},
    kPlace{"place", "--place", "nothing", DTRAIN_WHERE(asked.config.placed)},
    kPlaceAuto{"place", "--place auto", "a map", DTRAIN_WHERE(asked.config.placed && asked.options.text("place") == "auto")},
    kUpdateOnHost{"update-on", "--update-on host", "device", DTRAIN_WHERE(asked.config.update_on_host)},
    kFp16{"precision", "--precision fp16", "fp32 or bf16", DTRAIN_WHERE(asked.config.precision == Precision::fp16)},
    kGraph{"cuda-graph", "--cuda-graph on", "auto or off", DTRAIN_WHERE(asked.config.graphs == GraphUse::on)},
    kBackend{"backend", "--backend", "auto", DTRAIN_WHERE(asked.config.backend != Backend::automatic)},
    kAllReduce{"allreduce", "--allreduce", "auto", DTRAIN_WHERE(asked.config.all_reduce != AllReduceAlgorithm::automatic)},
    kNccl{"backend", "--backend nccl", "another", DTRAIN_WHERE(asked.config.backend == Backend::nccl)},
    kThreadWorkers{"thread-workers", "--thread-workers", "1", DTRAIN_WHERE(asked.config.thread_workers > 1)},
    kPeerSnapshots{"peer-snapshots", "--peer-snapshots", "0", DTRAIN_WHERE(asked.config.peer_snapshots > 0)},
    kCheckReplicas{"check-replicas", "--check-replicas", "0", DTRAIN_WHERE(asked.config.check_replicas > 0)},
    kTrace{"trace", "--trace", "nothing", DTRAIN_GIVEN("trace")},
    kTraceSteps{"trace-steps", "--trace-steps", "nothing", DTRAIN_GIVEN("trace-steps")};

/// `form` is refused with `other`: "expected <form.allowed> with <other.shown><reason>".
struct Exclusion {
  Form form, other;
  std::string_view reason;
};

constexpr Exclusion kExclusions[] = {
    {kBatchSize, kGlobalBatchSize, ", which says the same for all workers together"},
    {kAccumulate, kVirtualWorkers, ", whose parts are passes already"},
    {kAccumulate, kPipeline, "; choose --micro-batches"},
    {kSyncBatchNorm, kVirtualWorkers, ", whose parts have statistics of their own"},
    {kSyncBatchNorm, kSeveralDevices, ", where each device has its statistics"},
    {kSyncBatchNorm, kAsync, ", where workers do not wait for each other"},
    {kShardGradients, kVirtualWorkers, ", which adds whole gradients up"},
    {kShardGradients, kPlace, ", whose parameters are whole, each on its device"},
    {kShardGradients, kDeviceStages, ", whose parameters are whole, each on its device"},
    {kShard, kLocalSgd, ", where each worker has an optimizer of its own"},
    {kShard, kServers, ", which hold the optimizer's state"},
    {kShardGroup, kTensor, ", whose copies of a part share its state out"},
    {kShardGroup, kWorkerStages, ", whose copies of a part share its state out"},
    {kShardGroup, kShardPartitioned, " with --virtual-workers, --place or stages on --devices, where all workers share the optimizer's state out"},
    {kCompress, kVirtualWorkers, ": what it loses depends on the number of workers"},
    {kCompress, kShardGradients, ", whose gradients go to their owners whole"},
    {kCompress, kShardRanges, ", whose gradients go to their owners whole (but for --shard optimizer with --pipeline, --tensor or --place)"},
    {kCompress, kDeviceStages, ", whose gradients go tensor by tensor"},
    {kCompress, kSyncEvery, ", which sends no gradients"},
    {kCompress, kServers, ", which take whole gradients"},
    {kMicroBatches, kVirtualWorkers, ", whose parts are the micro-batches"},
    {kTensor, kDeviceStages, ", whose layers are whole"},
    {kMesh, kDeviceStages, ", whose stages are no workers"},
    {kSequenceParallel, kDeviceStages, ", whose layers are whole"},
    {kInterleaved, kVirtualWorkers, ", whose parts come back in one order"},
    {kVirtualWorkers, kSyncEvery, ", which averages the weights of workers, however many there are"},
    {kVirtualWorkers, kServers, ", which add up a gradient of each worker, not part"},
    {kSyncEvery, kServers, ", which take each step's gradients"},
    {kSyncEvery, kModelParallel, ", whose workers hold parts of a network"},
    {kSyncEvery, kPlace, ", which shares gradients in each step"},
    {kSyncEvery, kDeviceStages, ", which shares gradients in each step"},
    {kDevices, kServers, ", whose workers have one device each"},
    {kPlace, kServers, ", whose workers have one device each"},
    {kPeerSnapshots, kServers, ", where workers do not hold the optimizer's state; use --checkpoint-every"},
    {kServers, kModelParallel, ", whose workers hold parts of a network"},
    {kFp16, kSyncEvery, ", whose workers would overflow one by one"},
    {kFp16, kServers, ", whose workers would overflow one by one"},
    {kClipNorm, kSeveralServers, ", each of which would see the norm of its part only"},
    {kCheckReplicas, kAsync, ", where workers hold different weights"},
    {kPlace, kDeviceStages, ", which places its stages"},
    {kUpdateOnHost, kPlace, ", where each part is updated on its device"},
    {kUpdateOnHost, kDeviceStages, ", where each part is updated on its device"},
    {kDevice, kDevices, ", which names them"},
    {kDevice, kPlace, ", which names them"},
    {kStageDevices, kVirtualWorkers, ", whose parts are computed one after the other"},
    {kReplicas, kVirtualWorkers, ", whose parts a worker computes one after the other; for several at a time use --thread-workers, or a process for each GPU (or --place, for parts of the network)"},
    {kDevices, kModelParallel, ", whose messages belong to one thread"},
    {kPlace, kModelParallel, ", whose messages belong to one thread"},
    {kReplicas, kShardParameters, ", which are whole on one device at a time"},
    {kGraph, kSeveralDevices, ", since a graph is of one device"},
    {kGraph, kLayerwise, ", whose steps are not recorded"},
    {kLayerwise, kShardRanges, ", where workers hold parts of layers (but for --shard optimizer with --pipeline, --virtual-workers or --place)"},
    {kLayerwise, kOuterLr, ", whose optimizers see layers as ranges of elements"},
    {kLayerwise, kTensor, ", where workers hold parts of layers"},
    {kLayerwise, kSeveralServers, ", which hold parts of layers"},
    {kAllReduce, kNccl, ", which chooses by itself (NCCL_ALGO)"},
    {kAllReduce, kServers, ", where workers send gradients to servers"},
    {kBackend, kThreadWorkers, ", which share the memory of their process"},
    {kPeerSnapshots, kThreadWorkers, ", which are lost together"},
};

/// `form` is refused without `needed`.
struct Need {
  Form form, needed;
  std::string_view expected;
};

constexpr Need kNeeds[] = {
    {kShardGroup, kShard, "--shard with it, which says what is shared out"},
    {kOuterLr, kSyncEvery, "--sync-every H with it, the steps between two outer ones"},
    {kOuterMomentum, kOuterLr, "--outer-lr X with it, the rate of the outer steps"},
    {kMicroBatches, kPipeline, "--pipeline N with it, with N of 2 or more; --accumulate is for the others"},
    {kSchedule, kPipeline, "--pipeline N with it, with N of 2 or more; --accumulate is for the others"},
    {kChunks, kInterleaved, "--schedule interleaved with it, whose stages have several"},
    {kStages, kPipeline, "even, or --pipeline N with it, with N of 2 or more"},
    {kSequenceParallel, kTensor, "--tensor N with it, with N of 2 or more"},
    {kAsync, kServers, "--servers N with it (of dtrain-launch, or of the program under mpirun)"},
    {kMaxStaleness, kAsync, "--update async with it, with --servers N"},
    {kPlaceAuto, kDevices, "--devices with auto, as in cpu:0,cpu:1"},
    {kUpdateOnHost, kSeveralDevices, "--devices with it"},
    {kMomentum, kTakesMomentum, "--optimizer sgd, rmsprop or lars with it, which have momentum"},
    {kDampening, kSgd, "--optimizer sgd with it"},
    {kNesterov, kSgd, "--optimizer sgd with it"},
    {kNesterov, kPlainMomentum, "--momentum above 0 and --dampening 0 with it"},
    {kBetas, kMoments, "--optimizer adam, adamw or lamb with it, which have moments"},
    {kEps, kTakesEps, "--optimizer adam, adamw, lamb, rmsprop or adagrad with it"},
    {kAlpha, kRmsProp, "--optimizer rmsprop with it"},
    {kCentered, kRmsProp, "--optimizer rmsprop with it"},
    {kLrDecay, kAdagrad, "--optimizer adagrad with it; --lr-schedule is for the others"},
    {kAccumulator, kAdagrad, "--optimizer adagrad with it"},
    {kTrust, kLars, "--optimizer lars with it"},
    {kStepDecay, kDecayEvery, "--lr-decay-every N (optimizer steps) with it"},
    {kDecayEvery, kStepDecay, "--lr-schedule step with it"},
    {kGamma, kStepDecay, "--lr-schedule step with it"},
    {kMinLr, kCosine, "--lr-schedule cosine with it"},
    {kBaseBatch, kScaleLr, "--scale-lr linear or sqrt with it"},
    {kTraceSteps, kTrace, "--trace FILE or --trace auto with it"},
};
// clang-format on

#undef DTRAIN_GIVEN
#undef DTRAIN_WHERE

/// "on" of "--cuda-graph on": the value that a row is about; nothing where it is about the option whatever
/// its value.
std::string_view value_of(const Form& form) {
  const std::string whole = fmt::format("--{} ", form.option);
  return form.shown.starts_with(whole) ? form.shown.substr(whole.size()) : std::string_view();
}

/// What --help says of one option: "lamb: not with --tensor; step: needs --lr-decay-every".
std::string help_of(std::string_view option) {
  std::vector<std::string_view> values;  // in the order of the rows
  std::vector<std::vector<std::string_view>> others;
  for (const Exclusion& row : kExclusions) {
    if (row.form.option != option) continue;
    const auto value = std::ranges::find(values, value_of(row.form));
    const auto at = static_cast<std::size_t>(value - values.begin());
    if (value == values.end()) values.push_back(value_of(row.form)), others.emplace_back();
    if (std::ranges::find(others[at], row.other.shown) == others[at].end())
      others[at].push_back(row.other.shown);
  }
  const auto of_value = [](std::string_view value) {
    return value.empty() ? std::string() : fmt::format("{}: ", value);
  };
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < values.size(); ++i) {
    parts.push_back(fmt::format("{}not with {}", of_value(values[i]), fmt::join(others[i], ", ")));
  }
  for (const Need& row : kNeeds) {
    if (row.form.option == option)
      parts.push_back(fmt::format("{}needs {}", of_value(value_of(row.form)), row.needed.shown));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::string_view without_comma(std::string_view reason) {
  return reason.substr(std::min(reason.find_first_not_of(",;: "), reason.size()));
}

}  // namespace

void check_combinations(const Options& options, const TrainConfig& config) {
  const Asked asked{options, config};
  for (const auto& [form, other, reason] : kExclusions) {
    if (form.is_asked(asked) && other.is_asked(asked))
      options.refuse(std::string(form.option),
                     fmt::format("{} with {}{}", form.allowed, other.shown, reason));
  }
  for (const auto& [form, needed, expected] : kNeeds) {
    if (form.is_asked(asked) && !needed.is_asked(asked))
      options.refuse(std::string(form.option), std::string(expected));
  }
}

std::string combinations_help() {
  std::string text = "\nCombinations\n";
  for (const OptionSpec& spec : train_options()) {
    const std::string help = help_of(spec.name);
    if (!help.empty()) text += help_line(fmt::format("--{}", spec.name), help);
  }
  return text;
}

std::string combinations_markdown() {
  std::string text = "| option | with | only | |\n|---|---|---|---|\n";
  for (const OptionSpec& spec : train_options()) {
    for (const auto& [form, other, reason] : kExclusions) {
      if (form.option == spec.name)
        text += fmt::format("| `--{}` | `{}` | {} | {} |\n", form.option, other.shown, form.allowed,
                            without_comma(reason));
    }
    for (const auto& [form, needed, expected] : kNeeds) {
      if (form.option == spec.name) text += fmt::format("| `{}` | | {} | |\n", form.shown, expected);
    }
  }
  return text;
}

}  // namespace dtrain
