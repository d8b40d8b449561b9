// `dtrain bench step`: where the time of a training step goes, and how much of its communication is hidden.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "runtime/device/cuda/module.h"
#include "runtime/device/timed_device.h"
#include "training/start/peers.h"
#include "training/start/threads.h"
#include "worker/benchmark/overlap.h"
#include "worker/benchmark/peak.h"
#include "worker/benchmark/roofline.h"
#include "worker/benchmark/samples.h"
#include "worker/benchmark/step_profile.h"
#include "worker/commands.h"

namespace dtrain {
namespace {

// clang-format off
constexpr OptionSpec kOwnOptions[] = {
    {"warmup", "What to measure", "N", "3", "untimed steps before the timed ones"},
    {"iterations", "What to measure", "N", "10", "timed steps"},
    {"forecast", "What to measure", "GPU", "h100",
     "on an emulated GPU: predict the times of this GPU (h100, h200, a100, l4, rtx4090)"},
    {"forecast-batch", "What to measure", "N", "0", "with --forecast: samples per step; 0: as many as measured"},
    {"by", "What to measure", "WHAT", "kind", "print one line per kind of operation, or per kernel"},
    {"json", "Output", "", "", "print one JSON object per line"},
    {"help", "Output", "", "", "print this text"},
};
// Of `dtrain train`'s options those that change what a step does.
constexpr std::array<std::string_view, 15> kTrainOptions = {
    "dataset", "data-dir", "seed", "global-batch-size", "batch-size", "optimizer", "momentum",
    "weight-decay", "clip-grad-norm", "clip-grad-value", "device", "precision", "backend", "collective-timeout", "connect-timeout"};
// clang-format on

std::vector<OptionSpec> specs() {
  std::vector<OptionSpec> result(task_options().begin(), task_options().end());
  for (const OptionSpec& spec : train_options()) {
    if (std::find(kTrainOptions.begin(), kTrainOptions.end(), spec.name) != kTrainOptions.end())
      result.push_back(spec);
  }
  result.insert(result.end(), std::begin(kOwnOptions), std::end(kOwnOptions));
  return result;
}

// What is no option here is as `dtrain train` has it by default.
TrainConfig config_of(const Options& options, const Task& task, std::int64_t world_size) {
  std::map<std::string, OptionValue> values = options.all();
  fill_from_defaults(train_options(), values);
  return make_train_config(Options(std::move(values)), task.name(), world_size);
}

struct Bench {
  const Options& options;
  const Task& task;
  const TrainConfig& config;
  Communicator& communicator;
  std::shared_ptr<Device> device;
  Log& log;

  int warmup() const { return static_cast<int>(options.integer("warmup", 0, 1'000'000)); }
  int iterations() const { return static_cast<int>(options.integer("iterations", 1, 1'000'000)); }
  ProfileBy by() const {
    return options.choice("by", {"kind", "kernel"}) == "kind" ? ProfileBy::kind : ProfileBy::kernel;
  }
};

// This rank's steps, kernel by kernel.
StepProfile measure_profile(const Bench& bench) {
  SpanRecorder spans;
  StepRunner runner(bench.config, bench.task, bench.communicator, make_timed_device(bench.device, spans),
                    bench.log, &spans);
  for (int i = 0; i < bench.warmup(); ++i) runner.step();
  spans.take();
  for (int i = 0; i < bench.iterations(); ++i) runner.step();
  if (spans.dropped() > 0)
    throw UsageError(fmt::format("--iterations {}: expected fewer, since {} spans did not fit",
                                 bench.iterations(), spans.dropped()));
  return make_profile(spans.take(), bench.iterations(), bench.by());
}

StepSamples measure_times(const Bench& bench) {
  StepRunner runner(bench.config, bench.task, bench.communicator, bench.device, bench.log);
  return measure_overlap(runner, bench.communicator, *bench.device, bench.warmup(), bench.iterations(),
                         bench.config.collective_timeout);
}

std::string times_text(const Bench& bench, const StepSamples& samples) {
  const double step = median(samples.step),
               images = static_cast<double>(bench.config.batch.per_worker) * bench.communicator.size();
  std::string text = fmt::format("step {:.3f} ms (best {:.3f}), {:.1f} samples/s\n", step * 1e3,
                                 least(samples.step) * 1e3, images / step);
  if (bench.communicator.size() == 1) return text;
  const Exposed added = exposed(samples);
  return text + fmt::format(
                    "compute alone {:.3f} ms, communication alone {:.3f} ms; communication adds "
                    "{:.3f} ms (quartiles {:.3f} to {:.3f}): {:.0f}% of it hidden\n",
                    median(samples.compute) * 1e3, median(samples.communication) * 1e3, added.median * 1e3,
                    added.lower * 1e3, added.upper * 1e3, 100 * hidden_share(samples));
}

std::string times_json(const Bench& bench, const StepSamples& samples, double peak_flops) {
  nlohmann::ordered_json json = {{"model", bench.config.model},
                                 {"precision", name_of(bench.config.precision)},
                                 {"batch_per_worker", bench.config.batch.per_worker},
                                 {"world_size", bench.communicator.size()},
                                 {"backend", bench.communicator.backend()},
                                 {"peak_gflops", peak_flops * 1e-9},
                                 {"step_ms", median(samples.step) * 1e3},
                                 {"best_step_ms", least(samples.step) * 1e3}};
  if (bench.communicator.size() > 1) {
    const Exposed added = exposed(samples);
    json["compute_ms"] = median(samples.compute) * 1e3;
    json["communication_ms"] = median(samples.communication) * 1e3;
    json["exposed_ms"] = added.median * 1e3;
    json["exposed_quartiles_ms"] = {added.lower * 1e3, added.upper * 1e3};
    json["hidden_share"] = hidden_share(samples);
  }
  return json.dump() + "\n";
}

// What one step with `samples` a worker does on an emulated GPU.
std::vector<DeviceWork> count_step(const Bench& bench, std::int64_t samples) {
  TrainConfig config = bench.config;
  config.batch.per_worker = samples;
  StepRunner runner(config, bench.task, bench.communicator, bench.device, bench.log);
  const auto step = [&] {
    runner.step();
    bench.device->compute_stream().synchronize();
  };
  for (int i = 0; i < bench.warmup(); ++i) step();
  const DeviceWorkPlugin& work = cuda::module_work();
  if (!work.note(true))
    bench.log.write(LogLevel::info, "this build cannot count its kernels' bytes: they are shown as 0");
  work.take();
  step();
  work.note(false);
  return work.take();
}

// Times on an emulated GPU would say nothing: what is counted there is exact.
void count_and_print(const Bench& bench) {
  const GpuPeaks& gpu = gpu_named(bench.options.text("forecast"), "--forecast");
  const std::int64_t own = bench.config.batch.per_worker;
  const std::int64_t asked = bench.options.integer("forecast-batch", 0, 1'000'000);
  std::vector<DeviceWork> step = count_step(bench, own);
  if (asked != 0 && asked != own) step = at_batch(step, own, count_step(bench, 2 * own), 2 * own, asked);
  if (bench.communicator.rank() != 0) return;
  const StepForecast found = forecast(step, gpu);
  const std::int64_t samples = asked == 0 ? own : asked;
  if (bench.options.enabled("json")) {
    fmt::print("{}", forecast_json(found, gpu, samples));
    return;
  }
  fmt::print("# {} in {}, {} samples per worker, {} worker{} by {}, {}; rank 0's\n{}", bench.config.model,
             name_of(bench.config.precision), samples, bench.communicator.size(),
             bench.communicator.size() == 1 ? "" : "s", bench.communicator.backend(), bench.device->name(),
             forecast_table(found, gpu, samples));
}

void measure_and_print(const Bench& bench) {
  if (bench.device->is_emulated()) return count_and_print(bench);
  const double peak = measure_peak_flops(bench.communicator, bench.device, bench.config.precision,
                                         bench.config.collective_timeout);
  const StepSamples times = measure_times(bench);
  const StepProfile profile = measure_profile(bench);
  if (bench.communicator.rank() != 0) return;
  if (bench.options.enabled("json")) {
    fmt::print("{}{}", profile_json(profile, peak), times_json(bench, times, peak));
    return;
  }
  fmt::print("# {} in {}, {} samples per worker, {} worker{} by {}, {}; rank 0's kernels, {} steps\n",
             bench.config.model, name_of(bench.config.precision), bench.config.batch.per_worker,
             bench.communicator.size(), bench.communicator.size() == 1 ? "" : "s",
             bench.communicator.backend(), bench.device->name(), bench.iterations());
  fmt::print("# peak: {:.1f} GFLOP/s per worker, a large matmul in the same precision\n{}{}", peak * 1e-9,
             profile_table(profile, peak), times_text(bench, times));
}

}  // namespace

ExitCode run_bench_step(const Invocation& invocation) {
  const std::vector<OptionSpec> all = specs();
  const Options options =
      resolve_options("dtrain bench step", all, invocation.arguments, invocation.environment);
  if (const auto help = asked_help(options,
                                   "usage: dtrain bench step [options]\n\n"
                                   "Runs in one process, or as a worker of dtrain-launch, mpirun or srun.\n\n"
                                   "Examples:\n  dtrain bench step --model lenet",
                                   all)) {
    fmt::print("{}", *help);
    return ExitCode::ok;
  }
  const Placement placement = find_placement(invocation.environment);
  const std::shared_ptr<const Task> task = task_of(options);
  const TrainConfig config = config_of(options, *task, *placement.world_size);
  limit_threads(placement, invocation.environment);
  FdLog log(STDERR_FILENO, "dtrain", LogLevel::info);
  const auto device = make_device(config.device, {.local_rank = *placement.local_rank,
                                                  .tf32 = config.precision == Precision::tf32,
                                                  .autotune = config.autotune});
  if (config.precision == Precision::tf32 && device->type() == DeviceType::cpu)
    throw UsageError("--precision tf32: expected a GPU, got device " + device->name());
  Peers peers(placement, config.backend, invocation.environment, config.connect_timeout, log, device.get());
  measure_and_print({options, *task, config, peers.communicator(), device, log});
  peers.leave();
  return ExitCode::ok;
}

}  // namespace dtrain
