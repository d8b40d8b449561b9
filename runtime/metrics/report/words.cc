#include "runtime/metrics/report/words.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <cmath>

namespace dtrain {
namespace {

constexpr std::array<std::string_view, 4> kUnits = {"_bytes", "_milliseconds", "_seconds", "_ms"};

std::string_view unit_of(std::string_view key) {
  for (const std::string_view unit : kUnits) {
    if (key.ends_with(unit) && key.size() > unit.size()) return unit;
  }
  return {};
}

}  // namespace

std::string count_text(std::int64_t value) {
  const std::string digits = fmt::format("{}", value);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const bool after_digit = i > 0 && digits[i - 1] != '-';
    if (after_digit && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string number_text(double value) {
  if (!std::isfinite(value)) return "not a number";
  if (std::abs(value) >= 1000 && std::abs(value) < 1e15) return count_text(std::llround(value));
  return fmt::format("{:.4g}", value);
}

std::string bytes_text(double bytes) {
  constexpr std::array<const char*, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; std::abs(bytes) >= 1000 && unit + 1 < kNames.size(); ++unit) bytes /= 1024;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kNames[unit]);
}

std::string seconds_text(double seconds) {
  if (!std::isfinite(seconds) || std::abs(seconds) >= 1e12) return number_text(seconds) + " s";
  if (seconds < 1) return fmt::format("{:.3g} ms", seconds * 1e3);
  if (seconds < 100) return fmt::format("{:.{}f} s", seconds, seconds < 10 ? 2 : 1);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

std::string percent_text(double share) { return fmt::format("{:.2f} %", share * 100); }

std::string name_in_words(std::string_view key) {
  key.remove_suffix(unit_of(key).size());
  std::string name(key);
  for (char& c : name) {
    if (c == '_' || c == '.') c = ' ';
  }
  if (!name.empty()) name[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(name[0])));
  return name;
}

std::string value_in_words(std::string_view key, double value) {
  const std::string_view unit = unit_of(key);
  if (unit == "_bytes") return bytes_text(value);
  if (unit == "_seconds") return seconds_text(value);
  if (unit.empty()) return number_text(value);
  return number_text(value) + " ms";
}

}  // namespace dtrain
