// `dtrain train`: one worker of a job that learns one of the built-in tasks.
#include <sstream>

#include "models/tasks/built_in.h"
#include "models/text/words.h"
#include "training/train_main.h"
#include "worker/commands.h"

namespace dtrain {
namespace {

// clang-format off
constexpr OptionSpec kTaskOptions[] = {
    {"model", "What to train", "NAME", "lenet", "model: linear, mlp, lenet, resnet18 (for small images), resnet18-imagenet, resnet34, resnet50, resnet101, resnet152 (torchvision's), inception-resnet-v2, vit-small, vit-base, convnext-tiny; r3d-18 (clips); fcn-resnet50 (masks); transformer, gpt2, gpt2-medium, gpt2-large, gpt2-xl, gpt2-tiny, llama-tiny, bert-base, bert-tiny, llama:config.json, or hf:DIR (a folder with config.json)"},
    {"task", "What to train", "NAME", "", "task: classification, regression (mean squared error), segmentation (the class of each pixel), language (next token) or masked-language (BERT); unset: the model's own"},
    {"width", "What to train", "N", "", "transformer, gpt2-tiny: embedding dimension (d_model); unset: 64"},
    {"heads", "What to train", "N", "", "transformer, gpt2-tiny: attention heads; unset: 4"},
    {"layers", "What to train", "N", "", "transformer, gpt2-tiny: number of blocks; unset: 2"},
    {"tied", "What to train", "", "", "transformer: tie the weights of the token embedding and the output layer"},
    {"dropout", "What to train", "P", "0", "language models: dropout probability, after embeddings, attention and the feed-forward layer"},
    {"label-smoothing", "What to train", "P", "0", "classification: fraction of each target that is spread evenly over all classes"},
    {"class-weights", "What to train", "W,W,…", "", "classification: how much samples of each class count in training, in the classes' order: 1,4.5,1; unset: all alike"},
    {"mixup", "What to train", "ALPHA", "0", "classification: mix each sample with the previous one in its batch; the weight is drawn from Beta(ALPHA, ALPHA), once per batch; 0: off"},
    {"cutmix", "What to train", "ALPHA", "0", "classification of images: paste a rectangle from the previous sample, of a size drawn from Beta(ALPHA, ALPHA); with --mixup, each batch uses one of the two; 0: off"},
    {"zero-init-residual", "What to train", "", "", "resnet18-imagenet to resnet152: the last batch norm of each block begins at 0, as in large-batch recipes"},
    {"lora", "What to train", "SPEC", "", "language models: train only low-rank adapters, of layers q, k, v, qkv, o, gate, up or down: rank=8,alpha=16,on=q+v"},
};

// The data and their context= are the user's.
constexpr Preset kPresets[] = {
    // llm.c's GPT-2 (124M) on 10 billion tokens, 524,288 a step with context=1024
    {"gpt2-124m", "--model gpt2 --global-batch-size 512 --max-steps 19073 --optimizer adamw --betas 0.9,0.95 --weight-decay 0.1 --weight-decay-on matrices --clip-grad-norm 1 --lr 6e-4 --min-lr 0 --lr-schedule cosine --warmup-steps 700"},
    // nanoGPT's model of characters, with context=256
    {"char", "--model gpt2-tiny --width 384 --heads 6 --layers 6 --dropout 0.2 --global-batch-size 64 --max-steps 5000 --optimizer adamw --betas 0.9,0.99 --weight-decay 0.1 --weight-decay-on matrices --clip-grad-norm 1 --lr 1e-3 --min-lr 1e-4 --lr-schedule cosine --warmup-steps 100"},
    // the same in minutes on a CPU, with context=64
    {"char-cpu", "--model gpt2-tiny --width 128 --heads 4 --layers 4 --global-batch-size 12 --max-steps 2000 --optimizer adamw --betas 0.9,0.99 --weight-decay 0.1 --weight-decay-on matrices --clip-grad-norm 1 --lr 1e-3 --min-lr 1e-4 --lr-schedule cosine --warmup-steps 100"},
    // pytorch/examples; torchvision's first weights, 76.1 %, were trained like this
    {"imagenet-classic", "--model resnet50 --augment imagenet --global-batch-size 256 --epochs 90 --lr 0.1 --momentum 0.9 --weight-decay 1e-4 --lr-schedule step --lr-decay-at 30,60"},
    // torchvision's newer recipe, without its repeated samples; for resize=232. Its average of the weights (0.99998
    // each 32 steps, rescaled by 1024 * 32 / 600) is that of 0.999966 each step.
    {"imagenet-torchvision", "--model resnet50 --augment imagenet-v2,size=176 --mixup 0.2 --cutmix 1 --label-smoothing 0.1 --global-batch-size 1024 --epochs 600 --lr 0.5 --momentum 0.9 --weight-decay 2e-5 --weight-decay-on matrices --lr-schedule cosine --warmup-epochs 5 --warmup-from 0.005 --ema 0.999966"},
    // Goyal et al. 2017, "Accurate, large minibatch SGD", for any --global-batch-size
    {"imagenet-large-batch", "--model resnet50 --augment imagenet --global-batch-size 8192 --epochs 90 --lr 0.1 --scale-lr linear --base-batch-size 256 --momentum 0.9 --weight-decay 1e-4 --weight-decay-on matrices --lr-schedule step --lr-decay-at 30,60,80 --warmup-epochs 5 --warmup-from 0.1"},
    // ffcv-imagenet's rn50_16_epochs.yaml (8 workers of 512), without blurpool; for size=256
    {"imagenet-16-epochs", "--model resnet50 --augment imagenet,size=160/192/11/13 --label-smoothing 0.1 --global-batch-size 4096 --drop-last --epochs 16 --lr 1.7 --scale-lr linear --base-batch-size 4096 --momentum 0.9 --weight-decay 1e-4 --weight-decay-on matrices --lr-schedule linear --warmup-epochs 2 --warmup-from 1.7e-4"},
    // MLPerf Training's reference point for batches of 32,768 (mlcommons/logging, training_2.0.0/rcps_resnet.json)
    {"imagenet-lars", "--model resnet50 --augment imagenet --label-smoothing 0.1 --global-batch-size 32768 --epochs 58 --optimizer lars --lr 21.2 --trust 0.001 --momentum 0.94 --weight-decay 2.5e-5 --lr-schedule polynomial --lr-power 2 --min-lr 1e-4 --warmup-epochs 16"},
};
// clang-format on

double share_of(const Options& options, const char* name) {
  const auto share = parse_real(options.text(name));
  if (share && *share >= 0 && *share < 1) return *share;
  options.refuse(name, "a number of at least 0 and below 1");
}

double alpha_of(const Options& options, const char* name) {
  const auto alpha = parse_real(options.text(name));
  if (alpha && *alpha >= 0 && *alpha <= 1e6) return *alpha;
  options.refuse(name, "a number of at least 0 (0.2 or 1, say)");
}

std::vector<float> class_weights_of(const Options& options) {
  std::vector<float> weights;
  if (!options.has("class-weights")) return weights;
  std::istringstream text(options.text("class-weights"));
  for (std::string part; std::getline(text, part, ',');) {
    const auto weight = parse_real(part);
    if (!weight || !(*weight > 0 && *weight <= 1e6))
      options.refuse("class-weights", "a number above 0 for each class, as in 1,4.5,1");
    weights.push_back(static_cast<float>(*weight));
  }
  return weights;
}

/// What a classification of anything but texts knows.
SoftTargets targets_of(const Options& options, std::string_view task, bool text) {
  SoftTargets targets{share_of(options, "label-smoothing"),
                      {alpha_of(options, "mixup"), alpha_of(options, "cutmix")},
                      class_weights_of(options)};
  const auto refuse = [&](const char* name) {
    options.refuse(name, text ? "0 with a language model" : "0, or --task classification");
  };
  if (!targets.class_weights.empty() && (text || task != "classification"))
    options.refuse("class-weights", "only with --task classification, of anything but texts");
  if (targets.mixing.any() && options.enabled("train-metrics"))
    options.refuse("train-metrics", "nothing with --mixup or --cutmix, whose samples have two labels");
  if (targets.any() && (text || task != "classification"))
    refuse(targets.smoothing > 0 ? "label-smoothing" : targets.mixing.mixup > 0 ? "mixup" : "cutmix");
  return targets;
}

constexpr std::string_view kExamples =
    "  dtrain train --model lenet --dataset fashion-mnist --epochs 10\n"
    "  dtrain-launch --nproc-per-node=2 dtrain train --model resnet18 \\\n"
    "    --dataset folder:pictures --augment imagenet --epochs 30\n"
    "  dtrain train --model hf:gpt2 --init-from gpt2 --dataset text:mine.txt\n"
    "  dtrain train --run-dir runs/mine --epochs 20      (resumes runs/mine)";

}  // namespace

std::span<const OptionSpec> task_options() { return kTaskOptions; }

TrainProgram train_program() {
  return {"dtrain train", task_options(), task_of, kPresets, kExamples, "model, task, lora"};
}

std::shared_ptr<const Task> task_of(const Options& options) {
  const std::string& model = options.text("model");
  const bool own = model == "transformer";
  for (const char* const name : {"width", "heads", "layers"}) {
    if (options.has(name) && !own && model != "gpt2-tiny")
      options.refuse(name, "only with --model transformer or gpt2-tiny");
  }
  if (options.enabled("tied") && !own) options.refuse("tied", "only with --model transformer");
  const double dropout = share_of(options, "dropout");
  if (dropout > 0 && !is_text_model(model)) options.refuse("dropout", "0, or a language model (--model)");
  if (options.has("lora") && !is_text_model(model)) options.refuse("lora", "only with a language model");
  const auto adjust = [&](TextModel& text) {
    TransformerShape& shape = text.shape;
    for (const auto& [name, value] :
         {std::pair{"width", &shape.width}, {"heads", &shape.heads}, {"layers", &shape.layers}}) {
      if (options.has(name)) *value = options.integer(name, 1, 1 << 20);
    }
    if (own) shape.tied = options.enabled("tied");
    shape.dropout = dropout;
    text.tokenizer =
        tokenizer_in(options.text("dataset"), options.has("data-dir") ? options.text("data-dir") : "");
    if (options.has("lora")) shape.lora = parse_lora(options.text("lora"));
  };
  const std::string task = options.has("task") ? options.text("task") : std::string(default_task(model));
  const bool zero_last_norms = options.enabled("zero-init-residual");
  if (zero_last_norms && (task != "classification" || is_text_model(model)))
    options.refuse("zero-init-residual", "only with a residual network and --task classification");
  return make_task(task, model, adjust, targets_of(options, task, is_text_model(model)), zero_last_norms);
}

ExitCode run_train(const Invocation& invocation) {
  return run_training(train_program(), invocation.arguments, invocation.environment);
}

}  // namespace dtrain
