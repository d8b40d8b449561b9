// `dtrain predict RUN --input FILE`: what a trained network says about samples.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/data/loader.h"
#include "runtime/data/sources/source_spec.h"
#include "training/engine/evaluate.h"
#include "training/start/peers.h"
#include "training/start/threads.h"
#include "training/start/unused_gpus.h"
#include "training/use/commands.h"
#include "training/use/predict_input.h"
#include "training/use/predict_output.h"
#include "training/use/saved_run.h"

namespace dtrain {
namespace {

// clang-format off
constexpr OptionSpec kPredictOptions[] = {
    {"input", "What to predict", "FILE", "", "samples: a .npy, .npz, .csv or IDX file, or NAME=FILE,... for a network with several input fields; for an image network also a JPEG, PNG or WebP file, a folder of them, or tar shards"},
    {"checkpoint", "What to predict", "PATH", "", "weights other than the run's newest: a checkpoint directory or a .safetensors file"},
    {"batch-size", "What to predict", "N", "256", "samples per batch"},
    {"output", "Output", "FILE", "", "FILE.npy (the network's raw outputs) or FILE.csv (classes and probabilities, or values); unset: a table on standard output"},
    {"overwrite", "Output", "", "", "replace the file if it exists"},
    {"device", "Machine", "NAME", "auto", "auto, cpu, cuda or cuda:N"},
    {"precision", "Machine", "NAME", "fp32", "fp32, bf16, fp16 (emulated on CPUs) or tf32 (GPU only)"},
    {"threads", "Machine", "N", "", "compute threads; unset: OMP_NUM_THREADS or all cores"},
    {"help", "Output", "", "", "print this text"},
};
// clang-format on

constexpr auto kPatience = std::chrono::minutes(5);  // with a disk

/// The names of the predicted columns, where the run learned them from a table.
std::vector<std::string> target_names(const SavedRun& run) {
  const Field* const target = find_field(run.fields, "y");
  if (target != nullptr && !target->columns.empty()) return target->columns;
  constexpr std::string_view kPrefix = "csv:";
  const std::string dataset = run.options.has("dataset") ? run.options.text("dataset") : "";
  if (!dataset.starts_with(kPrefix)) return {};
  return SourceSpec("csv", std::string_view(dataset).substr(kPrefix.size())).take_list("target");
}

std::vector<std::string> class_names(const SavedRun& run) {
  const Field* const label = find_field(run.fields, "label");
  if (label == nullptr) return {};
  return label->value_names.empty() ? label->columns : label->value_names;  // of probabilities
}

struct Prediction {
  const SavedRun& run;
  Module& network;
  std::shared_ptr<const Source> source;
  std::shared_ptr<Device> device;
  Precision precision;
  std::int64_t batch_size;
};

void predict_all(const Prediction& what, PredictionWriter& writer) {
  const NoGrad no_grad;
  LowPrecisionWeights low_weights;
  Loader loader(what.source, what.device, {.batch_size = what.batch_size});
  std::vector<std::int64_t> order(static_cast<std::size_t>(what.source->size()));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
  loader.start(std::move(order), 0);
  while (const auto batch = loader.next(Deadline::after(kPatience))) {
    const Autocast autocast(what.precision, low_weights);
    const Tensors outputs =
        in_full_precision(what.network(what.run.task->inputs(to_tensors(*batch, what.device))));
    const Tensor& first = outputs.front();
    writer.write(first.to_vector<float>(), first.shape());
  }
  writer.finish();
}

std::shared_ptr<Device> device_of(const Options& options, Precision precision) {
  const auto device =
      make_device(options.text("device"), {.tf32 = precision == Precision::tf32, .autotune = false});
  if (precision == Precision::tf32 && device->type() == DeviceType::cpu)
    throw UsageError("--precision tf32: expected a GPU, got device " + device->name());
  return device;
}

ExitCode predict_run(const TrainProgram& program, const std::string& path, const Options& options,
                     const Environment& environment) {
  if (!options.has("input"))
    throw UsageError("--input: expected a file of samples (.npy, .npz, .csv, IDX or images), got none");
  FdLog log(STDERR_FILENO, "dtrain", LogLevel::warning);
  const int threads = options.has("threads") ? static_cast<int>(options.integer("threads", 1, 4096)) : 0;
  limit_threads(find_placement({}), environment, threads);
  const SavedRun run = open_run(program, path, log);
  const auto [source, places] = open_input(options.text("input"), run, log);
  const auto precision = precision_named(options.choice("precision", {"fp32", "bf16", "fp16", "tf32"}));
  const auto device = device_of(options, precision);
  if (const std::string why = why_no_gpu(*device, environment);
      options.text("device") == "auto" && !why.empty())
    log.write(LogLevel::warning, why);
  const SavedWeights weights =
      weights_of(run, options.has("checkpoint") ? options.text("checkpoint") : "", log);
  const auto network = load_network(run, weights, device);
  const auto writer = make_prediction_writer({.file = options.has("output") ? options.text("output") : "",
                                              .overwrite = options.enabled("overwrite"),
                                              .kind = run.task->output_kind(),
                                              .names = target_names(run),
                                              .classes = class_names(run),
                                              .places = places,
                                              .samples = source->size()});
  predict_all({run, *network, source, device, precision, options.integer("batch-size", 1, INT32_MAX)},
              *writer);
  return ExitCode::ok;
}

}  // namespace

ExitCode predict_command(const TrainProgram& program, const std::vector<std::string>& given,
                         const Environment& environment) {
  const std::string name = program.name + " predict";
  std::vector<std::string> arguments = given;
  const std::vector<std::string> words = take_words(arguments, 1);
  const Options options = resolve_options(name, kPredictOptions, arguments, environment);
  if (const auto help = asked_help(options,
                                   fmt::format("usage: {0} [RUN] --input FILE [options]\n\nExamples:\n"
                                               "  {0} runs/mine --input new.csv\n  {0} --input pictures/",
                                               name),
                                   kPredictOptions)) {
    fmt::print("{}", *help);
    return ExitCode::ok;
  }
  FdLog log(STDERR_FILENO, "dtrain", LogLevel::info);
  const std::string run = run_or_newest(words.empty() ? "" : words[0], name + " RUN --input FILE", log);
  return predict_run(program, run, options, environment);
}

}  // namespace dtrain
