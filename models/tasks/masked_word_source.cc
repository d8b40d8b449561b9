#include "models/tasks/masked_word_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr std::int64_t kShortest = 8;  // tokens of a sample
constexpr float kAsMask = 0.8F, kAsItWas = 0.9F;

const Field& checked_window(const Source& windows) {
  const Field& tokens = windows.fields().front();
  const bool integers = tokens.dtype == DType::i32 || tokens.dtype == DType::i64;
  if (tokens.name == "tokens" && integers && tokens.shape.rank() == 1 && tokens.shape[0] > kShortest &&
      tokens.values > 0 && windows.fields().size() == 1) {
    return tokens;
  }
  throw UsageError(
      fmt::format("masked words: expected samples with a field tokens (int32 or int64 [{} or more], its "
                  "number of values known) alone, got {}; a text's bytes are such samples",
                  kShortest + 1, describe(windows.fields())));
}

}  // namespace

MaskedWordSource::MaskedWordSource(std::shared_ptr<const Source> windows, const BertTokens& tokens,
                                   const MaskedWordOptions& options)
    : windows_(std::move(windows)), tokens_(tokens), pairs_(options.pairs) {
  length_ = checked_window(*windows_).shape[0] - 1;
  if (pairs_ && windows_->size() < 2) {
    throw UsageError(fmt::format("{}: expected two windows or more, of which to make pairs, got {}",
                                 windows_->name(), windows_->size()));
  }
  masked_ = std::max<std::int64_t>(1, std::llround(options.share * static_cast<double>(length_)));
  fields_ = {{.name = "tokens", .dtype = DType::i32, .shape = {length_}, .values = tokens.vocabulary},
             {.name = "segments", .dtype = DType::i32, .shape = {length_}, .values = 2},
             {.name = "positions", .dtype = DType::i64, .shape = {masked_}, .values = length_},
             {.name = "words",
              .dtype = DType::i64,
              .shape = {masked_},
              .values = windows_->fields().front().values}};
  if (pairs_) fields_.push_back({.name = "next", .dtype = DType::i64, .values = 2});
}

std::vector<std::int32_t> MaskedWordSource::window(std::int64_t index, KeyedGenerator& generator) const {
  const Field& field = windows_->fields().front();
  const std::int64_t count = field.shape[0];
  if (field.dtype == DType::i32) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
    const View view{tokens.data(), DType::i32, {count}, {1}};
    windows_->read(index, {&view, 1}, generator);
    return tokens;
  }
  std::vector<std::int64_t> wide(static_cast<std::size_t>(count));
  const View view{wide.data(), DType::i64, {count}, {1}};
  windows_->read(index, {&view, 1}, generator);
  std::vector<std::int32_t> tokens;
  for (const std::int64_t token : wide) tokens.push_back(static_cast<std::int32_t>(token));
  return tokens;
}

void MaskedWordSource::read(std::int64_t index, std::span<const View> outputs,
                            KeyedGenerator& generator) const {
  std::vector<std::int32_t> text = window(index, generator);
  const auto half = static_cast<std::ptrdiff_t>((length_ - 3) / 2);
  const bool other = pairs_ && generator.below(2) == 1;
  if (other) {
    const auto step = 1 + generator.below(static_cast<std::uint64_t>(size() - 1));
    const auto from = window((index + static_cast<std::int64_t>(step)) % size(), generator);
    std::copy(from.begin() + half, from.end(), text.begin() + half);
  }
  if (pairs_) *outputs[4].as<std::int64_t>() = other ? 1 : 0;
  mask(frame(text, outputs), outputs, generator);
}

std::vector<std::int64_t> MaskedWordSource::frame(std::span<const std::int32_t> text,
                                                  std::span<const View> outputs) const {
  std::vector<std::int64_t> words;
  std::int64_t at = 0;
  const auto put = [&](std::int32_t token, std::int32_t segment) {
    outputs[0].as<std::int32_t>()[at] = token;
    outputs[1].as<std::int32_t>()[at++] = segment;
  };
  const auto put_segment = [&](std::span<const std::int32_t> part, std::int32_t segment) {
    for (const std::int32_t token : part) {
      words.push_back(at);
      put(token, segment);
    }
    put(tokens_.separator, segment);
  };
  const auto count = static_cast<std::size_t>(length_);
  put(tokens_.first, 0);
  if (pairs_) {
    put_segment(text.first((count - 3) / 2), 0);
    put_segment(text.subspan((count - 3) / 2, count - 3 - (count - 3) / 2), 1);
  } else {
    put_segment(text.first(count - 2), 0);
  }
  return words;
}

void MaskedWordSource::mask(std::vector<std::int64_t> words, std::span<const View> outputs,
                            KeyedGenerator& generator) const {
  const auto masked = static_cast<std::size_t>(masked_);
  for (std::size_t i = 0; i < masked; ++i) {  // a random choice of them comes first
    const std::size_t from = i + static_cast<std::size_t>(generator.below(words.size() - i));
    std::swap(words[i], words[from]);
  }
  std::sort(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(masked));
  const auto any = static_cast<std::uint64_t>(windows_->fields().front().values);
  auto* const tokens = outputs[0].as<std::int32_t>();
  for (std::size_t i = 0; i < masked; ++i) {
    std::int32_t& token = tokens[words[i]];
    outputs[2].as<std::int64_t>()[i] = words[i];
    outputs[3].as<std::int64_t>()[i] = token;
    const float draw = generator.uniform();
    if (draw < kAsMask) {
      token = tokens_.mask;
    } else if (draw >= kAsItWas) {
      token = static_cast<std::int32_t>(generator.below(any));
    }
  }
}

}  // namespace dtrain
