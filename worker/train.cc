// `dtrain train`: one worker of a job that learns one of the built-in tasks.
#include "models/tasks/built_in.h"
#include "training/train_main.h"
#include "worker/commands.h"

namespace dtrain {
namespace {

// clang-format off
constexpr OptionSpec kTaskOptions[] = {
    {"model", "What to train", "NAME", "lenet", "linear, mlp, lenet, resnet18, resnet50; transformer, gpt2, gpt2-medium, gpt2-large, gpt2-xl, gpt2-tiny, llama-tiny, bert-base, bert-tiny, llama:config.json, or hf:DIR (a folder with config.json)"},
    {"task", "What to train", "NAME", "", "classification, regression (mean squared error), language (next token) or masked-language (BERT); unset: the model's own"},
    {"width", "What to train", "N", "", "transformer: embedding dimension (d_model); unset: 64"},
    {"heads", "What to train", "N", "", "transformer: attention heads; unset: 4"},
    {"layers", "What to train", "N", "", "transformer: number of blocks; unset: 2"},
    {"tied", "What to train", "", "", "transformer: tie the weights of the token embedding and the output layer"},
    {"dropout", "What to train", "P", "0", "language models: dropout probability, after embeddings, attention and the feed-forward layer"},
    {"lora", "What to train", "SPEC", "", "language models: train low-rank adapters alone: rank=8,alpha=16,on=q+v, of layers q, k, v, qkv, o, gate, up, down"},
};
// clang-format on

double dropout_of(const Options& options) {
  const auto share = parse_real(options.text("dropout"));
  if (share && *share >= 0 && *share < 1) return *share;
  options.refuse("dropout", "a number of at least 0 and below 1");
}

}  // namespace

std::span<const OptionSpec> task_options() { return kTaskOptions; }

std::shared_ptr<const Task> task_of(const Options& options) {
  const std::string& model = options.text("model");
  const bool own = model == "transformer";
  for (const char* const name : {"width", "heads", "layers"}) {
    if (options.has(name) && !own) options.refuse(name, "--model transformer with it");
  }
  if (options.enabled("tied") && !own) options.refuse("tied", "--model transformer with it");
  const double dropout = dropout_of(options);
  if (dropout > 0 && !is_text_model(model)) options.refuse("dropout", "0, or a language model with it");
  if (options.has("lora") && !is_text_model(model)) options.refuse("lora", "a language model with it");
  const auto adjust = [&](TransformerShape& shape) {
    for (const auto& [name, value] :
         {std::pair{"width", &shape.width}, {"heads", &shape.heads}, {"layers", &shape.layers}}) {
      if (options.has(name)) *value = options.integer(name, 1, 1 << 20);
    }
    if (own) shape.tied = options.enabled("tied");
    shape.dropout = dropout;
    if (options.has("lora")) shape.lora = parse_lora(options.text("lora"));
  };
  return make_task(options.has("task") ? options.text("task") : default_task(model), model, adjust);
}

ExitCode run_train(const Invocation& invocation) {
  return run_training({"dtrain train", task_options(), task_of}, invocation.arguments,
                      invocation.environment);
}

}  // namespace dtrain
