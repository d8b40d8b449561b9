#include "runtime/data/fingerprint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "runtime/data/formats/text.h"

namespace dtrain {
namespace {

constexpr std::int64_t kMostBytes = 4 << 20, kLeastSamples = 16;
constexpr const char *kFields = "data-fields", *kTrain = "data-train", *kTest = "data-test";

/// As FNV-1a, but eight bytes at a time: not against forgery, against mistakes.
class Hash {
 public:
  /// `bytes` is a multiple of eight long.
  void add(std::span<const std::byte> bytes) noexcept {
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data() + at, sizeof word);
      value_ = (value_ ^ word) * kPrime;
      value_ ^= value_ >> 32U;  // high bits count too
    }
  }
  std::uint64_t value() const noexcept { return value_; }

 private:
  static constexpr std::uint64_t kPrime = 0x100000001b3;
  std::uint64_t value_ = 0xcbf29ce484222325;
};

/// True, too, where `view` is of another type than `dtype`, which T is.
template <class T>
bool all_finite(const View& view, DType dtype) {
  if (view.dtype != dtype) return true;
  const T* const values = view.as<T>();
  return std::all_of(values, values + view.numel(), [](T value) { return std::isfinite(value); });
}

/// Memory for one sample, a field behind the other.
class SampleMemory {
 public:
  explicit SampleMemory(std::span<const Field> fields) {
    std::size_t bytes = 0;
    std::vector<std::size_t> begins;
    for (const Field& field : fields) {
      begins.push_back(bytes);
      bytes += (static_cast<std::size_t>(field.shape.product()) * size_of(field.dtype) + kAlign - 1) /
               kAlign * kAlign;
    }
    memory_.resize(bytes);
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const Field& field = fields[i];
      views_.push_back(
          {memory_.data() + begins[i], field.dtype, field.shape, contiguous_strides(field.shape)});
    }
  }
  std::span<const std::byte> bytes() const noexcept { return memory_; }
  std::span<const View> views() const noexcept { return views_; }
  bool is_finite() const {
    return std::all_of(views_.begin(), views_.end(), [](const View& view) {
      return all_finite<float>(view, DType::f32) && all_finite<double>(view, DType::f64);
    });
  }

 private:
  static constexpr std::size_t kAlign = alignof(std::max_align_t);
  std::vector<std::byte> memory_;  // gaps stay zero
  std::vector<View> views_;
};

std::string text_of(const SplitFingerprint& split) { return fmt::format("{} {}", split.size, split.content); }

std::optional<SplitFingerprint> split_of(const std::map<std::string, std::string>& entries,
                                         const char* name) {
  const auto found = entries.find(name);
  if (found == entries.end()) return std::nullopt;
  const std::string& text = found->second;
  SplitFingerprint split;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), split.size);
  if (error != std::errc() || end == text.data() + text.size()) return std::nullopt;
  split.content = text.substr(static_cast<std::size_t>(end - text.data()) + 1);
  return split;
}

}  // namespace

std::string SplitFingerprint::to_string() const {
  return fmt::format("{} samples (content {})", size, content.empty() ? "not finite" : content);
}

std::string describe_with_columns(std::span<const Field> fields) {
  std::string text;
  for (const Field& field : fields) {
    text += (text.empty() ? "" : ", ") + field.to_string();
    if (field.values > 0) text += fmt::format(" of {} values", field.values);
    if (!field.columns.empty()) text += fmt::format(" ({})", fmt::join(field.columns, ", "));
  }
  return printable(text);
}

SplitFingerprint fingerprint(const Source& source, std::int64_t size) {
  SampleMemory sample(source.fields());
  const auto bytes = static_cast<std::int64_t>(std::max<std::size_t>(sample.bytes().size(), 1));
  const std::int64_t count = std::min(size, std::max(kMostBytes / bytes, kLeastSamples));
  Hash hash;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t index =
        count == size ? i : static_cast<std::int64_t>(static_cast<__int128>(i) * (size - 1) / (count - 1));
    KeyedGenerator generator(0, 0, static_cast<std::uint64_t>(index));
    read_sample(source, index, sample.views(), generator);
    if (!sample.is_finite()) return {size, ""};
    hash.add(sample.bytes());
  }
  return {size, fmt::format("{:016x}", hash.value())};
}

DataFingerprint fingerprint(const Source& train, const Source& test) {
  return {describe_with_columns(train.fields()), fingerprint(train, train.size()),
          fingerprint(test, test.size())};
}

bool fits(const SplitFingerprint& then, const SplitFingerprint& now) {
  return then.size == now.size && (then.content.empty() || then.content == now.content);
}

std::string difference(const DataFingerprint& then, const DataFingerprint& now) {
  const auto words = [](const char* what, const std::string& expected, const std::string& got) {
    return fmt::format("{}: expected {}, got {}", what, expected, got);
  };
  if (then.fields != now.fields) return words("its samples", then.fields, now.fields);
  if (!fits(then.train, now.train))
    return words("its training samples", then.train.to_string(), now.train.to_string());
  if (!fits(then.test, now.test))
    return words("its held-out samples", then.test.to_string(), now.test.to_string());
  return "";
}

std::map<std::string, std::string> to_entries(const DataFingerprint& fingerprint) {
  return {{kFields, fingerprint.fields},
          {kTrain, text_of(fingerprint.train)},
          {kTest, text_of(fingerprint.test)}};
}

std::optional<DataFingerprint> from_entries(const std::map<std::string, std::string>& entries) {
  const auto fields = entries.find(kFields);
  const auto train = split_of(entries, kTrain), test = split_of(entries, kTest);
  if (fields == entries.end() || !train || !test) return std::nullopt;
  return DataFingerprint{fields->second, *train, *test};
}

}  // namespace dtrain
