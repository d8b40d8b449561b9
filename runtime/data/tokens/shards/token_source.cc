#include "runtime/data/tokens/shards/token_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

bool begins_document(const TokenFile& file, std::int64_t token) {
  return std::ranges::binary_search(file.documents, token);
}

/// Where windows of whole documents begin.
std::vector<std::int64_t> whole_windows(const TokenFile& file, std::int64_t context) {
  std::vector<std::int64_t> firsts;
  const std::int64_t room = context + 1;
  std::int64_t begin = 0, full = 0;  // of a document; where the last window has no more room
  const auto take_until = [&](std::int64_t end) {
    if (end > std::max(begin, full)) {
      for (; end - begin > room; begin += context) firsts.push_back(begin);
      firsts.push_back(begin);
      full = begin + room;
    }
    begin = end;
  };
  for (const std::int64_t document : file.documents) take_until(document);
  take_until(file.count);
  return firsts;
}

/// Where in a window, from token `first` of the file on, the document of each of its tokens begins.
void write_documents(const TokenFile& file, std::int64_t first, std::int64_t count,
                     std::span<std::int32_t> documents) {
  auto next = std::ranges::upper_bound(file.documents, first);
  std::int32_t begin = 0;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    if (at >= count || (next != file.documents.end() && *next == first + at))
      begin = static_cast<std::int32_t>(at);
    while (next != file.documents.end() && *next <= first + at) ++next;
    documents[i] = begin;
  }
}

void check(const std::string& name, const std::vector<TokenFile>& files, const WindowOptions& options) {
  if (options.context < 1 || options.stride < 1 || options.vocabulary < 1) {
    throw UsageError(
        fmt::format("{}: expected context, stride and vocabulary of at least 1, got {}, {} and {}", name,
                    options.context, options.stride, options.vocabulary));
  }
  if (options.documents == DocumentWindows::joined) return;
  if (options.documents == DocumentWindows::whole && options.stride != options.context) {
    throw UsageError(
        fmt::format("{}: expected no stride for windows of whole documents, got {}", name, options.stride));
  }
  for (const TokenFile& file : files) {
    const std::vector<std::int64_t>& begins = file.documents;
    if (!std::ranges::is_sorted(begins) ||
        (!begins.empty() && (begins.front() < 0 || begins.back() > file.count)))
      throw DataError(file.path, -1, fmt::format("documents one behind the other in {} tokens", file.count),
                      "an index that says otherwise");
    if (!begins.empty()) continue;
    throw UsageError(fmt::format(
        "{}: expected files that say where documents begin (shards of dtrain tokenize, Megatron's), got {}, "
        "which is {}; leave documents= out",
        name, file.path, file.format));
  }
}

}  // namespace

TokenSource::TokenSource(std::string name, std::vector<TokenFile> files, const WindowOptions& options)
    : name_(std::move(name)), files_(std::move(files)), options_(options) {
  check(name_, files_, options_);
  const std::int64_t context = options_.context;
  std::int64_t tokens = 0;
  for (const TokenFile& file : files_) {
    std::int64_t windows = file.count > context ? (file.count - context - 1) / options_.stride + 1 : 0;
    if (options_.documents == DocumentWindows::whole) {
      firsts_.push_back(whole_windows(file, context));
      windows = static_cast<std::int64_t>(firsts_.back().size());
    }
    begins_.push_back(begins_.back() + windows);
    tokens += file.count;
  }
  if (size() < 1) {
    throw UsageError(
        fmt::format("{}: expected a file of more tokens than the context, {}, got {} in {} file{}", name_,
                    context, tokens, files_.size(), files_.size() == 1 ? "" : "s"));
  }
  fields_ = {{.name = "tokens", .dtype = DType::i32, .shape = {context + 1}, .values = options_.vocabulary}};
  if (options_.documents != DocumentWindows::joined)
    fields_.push_back(
        {.name = "documents", .dtype = DType::i32, .shape = {context + 1}, .values = context + 1});
  has_asked_ = std::ranges::any_of(files_, [](const TokenFile& file) { return file.asked.has_value(); });
  if (has_asked_)
    fields_.push_back({.name = "asked", .dtype = DType::u8, .shape = {context + 1}, .values = 2});
}

bool TokenSource::in_memory() const noexcept {
  return std::ranges::all_of(files_, [](const TokenFile& file) { return file.content.in_memory(); });
}

// Whole documents end where the next window begins; one that was cut continues from its last token.
TokenSource::Range TokenSource::range_of(std::size_t file, std::int64_t window) const {
  const std::int64_t room = options_.context + 1;
  if (options_.documents != DocumentWindows::whole) return {window * options_.stride, room};
  const std::vector<std::int64_t>& firsts = firsts_[file];
  const auto at = static_cast<std::size_t>(window);
  std::int64_t end = files_[file].count;
  if (at + 1 < firsts.size()) end = firsts[at + 1] + (begins_document(files_[file], firsts[at + 1]) ? 0 : 1);
  return {firsts[at], std::min(end - firsts[at], room)};
}

void TokenSource::read(std::int64_t index, std::span<const View> outputs,
                       KeyedGenerator& /*generator*/) const {
  const auto behind = std::upper_bound(begins_.begin(), begins_.end(), index);
  const auto number = static_cast<std::size_t>(behind - begins_.begin() - 1);
  const TokenFile& file = files_[number];
  const Range range = range_of(number, index - begins_[number]);
  const auto room = static_cast<std::size_t>(options_.context + 1);
  const std::span tokens(outputs[0].as<std::int32_t>(), room);
  file.read(range.first, tokens.first(static_cast<std::size_t>(range.count)));
  std::ranges::fill(tokens.subspan(static_cast<std::size_t>(range.count)), 0);
  if (options_.documents != DocumentWindows::joined)
    write_documents(file, range.first, range.count, {outputs[1].as<std::int32_t>(), room});
  if (!has_asked_) return;
  const std::span asked(outputs.back().as<std::uint8_t>(), room);
  file.read_asked(range.first, asked.first(static_cast<std::size_t>(range.count)));
  std::ranges::fill(asked.subspan(static_cast<std::size_t>(range.count)), std::uint8_t{0});
}

}  // namespace dtrain
