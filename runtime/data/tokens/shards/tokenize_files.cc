#include "runtime/data/tokens/shards/tokenize_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/base/files/durable_file.h"
#include "runtime/data/cache/content_hash.h"
#include "runtime/data/tokens/shards/share_out.h"
#include "runtime/data/tokens/shards/token_shard.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// To tell whether the inputs are those of before: of all together, of each at least.
constexpr std::uintmax_t kMostLookedAt = 64 << 20, kLeastLookedAt = 64 << 10;
constexpr std::size_t kBlockBytes = 4096;

/// Tokens of one document, or of a part of one.
struct EncodedText {
  std::size_t prompt = 0, count = 0;  ///< tokens of a prompt, which come first, and all
  bool begins = true;                 ///< whether the document does with them
};

struct EncodedPiece : DocumentPiece {
  std::vector<std::int32_t> tokens;
  std::vector<EncodedText> texts;  ///< which they are of
  bool ends_document = false;
};

void encode(EncodedPiece& encoded, Encoder& encoder, const std::optional<std::int32_t>& end_token) {
  encoded.tokens.clear();
  encoded.texts.clear();
  for (const DocumentText& part : encoded.parts) {
    const std::size_t before = encoded.tokens.size();
    if (!part.prompt.empty()) encoder.encode(part.prompt, encoded.tokens);
    const std::size_t prompt = encoded.tokens.size() - before;
    encoder.encode(part.text, encoded.tokens);
    if (part.ends && end_token) encoded.tokens.push_back(*end_token);
    encoded.texts.push_back({prompt, encoded.tokens.size() - before, part.begins});
    encoded.ends_document = part.ends;
  }
}

/// What progress.json says.
struct State {
  std::string settings;
  std::vector<std::string> inputs;  ///< content_of() each; empty: an older version wrote it
  DocumentPosition at;
  TokenizeProgress progress;
  bool done = false;
};

/// What a conversion's shards depend on.
std::string settings_of(const TokenizeRequest& request) {
  std::string settings =
      fmt::format("tokenizer {:016x}, {} tokens a shard, field {}, end {}", request.tokenizer->hash(),
                  request.shard_tokens, request.fields.text, request.end_token.value_or(-1));
  if (!request.fields.prompt.empty()) settings += fmt::format(", prompt {}", request.fields.prompt);
  for (const std::string& input : request.inputs) {
    std::error_code missing;
    settings += fmt::format(", {} of {} bytes", input, fs::file_size(input, missing));
  }
  return settings;
}

/// A hash of what lies in the file: of all where that is little, else of blocks that make `most` bytes,
/// evenly spread. Empty for what is no file, which the reader refuses.
std::string content_of(const std::string& path, std::uintmax_t most) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return "";
  std::ifstream file(path, std::ios::binary);
  const std::uintmax_t bytes = fs::file_size(path, error);
  const auto blocks = static_cast<std::int64_t>((bytes + kBlockBytes - 1) / kBlockBytes);
  const std::int64_t count = std::min(blocks, static_cast<std::int64_t>(most / kBlockBytes));
  std::array<char, kBlockBytes> block{};
  ContentHash hash;
  for (std::int64_t i = 0; i < count && file; ++i) {
    file.seekg(evenly_spread(i, count, blocks) * static_cast<std::int64_t>(kBlockBytes));
    file.read(block.data(), block.size());
    if (file.eof()) file.clear();
    hash.add(std::as_bytes(std::span(block).first(static_cast<std::size_t>(file.gcount()))));
  }
  return hash.text();
}

std::vector<std::string> contents_of(const std::vector<std::string>& inputs) {
  const std::uintmax_t most = std::max(kMostLookedAt / inputs.size(), kLeastLookedAt);
  std::vector<std::string> contents;
  for (const std::string& input : inputs) contents.push_back(content_of(input, most));
  return contents;
}

std::optional<State> read_state(const fs::path& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  try {
    const Json json = Json::parse(file);
    State state{json.at("settings"),
                json.value("inputs", std::vector<std::string>()),
                {json.at("input"), json.at("offset")},
                {},
                json.at("done")};
    state.progress = {json.at("bytes"), json.at("tokens"), json.at("shards"), true};
    return state;
  } catch (const Json::exception& error) {
    throw DataError(path.string(), -1, "the progress of a conversion (remove the folder to start over)",
                    error.what());
  }
}

void write_state(const fs::path& path, const State& state) {
  replace_file(path, Json{{"settings", state.settings},
                          {"inputs", state.inputs},
                          {"input", state.at.input},
                          {"offset", state.at.offset},
                          {"bytes", state.progress.bytes},
                          {"tokens", state.progress.tokens},
                          {"shards", state.progress.shards},
                          {"done", state.done}}
                             .dump(2) +
                         "\n");
}

class Conversion {
 public:
  explicit Conversion(const TokenizeRequest& request)
      : request_(request),
        state_path_(request.output / "progress.json"),
        state_(begin()),
        now_(state_.progress) {}

  TokenizeProgress run() {
    if (state_.done) return state_.progress;
    DocumentReader reader(request_.inputs, request_.fields, request_.tokenizer->cuts_at_lines(), state_.at);
    std::vector<Encoder> encoders;
    for (int i = 0; i < request_.threads; ++i) encoders.emplace_back(request_.tokenizer);
    share_out_texts<EncodedPiece>(
        reader, encoders,
        [&](Encoder& encoder, EncodedPiece& piece) { encode(piece, encoder, request_.end_token); },
        [&](const std::vector<EncodedPiece>& batch) {
          for (const EncodedPiece& piece : batch) write(piece);
          if (request_.on_progress) request_.on_progress(now_);
        });
    state_.done = true;
    finish_shard();
    return state_.progress;
  }

 private:
  State begin() const {
    make_directories(request_.output);
    const std::string settings = settings_of(request_);
    std::vector<std::string> inputs = contents_of(request_.inputs);
    if (auto state = read_state(state_path_)) {
      if (state->settings == settings) {
        check_inputs(state->inputs, inputs);
        state->inputs = std::move(inputs);
        return *std::move(state);
      }
      throw UsageError(fmt::format(
          "{}: expected an empty folder, or one of the same conversion ({}), got one of: {}; give "
          "another folder",
          request_.output.string(), settings, state->settings));
    }
    if (!fs::is_empty(request_.output))
      throw UsageError(fmt::format("{}: expected an empty folder for the shards, got one with files",
                                   request_.output.string()));
    State state{settings, std::move(inputs), {}, {}, false};
    write_state(state_path_, state);
    return state;
  }

  void check_inputs(const std::vector<std::string>& then, const std::vector<std::string>& now) const {
    if (then.empty() || then == now) return;
    const auto [old, differs] = std::ranges::mismatch(then, now);
    throw UsageError(fmt::format(
        "{}: expected the inputs that this conversion was started with, got {} with other content of the "
        "same "
        "size; put the file back, or give another folder",
        request_.output.string(), request_.inputs[static_cast<std::size_t>(differs - now.begin())]));
  }

  void write(const EncodedPiece& piece) {
    if (!writer_) {
      writer_.emplace(request_.output / fmt::format("{:05}.tokens", now_.shards),
                      request_.tokenizer->vocabulary(), request_.tokenizer->hash());
    }
    std::span<const std::int32_t> rest = piece.tokens;
    for (const EncodedText& text : piece.texts) {
      if (text.begins) writer_->begin_document();
      if (text.prompt > 0) writer_->append(rest.first(text.prompt), false);
      writer_->append(rest.subspan(text.prompt, text.count - text.prompt));
      rest = rest.subspan(text.count);
    }
    now_.bytes += piece.text_bytes();
    now_.tokens += static_cast<std::int64_t>(piece.tokens.size());
    at_ = piece.end;
    if (piece.ends_document && writer_->tokens() >= request_.shard_tokens) finish_shard();
  }

  /// The shard first, then that it is there: one that was killed between writes the same shard again.
  void finish_shard() {
    if (writer_) {
      writer_->finish();
      writer_.reset();
      ++now_.shards;
      state_.at = at_;
    }
    state_.progress = now_;
    write_state(state_path_, state_);
  }

  const TokenizeRequest& request_;
  fs::path state_path_;
  State state_;
  TokenizeProgress now_;
  DocumentPosition at_;
  std::optional<ShardWriter> writer_;
};

}  // namespace

TokenizeProgress tokenize_files(const TokenizeRequest& request) {
  if (!request.tokenizer || request.inputs.empty() || request.threads < 1 || request.shard_tokens < 1)
    throw UsageError(fmt::format(
        "tokenize: expected a tokenizer, inputs, at least 1 thread and 1 token a shard, got {}, {}, {} and "
        "{}",
        request.tokenizer ? "one" : "none", request.inputs.size(), request.threads, request.shard_tokens));
  check_document_files(request.inputs, !request.fields.prompt.empty());
  return Conversion(request).run();
}

}  // namespace dtrain
