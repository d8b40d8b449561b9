#include "runtime/data/tokens/shards/token_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace dtrain {

TokenSource::TokenSource(std::string name, std::vector<TokenFile> files, std::int64_t context,
                         std::int64_t stride, std::int64_t vocabulary)
    : name_(std::move(name)), files_(std::move(files)), context_(context), stride_(stride) {
  if (context < 1 || stride < 1 || vocabulary < 1) {
    throw UsageError(
        fmt::format("{}: expected context, stride and vocabulary of at least 1, got {}, {} and {}", name_,
                    context, stride, vocabulary));
  }
  std::int64_t tokens = 0;
  for (const TokenFile& file : files_) {
    const std::int64_t windows = file.count > context ? (file.count - context - 1) / stride + 1 : 0;
    begins_.push_back(begins_.back() + windows);
    tokens += file.count;
  }
  if (size() < 1) {
    throw UsageError(
        fmt::format("{}: expected a file of more tokens than the context, {}, got {} in {} file{}", name_,
                    context, tokens, files_.size(), files_.size() == 1 ? "" : "s"));
  }
  fields_ = {{.name = "tokens", .dtype = DType::i32, .shape = {context + 1}, .values = vocabulary}};
}

bool TokenSource::in_memory() const noexcept {
  return std::ranges::all_of(files_, [](const TokenFile& file) { return file.content.in_memory(); });
}

void TokenSource::read(std::int64_t index, std::span<const View> outputs,
                       KeyedGenerator& /*generator*/) const {
  const auto behind = std::upper_bound(begins_.begin(), begins_.end(), index);
  const auto file = static_cast<std::size_t>(behind - begins_.begin() - 1);
  files_[file].read((index - begins_[file]) * stride_,
                    {outputs[0].as<std::int32_t>(), static_cast<std::size_t>(context_ + 1)});
}

}  // namespace dtrain
