// `dtrain export`: a trained network for every program that reads ONNX, or as a folder of published weights.
#include <fmt/format.h>
#include <unistd.h>

#include "runtime/onnx/export.h"
#include "training/use/commands.h"
#include "training/use/output_file.h"
#include "training/use/published_weights.h"
#include "training/use/saved_run.h"

namespace dtrain {
namespace {

// clang-format off
constexpr OptionSpec kOptions[] = {
    {"to", "Output", "FORM", "onnx", "onnx: a file; huggingface: a folder with config.json and model.safetensors, for models published in that format (adapters are merged); peft: a folder with only the adapters of --lora"},
    {"dtype", "Output", "NAME", "", "with --to huggingface or peft: float32, bfloat16 or float16; unset: as in the folder of --model hf:DIR, else float32"},
    {"checkpoint", "What to export", "PATH", "", "weights other than the run's newest: a checkpoint directory or a .safetensors file"},
    {"overwrite", "Output", "", "", "replace the file if it exists"},
    {"help", "Output", "", "", "print this text"},
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
  const std::vector<Field> fields = run.task->fields_in_use(run.fields);
  const auto forward = [&](const Tensors& inputs) {
    return (*network)(run.task->inputs(BatchTensors(fields, inputs)));
  };
  const bool classes = run.task->output_kind() == OutputKind::logits;
  OnnxRequest request{
      .name = run.task->name(), .inputs = inputs_of(fields), .outputs = {classes ? "logits" : "output"}};
  request.description = {{"producer_version", DTRAIN_VERSION},
                         {"dtrain.version", DTRAIN_VERSION},
                         {"dtrain.run", run.path.string()},
                         {"dtrain.weights", weights.path.string()},
                         {"dtrain.task", run.task->name()}};
  for (const auto& [name, value] : weights.identity) request.description.emplace("dtrain.run." + name, value);
  return export_onnx(device, network->state_dict(), request, forward);
}

std::string onnx_file(const SavedRun& run, const SavedWeights& weights, const std::string& to,
                      bool overwrite) {
  OutputFile file(to, overwrite);
  const std::string bytes = exported(run, weights);
  file.write(bytes);
  file.commit();
  return fmt::format("ONNX operator set {}, {:.1f} MB", kOnnxOpset, static_cast<double>(bytes.size()) / 1e6);
}

DType dtype_option(const Options& options, DType otherwise) {
  if (!options.has("dtype")) return otherwise;
  const std::string name = options.choice("dtype", {"float32", "bfloat16", "float16"});
  return name == "float32" ? DType::f32 : name == "bfloat16" ? DType::bf16 : DType::f16;
}

std::string published_folder(const SavedRun& run, const SavedWeights& weights, const std::string& to,
                             const Options& options) {
  auto format = run.task->published_format(run.fields);
  if (!format) {
    throw UsageError(fmt::format(
        "--to huggingface: expected a model that is published in that format (gpt2, llama, …), got {}",
        run.task->name()));
  }
  const bool adapters = options.text("to") == "peft";
  if (adapters && format->adapters == nullptr)
    throw UsageError(fmt::format(
        "--to peft: expected a run with --lora on layers that PEFT adapts (qkv of GPT-2; q, k and v of "
        "LLaMA), got one of {}; --to huggingface merges any",
        run.task->name()));
  if (adapters) format = PublishedFormat(*format->adapters);
  format->dtype = dtype_option(options, format->dtype);
  const auto network = load_network(run, weights, make_device("cpu"));
  const NamedTensors state = network->state_dict();
  return fmt::format("{} tensors, {}",
                     write_published(to, format->merged ? format->merged(state) : state, *format),
                     name_of(format->dtype));
}

}  // namespace

ExitCode export_command(const TrainProgram& program, const std::vector<std::string>& given,
                        const Environment& environment) {
  const std::string name = program.name + " export";
  std::vector<std::string> arguments = given;
  const std::vector<std::string> words = take_words(arguments, 2);
  const Options options = resolve_options(name, kOptions, arguments, environment);
  const std::string usage = fmt::format(
      "usage: {0} [RUN] FILE.onnx [options]\n       {0} [RUN] FOLDER --to huggingface\n\nExamples:\n"
      "  {0} runs/mine model.onnx\n  {0} runs/gpt2 published --to huggingface",
      name);
  if (const auto help = asked_help(options, usage, kOptions)) {
    fmt::print("{}", *help);
    return ExitCode::ok;
  }
  const bool publishes = options.choice("to", {"onnx", "huggingface", "peft"}) != "onnx";
  if (words.empty()) {
    throw UsageError(fmt::format("expected a run directory and {}, as in {} RUN {}, got no arguments",
                                 publishes ? "a folder to write" : "a file name that ends in .onnx", name,
                                 publishes ? "FOLDER --to huggingface" : "model.onnx"));
  }
  const std::string& target = words.back();
  if (!publishes && !target.ends_with(".onnx"))
    throw UsageError(fmt::format("expected a file name that ends in .onnx, as in {} RUN model.onnx, got {}",
                                 name, target));
  if (!publishes && options.has("dtype")) options.refuse("dtype", "only with --to huggingface or peft");
  FdLog log(STDERR_FILENO, "dtrain", LogLevel::warning);
  FdLog notes(STDERR_FILENO, "dtrain", LogLevel::info);
  const SavedRun run =
      open_run(program, run_or_newest(words.size() > 1 ? words[0] : "", name + " RUN " + target, notes), log);
  const SavedWeights weights =
      weights_of(run, options.has("checkpoint") ? options.text("checkpoint") : "", log);
  const std::string what = publishes ? published_folder(run, weights, target, options)
                                     : onnx_file(run, weights, target, options.enabled("overwrite"));
  fmt::print("{}: {} with the weights of {}, {}\n", target, run.task->name(), weights.path.string(), what);
  return ExitCode::ok;
}

}  // namespace dtrain
