#include "runtime/data/fingerprint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <sstream>

#include "runtime/data/cache/content_hash.h"
#include "runtime/data/formats/text.h"

namespace dtrain {
namespace {

constexpr std::int64_t kMostBytes = 4 << 20, kMostBytesInMemory = 256 << 20, kLeastSamples = 16;
constexpr const char *kFields = "data-fields", *kTrain = "data-train", *kTest = "data-test",
                     *kNames = "data-names";
constexpr std::string_view kIs = " is ";
constexpr const char* kMore = "-more";  // behind the name of a split: an entry of its own, for older versions

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
      may_lack_.push_back(!field.fill.empty());
      views_.push_back(
          {memory_.data() + begins[i], field.dtype, field.shape, contiguous_strides(field.shape)});
    }
  }
  std::span<const std::byte> bytes() const noexcept { return memory_; }
  std::span<const View> views() const noexcept { return views_; }
  bool is_finite() const {
    return std::all_of(views_.begin(), views_.end(), [this](const View& view) {
      if (may_lack_[static_cast<std::size_t>(&view - views_.data())]) return true;
      return all_finite<float>(view, DType::f32) && all_finite<double>(view, DType::f64);
    });
  }

 private:
  static constexpr std::size_t kAlign = alignof(std::max_align_t);
  std::vector<std::byte> memory_;  // gaps stay zero
  std::vector<View> views_;
  std::vector<bool> may_lack_;  // elements, for which NaN stands
};

std::string text_of(const SplitFingerprint& split) { return fmt::format("{} {}", split.size, split.content); }

void add_entries(const char* name, const SplitFingerprint& split,
                 std::map<std::string, std::string>& entries) {
  entries.emplace(name, text_of(split));
  if (!split.more.empty()) entries.emplace(std::string(name) + kMore, split.more);
}

std::optional<SplitFingerprint> split_of(const std::map<std::string, std::string>& entries,
                                         const char* name) {
  const auto found = entries.find(name);
  if (found == entries.end()) return std::nullopt;
  const std::string& text = found->second;
  SplitFingerprint split;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), split.size);
  if (error != std::errc() || end == text.data() + text.size()) return std::nullopt;
  split.content = text.substr(static_cast<std::size_t>(end - text.data()) + 1);
  const auto more = entries.find(std::string(name) + kMore);
  if (more != entries.end()) split.more = more->second;
  return split;
}

/// Over `count` of the first `size` samples; empty where one of them is not finite.
std::string hash_of(const Source& source, std::int64_t size, std::int64_t count, SampleMemory& sample) {
  ContentHash hash;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t index = evenly_spread(i, count, size);
    KeyedGenerator generator(0, 0, static_cast<std::uint64_t>(index));
    read_sample(source, index, sample.views(), generator);
    if (!sample.is_finite()) return "";
    hash.add(sample.bytes());
  }
  return hash.text();
}

}  // namespace

std::string SplitFingerprint::to_string() const {
  return fmt::format("{} samples (content {})", size,
                     content.empty() ? "not finite"
                     : more.empty()  ? content
                                     : more);
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

std::vector<std::string> names_of_values(std::span<const Field> fields) {
  std::vector<std::string> lines;
  for (const Field& field : fields) {
    const std::vector<std::string>& names = field.value_names;
    const auto is_number = [&](const std::string& name) {
      return name == std::to_string(&name - names.data());
    };
    if (std::ranges::all_of(names, is_number)) continue;
    for (std::size_t i = 0; i < names.size(); ++i)
      lines.push_back(printable(fmt::format("{} {}{}{}", field.name, i, kIs, names[i])));
  }
  return lines;
}

std::string difference(const std::vector<std::string>& then, const std::vector<std::string>& now) {
  if (then.empty() || now.empty() || then == now) return "";
  const auto at = std::ranges::mismatch(then, now);
  return fmt::format("expected {}, got {}", at.in1 == then.end() ? "no other" : *at.in1,
                     at.in2 == now.end() ? "none" : *at.in2);
}

bool are_renumbered(const std::vector<std::string>& then, const std::vector<std::string>& now) {
  const auto sorted = [](std::vector<std::string> lines) {
    for (std::string& line : lines) line.erase(0, line.find(kIs));
    std::ranges::sort(lines);
    return lines;
  };
  return then != now && sorted(then) == sorted(now);
}

SplitFingerprint fingerprint(const Source& source, std::int64_t size) {
  SampleMemory sample(source.fields());
  const auto bytes = static_cast<std::int64_t>(std::max<std::size_t>(sample.bytes().size(), 1));
  const auto samples_of = [&](std::int64_t most) {
    return std::min(size, std::max(most / bytes, kLeastSamples));
  };
  const std::int64_t few = samples_of(kMostBytes), many = samples_of(kMostBytesInMemory);
  SplitFingerprint split{size, hash_of(source, size, few, sample), ""};
  if (split.content.empty() || few == many || !source.in_memory()) return split;
  split.more = hash_of(source, size, many, sample);
  if (split.more.empty()) split.content = "";
  return split;
}

DataFingerprint fingerprint(const Source& train, const Source& test) {
  return {describe_with_columns(train.fields()), fingerprint(train, train.size()),
          fingerprint(test, test.size()), names_of_values(train.fields())};
}

bool fits(const SplitFingerprint& then, const SplitFingerprint& now) {
  return then.size == now.size && (then.content.empty() || then.content == now.content) &&
         (then.more.empty() || then.more == now.more);
}

std::string difference(const DataFingerprint& then, const DataFingerprint& now) {
  const auto words = [](const char* what, const std::string& expected, const std::string& got) {
    return fmt::format("{}: expected {}, got {}", what, expected, got);
  };
  if (then.fields != now.fields) return words("its samples", then.fields, now.fields);
  if (const std::string names = difference(then.names, now.names); !names.empty())
    return "what its values are called: " + names;
  if (!fits(then.train, now.train))
    return words("its training samples", then.train.to_string(), now.train.to_string());
  if (!fits(then.test, now.test))
    return words("its held-out samples", then.test.to_string(), now.test.to_string());
  return "";
}

std::map<std::string, std::string> to_entries(const DataFingerprint& fingerprint) {
  std::map<std::string, std::string> entries{{kFields, fingerprint.fields}};
  if (!fingerprint.names.empty())
    entries.emplace(kNames, fmt::format("{}", fmt::join(fingerprint.names, "\n")));
  add_entries(kTrain, fingerprint.train, entries);
  add_entries(kTest, fingerprint.test, entries);
  return entries;
}

std::optional<DataFingerprint> from_entries(const std::map<std::string, std::string>& entries) {
  const auto fields = entries.find(kFields);
  const auto train = split_of(entries, kTrain), test = split_of(entries, kTest);
  if (fields == entries.end() || !train || !test) return std::nullopt;
  DataFingerprint fingerprint{fields->second, *train, *test};
  if (const auto names = entries.find(kNames); names != entries.end()) {
    std::istringstream lines(names->second);
    for (std::string line; std::getline(lines, line);) fingerprint.names.push_back(line);
  }
  return fingerprint;
}

}  // namespace dtrain
