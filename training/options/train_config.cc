#include "training/options/train_config.h"

#include <fmt/format.h>

#include <cmath>
#include <sstream>

#include "runtime/base/error.h"
#include "training/options/parallelism.h"

namespace dtrain {
namespace {

constexpr std::int64_t kNoLimit = INT64_MAX;
constexpr double kMaxReal = 1e30;

// clang-format off
constexpr OptionSpec kTrainOptions[] = {
    {"dataset", "What to train", "NAME", "fashion-mnist", "fashion-mnist, cifar10, synthetic:CxHxW,classes,N, csv:FILE,..., npy:NAME=FILE,... or text:FILE,..."},
    {"data-dir", "What to train", "DIR", "", "folder of the data set's files; unset: where Debian's package puts them"},
    {"epochs", "What to train", "N", "", "passes over the training set; unset: 10, or no limit with --max-steps"},
    {"max-steps", "What to train", "N", "", "stop after this many optimizer steps of the whole run"},
    {"init-from", "What to train", "PATH", "", "weights to start from: a .safetensors file, a run or a checkpoint of the same network (dtrain convert makes such files)"},
    {"freeze", "What to train", "NAMES", "", "parameters that do not learn, by their names in checkpoints: conv1.*,bn1.* (* stands for any text)"},
    {"seed", "What to train", "S", "0", "seeds initial weights (as torch.manual_seed) and the sampler"},

    {"global-batch-size", "Batch", "N", "", "samples of one optimizer step over all workers, shared out among them; unset: 256"},
    {"batch-size", "Batch", "N", "", "samples of one pass on one worker, however many there are; only one of the two"},
    {"accumulate", "Batch", "N", "1", "passes whose gradients make one optimizer step"},
    {"drop-last", "Batch", "", "", "leave out the last samples of an epoch where they do not fill a step; others each time, as the order changes"},
    {"virtual-workers", "Batch", "V", "0", "always cut a step into V passes: the same bits for 1 to V workers; 0: cut by workers"},
    {"sync-batch-norm", "Batch", "", "", "batch norm over the whole batch of all workers, not each worker's own part"},
    {"compress", "Batch", "HOW", "none", "gradients between workers: none, fp16, bf16, or powersgd:R (narrow matrices of R columns)"},
    {"shard", "Batch", "WHAT", "none", "what each worker keeps 1/W of: none, optimizer (its state), gradients (those too), or parameters (all)"},
    {"shard-group", "Batch", "N", "job", "with --shard: workers that have a part each, neighbours in rank; the other groups hold copies: a number, node (those of a node), or job (all)"},
    {"tensor", "Batch", "N", "1", "divide the layers of one network among N workers that are close (transformer)"},
    {"pipeline", "Batch", "N", "1", "cut the network into N stages, one worker (with --devices: one device) each, which micro-batches go through"},
    {"place", "Batch", "MAP", "", "parts of the network on different devices of a worker: conv1=cpu:0,fc1=cpu:1, or cuda:0 and so on (names as in checkpoints), or auto with --devices"},
    {"micro-batches", "Batch", "M", "", "with --pipeline: passes of a step; unset: 4 for each stage"},
    {"schedule", "Batch", "NAME", "1f1b", "with --pipeline: gpipe (all forwards, then all backwards), 1f1b (fewer alive) or interleaved (less waiting)"},
    {"chunks", "Batch", "V", "", "with --schedule interleaved: parts of the network, not neighbours, in each stage; unset: 2"},
    {"stages", "Batch", "HOW", "even", "with --pipeline, where the network is cut: even (by parameters and parts), auto (by measured time), or each stage's first part: 0,3,7"},
    {"mesh", "Batch", "AXES", "", "workers as a grid: dp=2,pp=2,tp=2 (dp shares batches, tp divides layers, pp makes stages); dp=auto: what is left"},
    {"sequence-parallel", "Batch", "", "", "with --tensor: what lies between divided layers is cut along the sequence too"},
    {"sync-every", "Batch", "H", "0", "local SGD: workers take H steps of their own, then average parameters; 0: share gradients"},
    {"servers", "Batch", "S", "0", "parameter servers: the last S processes of mpirun or srun keep the parameters; beside dtrain-launch --servers S: that S"},
    {"update", "Batch", "HOW", "sync", "with servers: sync (all workers' gradients together) or async (each worker's when it comes)"},
    {"max-staleness", "Batch", "K", "", "with --update async: a worker that is more than K updates ahead of the slowest waits; unset: none waits"},
    {"recompute", "Batch", "", "", "less memory, more time: blocks (of resnet18, resnet50, transformer) are computed again in backward, not kept"},

    {"optimizer", "Optimizer", "NAME", "sgd", "sgd, adam, adamw, rmsprop or adagrad, as in torch.optim; lars or lamb, for large batches"},
    {"lr", "Optimizer", "X", "", "learning rate; unset: sgd and lars 0.1, adam, adamw and lamb 0.001, rmsprop and adagrad 0.01"},
    {"momentum", "Optimizer", "X", "0", "sgd, rmsprop, lars: momentum"},
    {"dampening", "Optimizer", "X", "0", "sgd: dampening of the momentum"},
    {"nesterov", "Optimizer", "", "", "sgd: Nesterov momentum"},
    {"weight-decay", "Optimizer", "X", "", "unset: 0.01 for adamw and lamb, 0 for the others; lars and lamb: on matrices"},
    {"weight-decay-on", "Optimizer", "WHAT", "all", "all, or matrices: biases and norms' weights are left out"},
    {"betas", "Optimizer", "B1,B2", "0.9,0.999", "adam, adamw, lamb: decay of the moments"},
    {"eps", "Optimizer", "X", "", "all but sgd and lars: added to the denominator; unset: 1e-8, adagrad 1e-10, lamb 1e-6"},
    {"alpha", "Optimizer", "X", "0.99", "rmsprop: how much of the running average is kept"},
    {"centered", "Optimizer", "", "", "rmsprop: divide by the deviation of the gradient, not its root mean square"},
    {"lr-decay", "Optimizer", "X", "0", "adagrad: the rate of step t is lr / (1 + (t - 1) x this)"},
    {"initial-accumulator", "Optimizer", "X", "0", "adagrad: what sums of squares start from"},
    {"trust", "Optimizer", "X", "0.001", "lars: the share of its norm that a layer moves by, at a learning rate of 1"},
    {"clip-grad-norm", "Optimizer", "X", "", "scale the gradients down to at most this norm, all together"},
    {"clip-grad-value", "Optimizer", "X", "", "limit each element of a gradient to [-X, X]"},
    {"lr-schedule", "Optimizer", "NAME", "constant", "constant, step or cosine"},
    {"warmup-steps", "Optimizer", "N", "0", "steps over which the learning rate rises linearly"},
    {"lr-decay-every", "Optimizer", "N", "", "step schedule: optimizer steps between decays"},
    {"lr-gamma", "Optimizer", "X", "0.1", "step schedule: factor of a decay"},
    {"min-lr", "Optimizer", "X", "0", "cosine schedule: where it ends"},
    {"scale-lr", "Optimizer", "RULE", "none", "none, linear or sqrt in global batch / base batch"},
    {"base-batch-size", "Optimizer", "N", "256", "the batch size that --lr was chosen for"},

    {"device", "Machine", "NAME", "auto", "auto, cpu, cuda (this worker's GPU) or cuda:N"},
    {"devices", "Machine", "LIST", "", "several devices of one worker, which share its batches, or are its stages (--pipeline) or places (--place): cpu:0,cpu:1 or cuda:0,cuda:1"},
    {"update-on", "Machine", "WHERE", "device", "with --devices, where parameters are updated: device (the first) or host"},
    {"precision", "Machine", "NAME", "fp32", "fp32, bf16, fp16 (with loss scaling; on CPUs emulated), or tf32 (GPU only)"},
    {"cuda-graph", "Machine", "WHEN", "auto", "record a step as one CUDA graph and replay it: auto (on a GPU), on or off"},
    {"autotune", "Machine", "WHEN", "on", "on: try a GPU's convolution algorithms once a shape; off: as cuDNN advises, the same in each run"},
    {"backend", "Machine", "NAME", "auto", "collectives: auto, nccl, tcp, gloo or mpi"},
    {"thread-workers", "Machine", "N", "1", "workers of this process, each a thread on the CPU, in the place of processes that a launcher starts"},
    {"threads", "Machine", "N", "", "threads a worker computes with; unset: 1 with --virtual-workers, else OMP_NUM_THREADS or its share of the cores"},
    {"loader-threads", "Machine", "N", "0", "threads that prepare batches ahead; 0: in the training thread"},
    {"collective-timeout", "Machine", "SECONDS", "30", "longest wait for the peers in one step"},
    {"connect-timeout", "Machine", "SECONDS", "300", "longest wait for the peers at the start"},

    {"run-dir", "Output", "DIR", "", "folder of the run; unset: runs/<time>-<model>"},
    {"resume", "Output", "HOW", "auto", "auto (from the run's last good checkpoint), never, or a run or checkpoint folder"},
    {"log-every", "Output", "N", "10", "optimizer steps between lines of metrics.jsonl"},
    {"eval-every", "Output", "N", "1", "epochs between evaluations; 0: never"},
    {"checkpoint-every", "Output", "N", "", "optimizer steps between checkpoints; 0: only the last; unset: every epoch"},
    {"keep-checkpoints", "Output", "K", "3", "how many of the newest checkpoints stay; 0: all"},
    {"peer-snapshots", "Output", "N", "0", "every N steps keep a copy of the training state in each node's memory, to go on from when a node or the disk is lost; 0: never"},
    {"check-replicas", "Output", "N", "0", "every N steps and before each checkpoint compare what workers hold alike; 0: never"},
    {"loss-spike", "Output", "X", "0", "tell of a loss X times the median of the last 100, with its batch's samples in logs/; 0: only of one that is not finite"},
    {"log-samples", "Output", "", "", "write the samples each rank takes in each step to logs/samples-<rank>.jsonl"},
    {"checkpoint-at-start", "Output", "", "", "also save the initial weights (step 0)"},
    {"profile", "Output", "", "", "print where a step's time goes"},
    {"trace", "Output", "FILE", "", "write a Chrome trace of some steps, FILE-rank<R>.json for each rank; auto: in the run's folder"},
    {"trace-steps", "Output", "A:B", "", "the steps to trace, from 1, both included; unset: the 3rd to the 7th of this start"},
    {"config", "Output", "FILE", "", "JSON object with values for these options"},
    {"print-config", "Output", "", "", "print every value and where it comes from, then stop"},
    {"help", "Output", "", "", "this text"},
};
// clang-format on

void check_global_batch(const BatchPlan& batch, std::int64_t world_size) {
  if (batch.global < world_size) {
    throw UsageError(
        fmt::format("--global-batch-size: expected at least one sample for each of {} workers, got {}",
                    world_size, batch.global));
  }
  if (batch.accumulate > 1 && batch.global % (world_size * batch.accumulate) != 0) {
    throw UsageError(
        fmt::format("--global-batch-size: expected a multiple of {} (workers) x {} (passes), got {}; "
                    "use --batch-size to set the samples a worker instead",
                    world_size, batch.accumulate, batch.global));
  }
}

/// `world_size`: workers, or the parts that stand in their place.
BatchPlan make_batch(const Options& options, std::int64_t world_size, std::int64_t passes) {
  BatchPlan batch;
  batch.accumulate = passes;
  const std::int64_t parts = world_size * batch.accumulate;
  if (options.has("batch-size")) {
    if (options.has("global-batch-size")) {
      throw UsageError("--batch-size and --global-batch-size: expected only one of the two, got both");
    }
    batch.per_worker = options.integer("batch-size", 1, INT32_MAX);
    batch.global = batch.per_worker * parts;
    batch.grows_with_world = true;
  } else {
    batch.global =
        options.has("global-batch-size") ? options.integer("global-batch-size", 1, INT32_MAX) : 256;
    check_global_batch(batch, world_size);
    batch.per_worker = (batch.global + parts - 1) / parts;
  }
  return batch;
}

double lr_scale(const Options& options, const BatchPlan& batch) {
  const std::string& rule = options.choice("scale-lr", {"none", "linear", "sqrt"});
  const double ratio = static_cast<double>(batch.global) /
                       static_cast<double>(options.integer("base-batch-size", 1, INT32_MAX));
  if (rule == "linear") return ratio;
  return rule == "sqrt" ? std::sqrt(ratio) : 1.0;
}

void read_schedule(const Options& options, TrainConfig& recipe) {
  recipe.lr_kind = parse_lr_kind(options.choice("lr-schedule", {"constant", "step", "cosine"}));
  recipe.warmup_steps = options.integer("warmup-steps", 0, kNoLimit);
  recipe.lr_gamma = options.real("lr-gamma", 0, kMaxReal);
  recipe.min_lr = options.real("min-lr", 0, kMaxReal);
  if (recipe.lr_kind != LrKind::step) return;
  if (!options.has("lr-decay-every"))
    throw UsageError("--lr-schedule step: expected --lr-decay-every N (optimizer steps), got none");
  recipe.lr_decay_every = options.integer("lr-decay-every", 1, kNoLimit);
}

void read_length(const Options& options, TrainConfig& recipe) {
  if (options.has("max-steps")) recipe.max_steps = options.integer("max-steps", 0, kNoLimit);
  if (options.has("epochs")) {
    recipe.epochs = options.integer("epochs", 0, kNoLimit);
  } else {
    recipe.epochs = recipe.max_steps ? kNoLimit : 10;
  }
}

void read_trace(const Options& options, TrainConfig& recipe) {
  if (!options.has("trace")) {
    if (options.has("trace-steps")) options.refuse("trace-steps", "--trace FILE or --trace auto beside it");
    return;
  }
  const std::string& file = options.text("trace");
  if (file.empty()) options.refuse("trace", "a file or auto");
  recipe.trace.emplace();
  if (file != "auto") recipe.trace->file = file;
  if (!options.has("trace-steps")) return;
  const std::string& steps = options.text("trace-steps");
  const auto colon = steps.find(':');
  const auto first = parse_integer(steps.substr(0, colon));
  const auto last = colon == std::string::npos ? std::nullopt : parse_integer(steps.substr(colon + 1));
  if (!first || !last || *first < 1 || *last < *first)
    options.refuse("trace-steps", "A:B with 1 <= A <= B, as in 100:105");
  recipe.trace->first_step = first;
  recipe.trace->last_step = last;
}

ResumeFrom read_resume(const std::string& text) {
  if (text == "auto") return {ResumeFrom::Kind::newest, {}};
  if (text == "never") return {ResumeFrom::Kind::nothing, {}};
  return {ResumeFrom::Kind::path, text};
}

void read_output(const Options& options, TrainConfig& recipe) {
  if (options.has("run-dir")) recipe.run_dir = options.text("run-dir");
  recipe.resume = read_resume(options.text("resume"));
  recipe.log_every = options.integer("log-every", 1, kNoLimit);
  recipe.eval_every = options.integer("eval-every", 0, kNoLimit);
  if (options.has("checkpoint-every"))
    recipe.checkpoint_every = options.integer("checkpoint-every", 0, kNoLimit);
  recipe.keep_checkpoints = static_cast<int>(options.integer("keep-checkpoints", 0, INT32_MAX));
  recipe.peer_snapshots = options.integer("peer-snapshots", 0, kNoLimit);
  recipe.check_replicas = options.integer("check-replicas", 0, kNoLimit);
  recipe.loss_spike = options.real("loss-spike", 0, 1e9);
  recipe.log_samples = options.enabled("log-samples");
  recipe.checkpoint_at_start = options.enabled("checkpoint-at-start");
  recipe.profile = options.enabled("profile");
}

std::vector<std::string> read_patterns(const Options& options) {
  std::vector<std::string> patterns;
  std::istringstream text(options.text("freeze"));
  for (std::string pattern; std::getline(text, pattern, ',');) {
    if (pattern.empty()) options.refuse("freeze", "names or patterns like conv1.*,bn1.*");
    patterns.push_back(pattern);
  }
  if (patterns.empty()) options.refuse("freeze", "names or patterns like conv1.*,bn1.*");
  return patterns;
}

std::chrono::nanoseconds seconds_of(const Options& options, const std::string& name) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(options.real(name, 0.001, 1e6) * 1e9));
}

}  // namespace

std::span<const OptionSpec> train_options() { return kTrainOptions; }

TrainConfig make_train_config(const Options& options, std::string_view model, std::int64_t world_size) {
  TrainConfig recipe;
  recipe.model = model;
  recipe.dataset = options.text("dataset");
  recipe.data_dir = options.has("data-dir") ? options.text("data-dir") : "";
  recipe.precision = precision_named(options.choice("precision", {"fp32", "bf16", "fp16", "tf32"}));
  recipe.device = options.text("device");
  recipe.autotune = options.choice("autotune", {"on", "off"}) == "on";
  if (!recipe.device.starts_with("cuda:")) options.choice("device", {"auto", "cpu", "cuda"});
  recipe.backend = backend_named(options.choice("backend", {"auto", "nccl", "tcp", "gloo", "mpi"}));
  if (options.has("init-from")) recipe.init_from = options.text("init-from");
  if (options.has("freeze")) recipe.freeze = read_patterns(options);
  recipe.seed = static_cast<std::uint64_t>(options.integer("seed", 0, kNoLimit));
  const std::string& graphs = options.choice("cuda-graph", {"auto", "on", "off"});
  recipe.graphs = graphs == "on" ? GraphUse::on : graphs == "off" ? GraphUse::off : GraphUse::automatic;
  recipe.loader_threads = static_cast<int>(options.integer("loader-threads", 0, 256));
  recipe.collective_timeout = seconds_of(options, "collective-timeout");
  recipe.connect_timeout = seconds_of(options, "connect-timeout");
  if (options.has("threads")) recipe.threads = static_cast<int>(options.integer("threads", 1, 4096));
  recipe.thread_workers = thread_workers(options);
  read_parallelism(options, world_size, recipe);
  recipe.drop_last = options.enabled("drop-last");
  recipe.batch = make_batch(options, shares_of(recipe, world_size), passes_of(options, recipe));
  read_devices(options, recipe);
  recipe.recompute = options.enabled("recompute");
  read_length(options, recipe);
  recipe.optimizer = read_optimizer(options, lr_scale(options, recipe.batch));
  check_optimizer(options, recipe);
  read_schedule(options, recipe);
  read_output(options, recipe);
  read_trace(options, recipe);
  check_beside_thread_workers(options, recipe);
  return recipe;
}

LrSchedule make_schedule(const TrainConfig& recipe, std::int64_t steps_per_epoch) {
  LrSchedule schedule;
  schedule.kind = recipe.lr_kind;
  schedule.base_lr = lr_of(recipe.optimizer.rule);
  schedule.warmup_steps = recipe.warmup_steps;
  schedule.total_steps = recipe.epochs == kNoLimit ? *recipe.max_steps : recipe.epochs * steps_per_epoch;
  schedule.decay_every = recipe.lr_decay_every;
  schedule.gamma = recipe.lr_gamma;
  schedule.min_lr = recipe.min_lr;
  return schedule;
}

std::map<std::string, std::string> identity(const TrainConfig& recipe) {
  const BatchPlan& batch = recipe.batch;
  const std::int64_t size = batch.grows_with_world ? batch.per_worker * batch.accumulate : batch.global;
  std::map<std::string, std::string> settings = recipe.own;
  settings.merge(std::map<std::string, std::string>{
      {"model", recipe.model},
      {"dataset", recipe.dataset},
      {"seed", std::to_string(recipe.seed)},
      {batch.grows_with_world ? "batch-size" : "global-batch-size", std::to_string(size)},
      {"optimizer", std::string(name_of(recipe.optimizer.rule))},
      {"precision", std::string(name_of(recipe.precision))},
      {"virtual-workers", std::to_string(recipe.virtual_workers)},
      {"sync-every", std::to_string(recipe.sync_every)},
      {"sync-batch-norm", recipe.sync_batch_norm ? "true" : "false"}});
  // Sums within a kernel may depend on how many threads share it.
  if (recipe.virtual_workers > 0) settings.emplace("threads", std::to_string(recipe.threads));
  if (recipe.servers > 0 && recipe.update == ServerUpdate::async) settings.emplace("update", "async");
  return settings;
}

}  // namespace dtrain
