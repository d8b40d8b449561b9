// `dtrain generate`: continues prompts by a trained language model, a run of dtrain or a folder of published
// weights.
#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "models/text/generate.h"
#include "training/start/peers.h"
#include "training/start/threads.h"
#include "training/use/commands.h"
#include "training/use/saved_run.h"
#include "worker/commands.h"
#include "worker/language_model.h"

namespace dtrain {
namespace {

using Tokens = std::vector<std::int32_t>;

// clang-format off
constexpr OptionSpec kOptions[] = {
    {"prompt", "What to continue", "TEXT", "", "text to continue"},
    {"prompts", "What to continue", "FILE", "", "file with one prompt per line; all are continued in one batch"},
    {"checkpoint", "What to continue", "PATH", "", "weights of the run other than the newest: a checkpoint directory or a .safetensors file"},
    {"tokenizer", "What to continue", "FILE", "", "tokenizer.json, *.tiktoken or a folder; unset: the tokenizer of the folder or of the run's data, else bytes"},
    {"tokens", "Sampling", "N", "100", "most new tokens for each prompt"},
    {"temperature", "Sampling", "X", "0", "divide the logits by this before drawing a token; 0: always take the likeliest token"},
    {"top-k", "Sampling", "K", "0", "draw from the K likeliest tokens; 0: from all"},
    {"top-p", "Sampling", "P", "1", "draw from the likeliest tokens that together have probability P"},
    {"seed", "Sampling", "S", "0", "seed of the draws, as torch.manual_seed"},
    {"stop-tokens", "Sampling", "LIST", "", "tokens that end a text, by number: 50256,198; unset: the model's end-of-text token; none: no token"},
    {"cache", "Sampling", "WHEN", "on", "on: keep the keys and values of earlier tokens (KV cache); off: recompute them for each token"},
    {"device", "Machine", "NAME", "auto", "auto, cpu, cuda or cuda:N"},
    {"threads", "Machine", "N", "", "compute threads; unset: OMP_NUM_THREADS or all cores"},
    {"json", "Output", "", "", "print a JSON object for each prompt: prompt, text, tokens"},
    {"help", "Output", "", "", "print this text"},
};
// clang-format on

std::vector<std::string> prompts_of(const Options& options) {
  if (options.has("prompt") == options.has("prompts"))
    throw UsageError("expected --prompt TEXT or --prompts FILE, and not both");
  if (options.has("prompt")) return {options.text("prompt")};
  std::ifstream in(options.text("prompts"));
  if (!in) options.refuse("prompts", "a file that can be read");
  std::vector<std::string> prompts;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty()) prompts.push_back(line);
  }
  if (prompts.empty()) options.refuse("prompts", "a file with a prompt in each line");
  return prompts;
}

Tokens stop_tokens(const Options& options, const LanguageModel& model, const Words& words) {
  if (!options.has("stop-tokens")) {
    Tokens ends = model.ends;
    if (const auto end = words.end(); ends.empty() && end) ends.push_back(*end);
    return ends;
  }
  Tokens stops;
  std::string rest = options.text("stop-tokens");
  if (rest == "none") return stops;
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    const auto number = parse_integer(rest.substr(0, comma));
    if (!number || *number < 0 || *number > INT32_MAX)
      options.refuse("stop-tokens", "numbers of tokens, as in 50256,198, or none");
    stops.push_back(static_cast<std::int32_t>(*number));
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
  }
  return stops;
}

GenerateOptions generate_options(const Options& options) {
  return {.tokens = options.integer("tokens", 1, 1 << 24),
          .sampling = {.temperature = options.real("temperature", 0, 1e6),
                       .top_k = options.integer("top-k", 0, INT32_MAX),
                       .top_p = options.real("top-p", 1e-9, 1)},
          .seed = static_cast<std::uint64_t>(options.integer("seed", 0, INT64_MAX)),
          .cache = options.choice("cache", {"on", "off"}) == "on"};
}

void print_all(const std::vector<std::string>& prompts, const std::vector<Tokens>& made, const Words& words,
               bool json) {
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const std::string text = words.decode(made[i]);
    if (json) {
      const nlohmann::ordered_json object = {{"prompt", prompts[i]}, {"text", text}, {"tokens", made[i]}};
      // A token may end within a character.
      fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    } else {
      fmt::print("{}{}{}\n", prompts[i], text, i + 1 < prompts.size() ? "\n---" : "");
    }
  }
}

}  // namespace

ExitCode run_generate(const Invocation& invocation) {
  std::vector<std::string> arguments = invocation.arguments;
  const std::vector<std::string> paths = take_words(arguments, 1);
  const Options options = resolve_options("dtrain generate", kOptions, arguments, invocation.environment);
  if (const auto help =
          asked_help(options,
                     "usage: dtrain generate [RUN|FOLDER] --prompt TEXT [options]\n\nExamples:\n  dtrain "
                     "generate runs/mine --prompt 'Once upon a time' --temperature 0.8",
                     kOptions)) {
    fmt::print("{}", *help);
    return ExitCode::ok;
  }
  const std::vector<std::string> prompts = prompts_of(options);
  GenerateOptions how = generate_options(options);
  limit_threads(find_placement(invocation.environment), invocation.environment,
                static_cast<int>(options.has("threads") ? options.integer("threads", 1, 4096) : 0));
  FdLog log(STDERR_FILENO, "dtrain", LogLevel::warning);
  const auto device = make_device(options.text("device"));
  FdLog notes(STDERR_FILENO, "dtrain", LogLevel::info);
  const std::string path =
      run_or_newest(paths.empty() ? "" : paths[0], "dtrain generate runs/mine --prompt 'Once upon'", notes);
  const LanguageModel model =
      open_language_model(path, options.has("checkpoint") ? options.text("checkpoint") : "", device, log);
  Transformer& network = model.transformer();
  const Words words(options.has("tokenizer") ? options.text("tokenizer") : model.tokenizer,
                    network.shape().vocabulary);
  how.stop = stop_tokens(options, model, words);
  std::vector<Tokens> tokens;
  for (const std::string& prompt : prompts) tokens.push_back(words.encode(prompt));
  const bool streams = prompts.size() == 1 && !options.enabled("json");
  if (!streams) {
    print_all(prompts, generate(network, tokens, how), words, options.enabled("json"));
    return ExitCode::ok;
  }
  fmt::print("{}", prompts[0]);
  generate(network, tokens, how, [&](std::size_t, std::int32_t token) {
    fmt::print("{}", words.decode({&token, 1}));
    std::fflush(stdout);
  });
  fmt::print("\n");
  return ExitCode::ok;
}

}  // namespace dtrain
