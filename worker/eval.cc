// `dtrain eval`: the test accuracy of a checkpoint, alone or sharded over workers, or its answers to
// questions.
#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <numbers>
#include <numeric>

#include "models/tasks/asked_tokens.h"
#include "models/tasks/built_in.h"
#include "models/tasks/language.h"
#include "runtime/data/fingerprint.h"
#include "runtime/data/loader.h"
#include "training/engine/evaluate.h"
#include "training/start/peers.h"
#include "training/start/same_data.h"
#include "training/start/threads.h"
#include "training/start/unused_gpus.h"
#include "training/use/commands.h"
#include "training/use/published_weights.h"
#include "training/use/saved_run.h"
#include "training/use/weights.h"
#include "worker/choices.h"
#include "worker/commands.h"
#include "worker/language_model.h"

namespace dtrain {
namespace {

// clang-format off
constexpr OptionSpec kOptions[] = {
    {"checkpoint", "What to evaluate", "PATH", "", "the same as the first argument: a run directory, a checkpoint directory, a .safetensors file, or a folder of published weights; unset: the newest run in runs/"},
    {"model", "What to evaluate", "NAME", "", "model; unset: the checkpoint's"},
    {"task", "What to evaluate", "NAME", "", "task; unset: the checkpoint's"},
    {"dataset", "What to evaluate", "NAME", "", "data set; unset: the checkpoint's"},
    {"data-dir", "What to evaluate", "DIR", "", "folder with the data set's files; unset: where Debian's package installs them"},
    {"on-bad-sample", "What to evaluate", "HOW", "stop", "what to do with an image that cannot be decoded: stop, or skip (report it and use the next one instead; at most one in a hundred)"},
    {"choices", "What to evaluate", "FILE", "", "multiple-choice questions for a language model, instead of a data set: *.jsonl with query, choices and gold (or ctx, endings and label)"},
    {"tokenizer", "What to evaluate", "FILE", "", "tokenizer of a language model: tokenizer.json, *.tiktoken or a folder; unset: the tokenizer of the data or of the folder, else bytes"},
    {"batch-size", "What to evaluate", "N", "256", "samples per worker and batch"},
    {"device", "Machine", "NAME", "auto", "auto, cpu, cuda (this worker's GPU) or cuda:N"},
    {"backend", "Machine", "NAME", "auto", "collectives: auto, nccl, tcp, gloo or mpi"},
    {"timeout", "Machine", "SECONDS", "300", "longest wait for the other workers"},
    {"json", "Output", "", "", "print one JSON object"},
    {"help", "Output", "", "", "print this text"},
};
// clang-format on

// `otherwise`: what it was before checkpoints said so.
std::string option_or(const Options& options, const std::string& name, const SavedWeights& weights,
                      const std::optional<std::string>& otherwise = {}) {
  if (options.has(name)) return options.text(name);
  const auto found = weights.identity.find(name);
  if (found == weights.identity.end() && otherwise) return *otherwise;
  if (found == weights.identity.end())
    throw UsageError(fmt::format("--{}: expected a name, got none, and the checkpoint does not say", name));
  return found->second;
}

/// A language model's sizes as the run had them.
void adjust(const SavedWeights& weights, TransformerShape& shape) {
  for (const auto& [name, value] :
       {std::pair{"width", &shape.width}, {"heads", &shape.heads}, {"layers", &shape.layers}}) {
    const auto found = weights.identity.find(name);
    if (found != weights.identity.end()) *value = parse_integer(found->second).value_or(*value);
  }
  if (weights.identity.contains("tied")) shape.tied = true;
  if (const auto lora = weights.identity.find("lora"); lora != weights.identity.end())
    shape.lora = parse_lora(lora->second);
}

/// The run's own data must have the columns it learned from; held-out samples that differ are reported.
void check_data(const SavedWeights& weights, const DataFingerprint& found, bool own, Log& log) {
  const auto learned = from_entries(weights.identity);
  if (!learned) return;
  if (learned->fields != found.fields) {
    throw UsageError(fmt::format("--dataset: expected samples of {}, as {} was trained on, got {}",
                                 learned->fields, weights.path.string(), found.fields));
  }
  if (const std::string names = difference(learned->names, found.names); !names.empty()) {
    throw UsageError(fmt::format("--dataset: the classes are not those that {} was trained on: {}",
                                 weights.path.string(), names));
  }
  if (!own || fits(learned->test, found.test)) return;
  log.write(LogLevel::warning,
            fmt::format("the held-out samples are not those of {}: {} then, {} now", weights.path.string(),
                        learned->test.to_string(), found.test.to_string()));
}

std::string json_of(const Evaluation& result) {
  nlohmann::json json = {{"loss", result.loss}, {"samples", result.samples}};
  for (const auto& [name, value] : result.metrics) json[name] = value;
  return json.dump();
}

std::string json_of(const ChoicesResult& result) {
  return nlohmann::json{{"accuracy", result.log},
                        {"accuracy_by_letter", result.by_letter},
                        {"accuracy_by_token", result.by_token},
                        {"questions", result.questions}}
      .dump();
}

std::string text_of(const ChoicesResult& result) {
  return fmt::format(
      "accuracy {:.4f}, with likelihoods divided by letters {:.4f}, by tokens {:.4f} ({} questions)",
      result.log, result.by_letter, result.by_token, result.questions);
}

std::string text_of(const Evaluation& result) {
  std::string text;
  for (const auto& [name, value] : result.metrics) text += fmt::format("test {} {:.4f}, ", name, value);
  return text + fmt::format("test loss {:.4f} ({} samples)", result.loss, result.samples);
}

/// Bytes of text that a token stands for which `source` asks for, on average; nothing where texts are not
/// known. What ends a text has no bytes.
std::optional<double> bytes_a_token(const std::shared_ptr<const Source>& source, const std::string& tokenizer,
                                    Duration patience) {
  const std::int64_t vocabulary = source->fields().front().values;
  if (tokenizer.empty() && vocabulary != 256) return std::nullopt;
  const Words words(tokenizer, vocabulary);
  std::vector<double> bytes;
  for (std::int32_t token = 0; token < vocabulary; ++token)
    bytes.push_back(token == words.end() ? 0 : static_cast<double>(words.decode({&token, 1}).size()));
  std::vector<std::int64_t> order(static_cast<std::size_t>(source->size()));
  std::iota(order.begin(), order.end(), 0);
  Loader loader(source, make_device("cpu"), {.batch_size = 64});
  loader.start(std::move(order), 0);
  double tokens = 0, total = 0;
  while (const auto batch = loader.next(Deadline::after(patience))) {
    for_each_asked(*batch, [&](std::int64_t token) {
      ++tokens;
      total += bytes.at(static_cast<std::size_t>(token));
    });
  }
  return total > 0 ? std::optional(total / tokens) : std::nullopt;
}

/// What every worker of an evaluation has.
struct Here {
  const Options& options;
  const std::string& weights;  ///< a run, a checkpoint, a file, or a folder of published ones
  const Environment& environment;
  Placement placement;
  Duration timeout;
  Log& log;
  std::shared_ptr<Device> device;

  bool speaks() const { return *placement.rank == 0; }
  Peers peers() const {
    return {placement,   backend_named(options.choice("backend", {"auto", "nccl", "tcp", "gloo", "mpi"})),
            environment, timeout,
            log,         device.get()};
  }
};

ExitCode answer_questions(const Here& here) {
  const Options& options = here.options;
  for (const char* const name : {"model", "task", "dataset", "data-dir"}) {
    if (options.has(name)) options.refuse(name, "nothing together with --choices");
  }
  const std::vector<Question> questions = read_questions(options.text("choices"));
  const LanguageModel model = open_language_model(here.weights, "", here.device, here.log);
  const Words words(options.has("tokenizer") ? options.text("tokenizer") : model.tokenizer,
                    model.transformer().shape().vocabulary);
  Peers peers = here.peers();
  const ChoicesResult found = answer(model, words, questions, options.integer("batch-size", 1, INT32_MAX),
                                     peers.communicator(), Deadline::after(here.timeout));
  if (here.speaks()) fmt::print("{}\n", options.enabled("json") ? json_of(found) : text_of(found));
  peers.leave();
  return ExitCode::ok;
}

/// Whose weights are evaluated, and on what: a checkpoint's, or those of a folder of published ones.
struct Subject {
  std::string model = {}, dataset = {};
  std::unique_ptr<Task> task = nullptr;
  std::optional<SavedWeights> saved = std::nullopt;          ///< nothing: published
  std::optional<PublishedWeights> published = std::nullopt;  ///< nothing: saved

  void load(Module& network, std::span<const Field> fields) const {
    if (saved)
      load_weights(network, *saved, model);
    else
      load_published(network, *published, *task->published_format(fields), model);
  }
};

Subject saved_subject(const Options& options, const std::string& path, Log& log) {
  Subject subject{.saved = open_weights(path, "--checkpoint", log)};
  const SavedWeights& weights = *subject.saved;
  subject.model = option_or(options, "model", weights);
  subject.task = make_task(option_or(options, "task", weights, std::string(default_task(subject.model))),
                           subject.model, [&](TextModel& text) { adjust(weights, text.shape); });
  subject.dataset = option_or(options, "dataset", weights);
  return subject;
}

Subject published_subject(const Options& options, const std::string& folder) {
  if (options.has("model"))
    options.refuse("model", "none, as the folder of published weights names its model");
  if (!options.has("dataset")) throw UsageError("--dataset: expected a name, got none");
  Subject subject{.model = "hf:" + folder,
                  .dataset = options.text("dataset"),
                  .published = PublishedWeights::open(folder)};
  subject.task =
      make_task(options.has("task") ? options.text("task") : default_task(subject.model), subject.model);
  return subject;
}

ExitCode evaluate_samples(const Here& here) {
  const Options& options = here.options;
  Log& log = here.log;
  const auto& device = here.device;
  const Subject subject = PublishedWeights::is_folder(here.weights)
                              ? published_subject(options, here.weights)
                              : saved_subject(options, here.weights, log);
  const auto& task = subject.task;
  const Splits splits = task->open(
      {.dataset = subject.dataset,
       .data_dir = options.has("data-dir") ? options.text("data-dir") : "",
       .log = &log,
       .on_bad_sample = options.choice("on-bad-sample", {"stop", "skip"}) == "skip" ? OnBadSample::skip
                                                                                    : OnBadSample::stop});
  const DataFingerprint data = fingerprint(*splits.train, *splits.test);
  if (subject.saved) check_data(*subject.saved, data, !options.has("dataset") && here.speaks(), log);
  const auto& source = splits.test;
  Peers peers = here.peers();
  check_same_data(data, peers.communicator(), Deadline::after(here.timeout));
  Generator unused(0);
  const auto network = task->build(source->fields(), unused, device);
  subject.load(*network, source->fields());
  network->eval();
  Evaluation result = evaluate(
      *task, [&](const Tensors& inputs) { return (*network)(inputs); }, source,
      {.batch_size = options.integer("batch-size", 1, INT32_MAX),
       .share = {peers.communicator().rank(), peers.communicator().size()},
       .patience = here.timeout},
      peers.communicator(), device);
  if (here.speaks()) {
    const std::string tokenizer =
        options.has("tokenizer")
            ? options.text("tokenizer")
            : tokenizer_in(subject.dataset, options.has("data-dir") ? options.text("data-dir") : "");
    const bool is_language = dynamic_cast<const Language*>(task.get()) != nullptr;
    if (const auto bytes = is_language ? bytes_a_token(source, tokenizer, here.timeout) : std::nullopt)
      result.metrics.emplace_back("bits_per_byte", result.loss / std::numbers::ln2 / *bytes);
    fmt::print("{}\n", options.enabled("json") ? json_of(result) : text_of(result));
  }
  peers.leave();
  return ExitCode::ok;
}

}  // namespace

ExitCode run_eval(const Invocation& invocation) {
  std::vector<std::string> arguments = invocation.arguments;
  const std::vector<std::string> words = take_words(arguments, 1);
  const Options options = resolve_options("dtrain eval", kOptions, arguments, invocation.environment);
  if (const auto help = asked_help(options,
                                   "usage: dtrain eval [RUN|PATH] [options]\n\nExamples:\n  dtrain eval "
                                   "runs/mine\n  dtrain-launch --nproc-per-node=2 dtrain eval runs/mine",
                                   kOptions)) {
    fmt::print("{}", *help);
    return ExitCode::ok;
  }
  const Placement placement = find_placement(invocation.environment);
  limit_threads(placement, invocation.environment);
  FdLog log(STDERR_FILENO, "dtrain", LogLevel::info),
      notes(STDERR_FILENO, "dtrain", *placement.rank == 0 ? LogLevel::info : LogLevel::warning);
  if (!words.empty() && options.has("checkpoint")) options.refuse("checkpoint", "nothing beside a path");
  const std::string given =
      words.empty() ? (options.has("checkpoint") ? options.text("checkpoint") : "") : words[0];
  const std::string weights = run_or_newest(given, "dtrain eval runs/mine", notes);
  const Here here{
      options,
      weights,
      invocation.environment,
      placement,
      std::chrono::nanoseconds(static_cast<std::int64_t>(options.real("timeout", 0.001, 1e6) * 1e9)),
      log,
      make_device(options.text("device"), {.local_rank = *placement.local_rank})};
  if (const std::string why = why_no_gpu(*here.device, invocation.environment);
      options.text("device") == "auto" && here.speaks() && !why.empty())
    log.write(LogLevel::warning, why);
  return options.has("choices") ? answer_questions(here) : evaluate_samples(here);
}

}  // namespace dtrain
