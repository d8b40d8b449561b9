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

bool has_schedule(const Asked& asked, std::initializer_list<LrKind> kinds) {
  return std::ranges::find(kinds, asked.config.lr_kind) != kinds.end();
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
    kShardGradients{"shard", "--shard gradients or parameters", "optimizer or none", DTRAIN_WHERE(asked.config.shard.value_or(ShardStage::optimizer) != ShardStage::optimizer)},
    kShardParameters{"shard", "--shard parameters", "optimizer, gradients or none", DTRAIN_WHERE(asked.config.shard == ShardStage::parameters)},
    kShardPartitioned{"shard", "--shard optimizer", "none", DTRAIN_WHERE(asked.config.mesh.empty() && partitions_optimizer(asked.config))},
    kShardRanges{"shard", "--shard", "none", DTRAIN_WHERE(asked.config.shard.has_value() && !partitions_optimizer(asked.config))},
    kShardGroup{"shard-group", "--shard-group", "job", DTRAIN_WHERE(asked.config.shard_group != 0)},
    kTensor{"tensor", "--tensor", "1", DTRAIN_WHERE(asked.config.tensor > 1 || axis_size(asked.config, "tp") > 1)},
    kPipeline{"pipeline", "--pipeline", "1", DTRAIN_WHERE(axis_size(asked.config, "pp") > 1 || asked.config.device_stages > 0)},
    kWorkerStages{"pipeline", "--pipeline", "1", DTRAIN_WHERE(axis_size(asked.config, "pp") > 1)},
    kDeviceStages{"pipeline", "--pipeline over --devices", "1", DTRAIN_WHERE(asked.config.device_stages > 0)},
    kMesh{"mesh", "--mesh", "nothing", DTRAIN_GIVEN("mesh")},
    kModelParallel{"mesh", "--tensor or --pipeline", "nothing", DTRAIN_WHERE(!asked.config.mesh.empty())},
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
    kSeveralServers{"servers", "--servers above 1", "0 or 1", DTRAIN_WHERE(asked.config.servers > 1)},
    kAsync{"update", "--update async", "sync", DTRAIN_WHERE(asked.config.update == ServerUpdate::async)},
    kMaxStaleness{"max-staleness", "--max-staleness", "nothing", DTRAIN_GIVEN("max-staleness")},
    kLayerwise{"optimizer", "--optimizer lars, lamb or muon", "one that updates each element by itself", DTRAIN_WHERE(is_one_of(asked, {"lars", "lamb", "muon"}))},
    kMuon{"optimizer", "--optimizer muon", "another", DTRAIN_WHERE(is_one_of(asked, {"muon"}))},
    kAdamWFor{"adamw-for", "--adamw-for", "nothing", DTRAIN_GIVEN("adamw-for")},
    kMuonScale{"muon-scale", "--muon-scale", "nothing", DTRAIN_GIVEN("muon-scale")},
    kSgd{"optimizer", "--optimizer sgd", "another", DTRAIN_WHERE(is_one_of(asked, {"sgd"}))},
    kMoments{"optimizer", "--optimizer adam, adamw, lamb, lion or muon", "another", DTRAIN_WHERE(is_one_of(asked, {"adam", "adamw", "lamb", "lion", "muon"}))},
    kRmsProp{"optimizer", "--optimizer rmsprop", "another", DTRAIN_WHERE(is_one_of(asked, {"rmsprop"}))},
    kAdagrad{"optimizer", "--optimizer adagrad", "another", DTRAIN_WHERE(is_one_of(asked, {"adagrad"}))},
    kLars{"optimizer", "--optimizer lars", "another", DTRAIN_WHERE(is_one_of(asked, {"lars"}))},
    kTakesMomentum{"optimizer", "--optimizer sgd, rmsprop, lars or muon", "another", DTRAIN_WHERE(is_one_of(asked, {"sgd", "rmsprop", "lars", "muon"}))},
    kTakesEps{"optimizer", "--optimizer adam, adamw, lamb, rmsprop, adagrad or muon", "another", DTRAIN_WHERE(!is_one_of(asked, {"sgd", "lars", "lion"}))},
    kLrOf{"lr-of", "--lr-of", "nothing", DTRAIN_GIVEN("lr-of")},
    kWeightDecayOf{"weight-decay-of", "--weight-decay-of", "nothing", DTRAIN_GIVEN("weight-decay-of")},
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
    kEma{"ema", "--ema", "nothing", DTRAIN_GIVEN("ema")},
    kSwa{"swa-from", "--swa-from", "nothing", DTRAIN_GIVEN("swa-from")},
    kClipNorm{"clip-grad-norm", "--clip-grad-norm", "nothing", DTRAIN_GIVEN("clip-grad-norm")},
    kStepDecay{"lr-schedule", "--lr-schedule step", "another", DTRAIN_WHERE(asked.config.lr_kind == LrKind::step)},
    kDecayEvery{"lr-decay-every", "--lr-decay-every", "nothing", DTRAIN_GIVEN("lr-decay-every")},
    kGamma{"lr-gamma", "--lr-gamma", "nothing", DTRAIN_GIVEN("lr-gamma")},
    kHasLeast{"lr-schedule", "--lr-schedule linear, polynomial, cosine, one-cycle, wsd or plateau", "another", DTRAIN_WHERE(has_schedule(asked, {LrKind::linear, LrKind::polynomial, LrKind::cosine, LrKind::one_cycle, LrKind::wsd, LrKind::plateau}))},
    kHasGamma{"lr-schedule", "--lr-schedule step, exponential or plateau", "another", DTRAIN_WHERE(has_schedule(asked, {LrKind::step, LrKind::exponential, LrKind::plateau}))},
    kDecaysEvery{"lr-schedule", "--lr-schedule step or exponential", "another", DTRAIN_WHERE(has_schedule(asked, {LrKind::step, LrKind::exponential}))},
    kExponential{"lr-schedule", "--lr-schedule exponential", "another", DTRAIN_WHERE(has_schedule(asked, {LrKind::exponential}))},
    kOneCycle{"lr-schedule", "--lr-schedule one-cycle", "another", DTRAIN_WHERE(has_schedule(asked, {LrKind::one_cycle}))},
    kInverseSqrt{"lr-schedule", "--lr-schedule inverse-sqrt", "another", DTRAIN_WHERE(has_schedule(asked, {LrKind::inverse_sqrt}))},
    kWsd{"lr-schedule", "--lr-schedule wsd", "another", DTRAIN_WHERE(has_schedule(asked, {LrKind::wsd}))},
    kPlateau{"lr-schedule", "--lr-schedule plateau", "another", DTRAIN_WHERE(has_schedule(asked, {LrKind::plateau}))},
    kCooldown{"lr-cooldown", "--lr-cooldown", "nothing", DTRAIN_GIVEN("lr-cooldown")},
    kLrPatience{"lr-patience", "--lr-patience", "nothing", DTRAIN_GIVEN("lr-patience")},
    kMonitor{"monitor", "--monitor", "nothing", DTRAIN_GIVEN("monitor")},
    kMonitors{"early-stopping", "--early-stopping, --keep-best or --lr-schedule plateau", "nothing", DTRAIN_WHERE(asked.config.early_stopping || asked.config.keep_best || asked.config.lr_kind == LrKind::plateau)},
    kEarlyStopping{"early-stopping", "--early-stopping", "nothing", DTRAIN_GIVEN("early-stopping")},
    kKeepBest{"keep-best", "--keep-best", "nothing", DTRAIN_WHERE(asked.config.keep_best)},
    kEvaluates{"eval-every", "--eval-every above 0", "0", DTRAIN_WHERE(asked.config.eval_every > 0)},
    kEvalFirst{"eval-first", "--eval-first", "nothing", DTRAIN_WHERE(asked.config.eval_first)},
    kTrainMetrics{"train-metrics", "--train-metrics", "nothing", DTRAIN_WHERE(asked.config.train_metrics)},
    kPolynomial{"lr-schedule", "--lr-schedule polynomial", "another", DTRAIN_WHERE(asked.config.lr_kind == LrKind::polynomial)},
    kPower{"lr-power", "--lr-power", "nothing", DTRAIN_GIVEN("lr-power")},
    kDecayAt{"lr-decay-at", "--lr-decay-at", "nothing", DTRAIN_GIVEN("lr-decay-at")},
    kDecays{"lr-decay-every", "--lr-decay-every or --lr-decay-at", "nothing", DTRAIN_WHERE(is_given(asked.options, "lr-decay-every") || is_given(asked.options, "lr-decay-at"))},
    kWarmupSteps{"warmup-steps", "--warmup-steps", "0", DTRAIN_WHERE(asked.config.warmup_steps > 0)},
    kWarmupEpochs{"warmup-epochs", "--warmup-epochs", "nothing", DTRAIN_GIVEN("warmup-epochs")},
    kWarmup{"warmup-epochs", "--warmup-epochs or --warmup-steps", "nothing", DTRAIN_WHERE(asked.config.warmup_steps > 0 || asked.config.warmup_epochs.has_value())},
    kWarmupFrom{"warmup-from", "--warmup-from", "0", DTRAIN_WHERE(asked.config.warmup_from > 0)},
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
    kOptimizer{"optimizer", "--optimizer", "nothing", DTRAIN_GIVEN("optimizer")},
    kLr{"lr", "--lr", "nothing", DTRAIN_GIVEN("lr")},
    kWeightDecay{"weight-decay", "--weight-decay", "nothing", DTRAIN_GIVEN("weight-decay")},
    kOwnOptimizer{"", "a task that makes its optimizer", "", DTRAIN_WHERE(asked.config.task.has_optimizer)},
    kOwnGroups{"", "a task with groups of parameters", "", DTRAIN_WHERE(asked.config.task.has_groups)},
    kPhases{"", "a task of several phases", "", DTRAIN_WHERE(asked.config.task.phases > 0)},
    kAfterUpdate{"", "a task with an after_update()", "", DTRAIN_WHERE(asked.config.task.has_after_update)},
    kStepLoss{"", "a task with a step_loss()", "", DTRAIN_WHERE(asked.config.task.has_step_loss)},
    kGroupLoss{"", "a task with a group_loss()", "", DTRAIN_WHERE(asked.config.task.has_group_loss)},
    kTrace{"trace", "--trace", "nothing", DTRAIN_GIVEN("trace")},
    kTraceSteps{"trace-steps", "--trace-steps", "nothing", DTRAIN_GIVEN("trace-steps")};

/// `form` is refused with `other`: "expected <form.allowed> with <other.shown><reason>".
struct Exclusion {
  Form form, other;
  std::string_view reason;
};

constexpr Exclusion kExclusions[] = {
    {kDecayAt, kDecayEvery, ", which sets the same in steps"},
    {kPlateau, kAsync, ", where workers are at different steps when one evaluates"},
    {kEarlyStopping, kAsync, ", where workers are at different steps when one evaluates"},
    {kKeepBest, kAsync, ", where workers are at different steps when one evaluates"},
    {kEvalFirst, kAsync, ", where other workers change the weights while one evaluates"},
    {kTrainMetrics, kAsync, ", where workers are in different epochs"},
    {kTrainMetrics, kTensor, ", where each worker has part of the outputs in training"},
    {kTrainMetrics, kPhases, ", each of which has outputs of its own"},
    {kTrainMetrics, kGraph, ", since a recorded step tells the host only its loss"},
    {kWarmupEpochs, kWarmupSteps, ", which sets the same in steps"},
    {kBatchSize, kGlobalBatchSize, ", which sets the same for all workers together"},
    {kAccumulate, kVirtualWorkers, ", whose parts are micro-batches already"},
    {kAccumulate, kPipeline, "; choose --micro-batches"},
    {kSyncBatchNorm, kVirtualWorkers, ", where each micro-batch has its own statistics"},
    {kSyncBatchNorm, kSeveralDevices, ", where each device has its own statistics"},
    {kSyncBatchNorm, kAsync, ", where workers do not wait for each other"},
    {kShardGradients, kVirtualWorkers, ", which sums whole gradients"},
    {kShardGradients, kPlace, ", which keeps each parameter whole on its device"},
    {kShardGradients, kDeviceStages, ", which keeps each parameter whole on its device"},
    {kShard, kLocalSgd, ", where each worker has its own optimizer"},
    {kShard, kServers, ", which keep the optimizer state"},
    {kShardGroup, kTensor, ", where the replicas of each shard split its optimizer state"},
    {kShardGroup, kWorkerStages, ", where the replicas of each shard split its optimizer state"},
    {kShardGroup, kShardPartitioned, " with --virtual-workers, --place or stages on --devices, where all workers split the optimizer state"},
    {kCompress, kVirtualWorkers, ": its rounding errors would depend on the number of workers"},
    {kCompress, kShardGradients, ", which sends whole gradients to their owners"},
    {kCompress, kShardRanges, ", which sends whole gradients to their owners (except for --shard optimizer with --pipeline, --tensor or --place)"},
    {kCompress, kDeviceStages, ", which sends gradients tensor by tensor"},
    {kCompress, kSyncEvery, ", which sends no gradients"},
    {kCompress, kServers, ", which expect whole gradients"},
    {kMicroBatches, kVirtualWorkers, ", which sets the micro-batches"},
    {kTensor, kDeviceStages, ", which does not split layers"},
    {kMesh, kDeviceStages, ", whose stages are devices, not workers"},
    {kSequenceParallel, kDeviceStages, ", which does not split layers"},
    {kInterleaved, kVirtualWorkers, ", whose micro-batches must finish in a fixed order"},
    {kVirtualWorkers, kSyncEvery, ", whose result depends on the number of workers"},
    {kVirtualWorkers, kServers, ", which sum one gradient per worker, not per micro-batch"},
    {kSyncEvery, kServers, ", which need the gradients of every step"},
    {kSyncEvery, kModelParallel, ", whose workers each have only part of the network"},
    {kSyncEvery, kPlace, ", which averages gradients in every step"},
    {kSyncEvery, kDeviceStages, ", which averages gradients in every step"},
    {kDevices, kServers, ", whose workers have one device each"},
    {kPlace, kServers, ", whose workers have one device each"},
    {kPeerSnapshots, kServers, ", where workers do not have the optimizer state; use --checkpoint-every"},
    {kServers, kModelParallel, ", whose workers each have only part of the network"},
    {kFp16, kSyncEvery, ", where each worker would find an overflow on its own"},
    {kFp16, kServers, ", where each worker would find an overflow on its own"},
    {kClipNorm, kSeveralServers, ", each of which would see the norm of only its own part"},
    {kCheckReplicas, kAsync, ", where workers have different weights"},
    {kLrOf, kServers, ", which are sent one learning rate a step"},
    {kWeightDecayOf, kServers, ", which know parameters by their own keys, not by name"},
    {kEma, kServers, ", which keep the weights"},
    {kEma, kOuterLr, ", whose outer steps change the weights again"},
    {kSwa, kEma, ", which is another average"},
    {kSwa, kServers, ", which keep the weights"},
    {kSwa, kOuterLr, ", whose outer steps change the weights again"},
    {kPlace, kDeviceStages, ", which places its stages"},
    {kUpdateOnHost, kPlace, ", where each layer is updated on its own device"},
    {kUpdateOnHost, kDeviceStages, ", where each layer is updated on its own device"},
    {kDevice, kDevices, ", which names the devices"},
    {kDevice, kPlace, ", which names the devices"},
    {kStageDevices, kVirtualWorkers, ", whose micro-batches are computed one after another"},
    {kReplicas, kVirtualWorkers, ", whose micro-batches a worker computes one after another; to compute several at a time, use --thread-workers or one process per GPU (or --place, to split the network)"},
    {kDevices, kModelParallel, ", whose messages must come from one thread"},
    {kPlace, kModelParallel, ", whose messages must come from one thread"},
    {kReplicas, kShardParameters, ", which gathers parameters on one device at a time"},
    {kGraph, kSeveralDevices, ", since a CUDA graph belongs to one device"},
    {kGraph, kLayerwise, ", whose steps cannot be recorded"},
    {kLayerwise, kShardRanges, ", where workers have only parts of layers (except for --shard optimizer with --pipeline, --virtual-workers or --place)"},
    {kLayerwise, kOuterLr, ", whose optimizers see layers as ranges of elements"},
    {kLayerwise, kTensor, ", where workers have only parts of layers"},
    {kLayerwise, kSeveralServers, ", which have only parts of layers"},
    {kMuon, kServers, ", which do not know which parameters are embeddings or the last layer"},
    {kAllReduce, kNccl, ", which chooses its own algorithm (NCCL_ALGO)"},
    {kAllReduce, kServers, ", where workers send gradients to servers"},
    {kBackend, kThreadWorkers, ", which share the memory of their process"},
    {kOptimizer, kOwnOptimizer, ""},
    {kLr, kOwnOptimizer, ", from whose rates the schedule starts"},
    {kLrOf, kOwnOptimizer, ", whose groups have rates of their own"},
    {kWeightDecay, kOwnOptimizer, ""},
    {kWeightDecayOf, kOwnOptimizer, ", whose groups have decays of their own"},
    {kServers, kOwnOptimizer, ", which servers do not know"},
    {kServers, kOwnGroups, ", which servers do not know"},
    {kServers, kPhases, ", whose updates are not of all parameters together"},
    {kServers, kAfterUpdate, ", which keep the parameters"},
    {kTensor, kPhases, ", each of which needs whole layers on every worker"},
    {kTensor, kAfterUpdate, ", which needs whole layers on every worker"},
    {kWorkerStages, kPhases, ", each of which needs the whole network on every worker"},
    {kWorkerStages, kAfterUpdate, ", which needs the whole network on every worker"},
    {kTensor, kStepLoss, ", which is a loss of outputs that are not split"},
    {kTensor, kGroupLoss, ", which is a loss of outputs that are not split"},
    {kPipeline, kGroupLoss, ", which needs the outputs of all workers at the same time"},
    {kVirtualWorkers, kGroupLoss, ", which needs the same micro-batches on every worker"},
    {kSyncEvery, kGroupLoss, ", whose gradients go to the other workers in every step"},
    {kServers, kGroupLoss, ", which needs the workers to step together"},
    {kShardParameters, kPhases, ", each of which needs whole parameters"},
    {kShardParameters, kAfterUpdate, ", which needs whole parameters"},
    {kSyncEvery, kPhases, ", whose optimizers would drift apart between them"},
    {kSyncEvery, kAfterUpdate, ", which has to do the same on every worker"},
    {kVirtualWorkers, kPhases, ", whose micro-batches are summed for one update a step"},
    {kCompress, kPhases, ", whose gradients come in several exchanges a step"},
    {kDevices, kPhases, ", each of which needs the whole network on one device"},
    {kDevices, kAfterUpdate, ", which needs the whole network on one device"},
    {kPlace, kPhases, ", each of which needs the whole network on one device"},
    {kPlace, kAfterUpdate, ", which needs the whole network on one device"},
    {kEma, kPhases, "; average in an after_update()"},
    {kSwa, kPhases, "; average in an after_update()"},
    {kFp16, kPhases, ", whose losses would need a scale each; bf16 needs none"},
    {kPeerSnapshots, kThreadWorkers, ", which would be lost together"},
};

/// `form` is refused without `needed`.
struct Need {
  Form form, needed;
  std::string_view expected;
};

constexpr Need kNeeds[] = {
    {kShardGroup, kShard, "only with --shard, which says what to split"},
    {kOuterLr, kSyncEvery, "only with --sync-every H, the number of steps between outer steps"},
    {kOuterMomentum, kOuterLr, "only with --outer-lr X, the learning rate of the outer steps"},
    {kMicroBatches, kPipeline, "only with --pipeline N, N at least 2; without a pipeline, use --accumulate"},
    {kSchedule, kPipeline, "only with --pipeline N, N at least 2; without a pipeline, use --accumulate"},
    {kChunks, kInterleaved, "only with --schedule interleaved, whose stages have several chunks"},
    {kStages, kPipeline, "even without --pipeline N, N at least 2"},
    {kSequenceParallel, kTensor, "only with --tensor N, N at least 2"},
    {kAsync, kServers, "only with --servers N (of dtrain-launch, or of the program under mpirun)"},
    {kMaxStaleness, kAsync, "only with --update async and --servers N"},
    {kPlaceAuto, kDevices, "--devices with auto, as in cpu:0,cpu:1"},
    {kUpdateOnHost, kSeveralDevices, "only with --devices"},
    {kMomentum, kTakesMomentum, "only with --optimizer sgd, rmsprop, lars or muon, which have momentum"},
    {kDampening, kSgd, "only with --optimizer sgd"},
    {kNesterov, kSgd, "only with --optimizer sgd"},
    {kNesterov, kPlainMomentum, "only with --momentum above 0 and --dampening 0"},
    {kBetas, kMoments, "only with --optimizer adam, adamw, lamb, lion or muon, which have moments"},
    {kEps, kTakesEps, "only with --optimizer adam, adamw, lamb, rmsprop, adagrad or muon"},
    {kAlpha, kRmsProp, "only with --optimizer rmsprop"},
    {kCentered, kRmsProp, "only with --optimizer rmsprop"},
    {kLrDecay, kAdagrad, "only with --optimizer adagrad; for the others, use --lr-schedule"},
    {kAccumulator, kAdagrad, "only with --optimizer adagrad"},
    {kTrust, kLars, "only with --optimizer lars"},
    {kAdamWFor, kMuon, "only with --optimizer muon"},
    {kMuonScale, kMuon, "only with --optimizer muon"},
    {kStepDecay, kDecays, "only with --lr-decay-every N (optimizer steps) or --lr-decay-at E,E,… (epochs)"},
    {kDecayEvery, kDecaysEvery, "only with --lr-schedule step or exponential"},
    {kExponential, kDecayEvery, "only with --lr-decay-every N, the optimizer steps in which it decays by --lr-gamma"},
    {kGamma, kHasGamma, "only with --lr-schedule step, exponential or plateau"},
    {kDecayAt, kStepDecay, "only with --lr-schedule step"},
    {kMinLr, kHasLeast, "only with --lr-schedule linear, polynomial, cosine, one-cycle, wsd or plateau"},
    {kOneCycle, kWarmup, "only with --warmup-epochs or --warmup-steps, in which it rises"},
    {kInverseSqrt, kWarmup, "only with --warmup-epochs or --warmup-steps, from which it decays"},
    {kCooldown, kWsd, "only with --lr-schedule wsd"},
    {kLrPatience, kPlateau, "only with --lr-schedule plateau"},
    {kMonitor, kMonitors, "only with --early-stopping, --keep-best or --lr-schedule plateau, which look at it"},
    {kPlateau, kEvaluates, "another with --eval-every 0, which never evaluates"},
    {kEarlyStopping, kEvaluates, "nothing with --eval-every 0, which never evaluates"},
    {kKeepBest, kEvaluates, "nothing with --eval-every 0, which never evaluates"},
    {kPower, kPolynomial, "only with --lr-schedule polynomial"},
    {kWarmupFrom, kWarmup, "only with --warmup-epochs or --warmup-steps"},
    {kBaseBatch, kScaleLr, "only with --scale-lr linear or sqrt"},
    {kTraceSteps, kTrace, "only with --trace FILE or --trace auto"},
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
