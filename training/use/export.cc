// `dtrain export RUN FILE.onnx`: a trained network for every program that reads ONNX.
#include <fmt/format.h>
#include <unistd.h>

#include "runtime/onnx/export.h"
#include "training/use/commands.h"
#include "training/use/output_file.h"
#include "training/use/saved_run.h"

namespace dtrain {
namespace {

// clang-format off
constexpr OptionSpec kOptions[] = {
    {"checkpoint", "What to export", "PATH", "", "weights other than the run's newest: a checkpoint directory or a .safetensors file"},
    {"overwrite", "Output", "", "", "replace the file if it exists"},
    {"help", "Output", "", "", "this text"},
};
// clang-format on

std::vector<OnnxInput> inputs_of(std::span<const Field> fields) {
  std::vector<OnnxInput> inputs;
  for (const Field& field : fields) inputs.push_back({field.name, field.dtype, field.shape, field.values});
  return inputs;
}

std::string exported(const SavedRun& run, const SavedWeights& weights) {
  const auto device = make_trace_device();
  const auto network = load_network(run, weights, device);
  const auto forward = [&](const Tensors& inputs) {
    return (*network)(run.task->inputs(BatchTensors(run.fields, inputs)));
  };
  const bool classes = run.task->output_kind() == OutputKind::logits;
  OnnxRequest request{
      .name = run.task->name(), .inputs = inputs_of(run.fields), .outputs = {classes ? "logits" : "output"}};
  request.description = {{"producer_version", DTRAIN_VERSION},
                         {"dtrain.version", DTRAIN_VERSION},
                         {"dtrain.run", run.path.string()},
                         {"dtrain.weights", weights.path.string()},
                         {"dtrain.task", run.task->name()}};
  for (const auto& [name, value] : weights.identity) request.description.emplace("dtrain.run." + name, value);
  return export_onnx(device, network->state_dict(), request, forward);
}

}  // namespace

ExitCode export_command(const TrainProgram& program, const std::vector<std::string>& given,
                        const Environment& environment) {
  const std::string name = program.name + " export";
  std::vector<std::string> arguments = given;
  const std::vector<std::string> words = take_words(arguments, 2);
  const Options options = resolve_options(name, kOptions, arguments, environment);
  if (const auto help =
          asked_help(options, fmt::format("usage: {} RUN FILE.onnx [options]", name), kOptions)) {
    fmt::print("{}", *help);
    return ExitCode::ok;
  }
  if (words.size() < 2 || !words[1].ends_with(".onnx"))
    throw UsageError(
        fmt::format("expected a run directory and a file name that ends in .onnx, as in {} RUN "
                    "model.onnx, got {}",
                    name, words.size() < 2 ? "fewer words" : words[1]));
  FdLog log(STDERR_FILENO, "dtrain", LogLevel::warning);
  const SavedRun run = open_run(program, words[0], log);
  const SavedWeights weights =
      weights_of(run, options.has("checkpoint") ? options.text("checkpoint") : "", log);
  OutputFile file(words[1], options.enabled("overwrite"));
  const std::string bytes = exported(run, weights);
  file.write(bytes);
  file.commit();
  fmt::print("{}: {} with the weights of {}, ONNX operator set {}, {:.1f} MB\n", words[1], run.task->name(),
             weights.path.string(), kOnnxOpset, static_cast<double>(bytes.size()) / 1e6);
  return ExitCode::ok;
}

}  // namespace dtrain
