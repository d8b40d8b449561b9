#include "runtime/data/sources/source_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

std::vector<std::string_view> cut(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t from = 0;;) {
    const std::size_t at = text.find(separator, from);
    parts.push_back(text.substr(from, at - from));
    if (at == std::string_view::npos) return parts;
    from = at + 1;
  }
}

// The whole text as a number.
template <class T, class... Base>
std::optional<T> whole_number(std::string_view text, Base... base) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base...);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string decode(const SourceSpec& spec, std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    const auto code =
        i + 2 < text.size() ? whole_number<std::uint8_t>(text.substr(i + 1, 2), 16) : std::nullopt;
    if (!code) spec.refuse("two hexadecimal digits behind each %", text);
    decoded += static_cast<char>(*code);
    i += 2;
  }
  return decoded;
}

}  // namespace

SourceSpec::SourceSpec(std::string kind, std::string_view text) : kind_(std::move(kind)), text_(text) {
  const auto parts = cut(text, ',');
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::size_t equals = parts[i].find('=');
    if (parts[i].empty()) refuse("a file or key=value between commas", "nothing");
    if (equals == std::string_view::npos) {
      if (i > 0) refuse("key=value", parts[i]);
      file_ = decode(*this, parts[i]);
      continue;
    }
    const std::string key(parts[i].substr(0, equals));
    for (const auto& [other, value] : settings_)
      if (other == key) refuse(key + " once", "two");
    settings_.emplace_back(key, parts[i].substr(equals + 1));
  }
}

bool SourceSpec::has(std::string_view key) const {
  return std::any_of(settings_.begin(), settings_.end(),
                     [&](const auto& setting) { return setting.first == key; });
}

std::optional<std::string> SourceSpec::take(std::string_view key) {
  const auto found = std::find_if(settings_.begin(), settings_.end(),
                                  [&](const auto& setting) { return setting.first == key; });
  if (found == settings_.end()) return std::nullopt;
  std::string value = decode(*this, found->second);
  if (value.empty()) refuse(fmt::format("a value for {}", key), "none");
  settings_.erase(found);
  return value;
}

std::vector<std::string> SourceSpec::take_list(std::string_view key) {
  std::vector<std::string> values;
  const auto found = std::find_if(settings_.begin(), settings_.end(),
                                  [&](const auto& setting) { return setting.first == key; });
  if (found == settings_.end()) return values;
  for (const std::string_view part : cut(found->second, '+')) {
    values.push_back(decode(*this, part));
    if (values.back().empty()) refuse(fmt::format("{}=A or {}=A+B", key, key), found->second);
  }
  settings_.erase(found);
  return values;
}

std::int64_t SourceSpec::take_integer(std::string_view key, std::int64_t least, std::int64_t most,
                                      std::int64_t fallback) {
  const auto text = take(key);
  if (!text) return fallback;
  const auto value = whole_number<std::int64_t>(*text);
  if (!value || *value < least || *value > most)
    refuse(fmt::format("{} to be an integer from {} to {}", key, least, most), *text);
  return *value;
}

std::vector<std::pair<std::string, std::string>> SourceSpec::take_rest() {
  std::vector<std::pair<std::string, std::string>> rest;
  while (!settings_.empty()) {
    const std::string key = settings_.front().first;
    rest.emplace_back(key, take(key).value());
  }
  return rest;
}

void SourceSpec::finish(std::string_view known) const {
  if (!settings_.empty()) refuse(known, settings_.front().first + "=" + settings_.front().second);
}

void SourceSpec::refuse(std::string_view expected, std::string_view got) const {
  throw UsageError(fmt::format("dataset {}:{}: expected {}, got \"{}\"", kind_, text_, expected, got));
}

HoldOut take_hold_out(SourceSpec& spec) {
  HoldOut result;
  result.seed = static_cast<std::uint64_t>(spec.take_integer("split-seed", 0, INT64_MAX, 0));
  if (const auto stratify = spec.take("stratify")) {
    if (*stratify != "yes" && *stratify != "no") spec.refuse("stratify to be yes or no", *stratify);
    result.stratify = *stratify == "yes";
  }
  const auto fold = spec.take("fold"), text = spec.take("split");
  if (fold && text) spec.refuse("either a share to train on (split) or a fold to hold out", "both");
  if (fold) {
    const std::size_t slash = std::min(fold->find('/'), fold->size());
    const auto number = whole_number<int>(fold->substr(0, slash));
    const auto count = whole_number<int>(slash < fold->size() ? fold->substr(slash + 1) : "");
    if (!number || !count || *count < 2 || *number < 1 || *number > *count)
      spec.refuse("fold to be K/N with K from 1 to N, as 2/5", *fold);
    result.fold = *number;
    result.folds = *count;
  }
  if (!text) return result;
  const auto share = whole_number<double>(*text);
  if (!share || !(*share > 0 && *share < 1))
    spec.refuse("split to be a share between 0 and 1, as 0.9", *text);
  result.share = *share;
  return result;
}

void check_hold_out(const SourceSpec& spec, const HoldOut& how, bool tested) {
  if (tested && how.stratify) spec.refuse("stratify only with split or fold", "files to test on");
  if ((how.share > 0 || how.folds > 0) != tested) return;
  spec.refuse(
      "either files to test on, or a share to train on, as split=0.9, or a fold to hold out, as fold=1/5",
      tested ? "both" : "neither");
}

}  // namespace dtrain
