// Names of shards, as webdataset's users write them.
#include <fmt/format.h>
#include <glob.h>

#include <charconv>

#include "runtime/base/error.h"
#include "runtime/data/images/files/picture_files.h"

namespace dtrain {
namespace {

constexpr std::size_t kMostShards = 1 << 20;

[[noreturn]] void refuse(const std::string& pattern, const std::string& expected) {
  throw UsageError(fmt::format("shards {}: expected {}", pattern, expected));
}

/// Of "0000..1281", with the width of the first; empty where it is none.
std::vector<std::string> numbers(std::string_view text) {
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos) return {};
  const std::string_view low = text.substr(0, dots), high = text.substr(dots + 2);
  std::int64_t first = 0, last = 0;
  const auto read = [](std::string_view digits, std::int64_t& value) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size() && value >= 0;
  };
  if (!read(low, first) || !read(high, last) || last - first >= static_cast<std::int64_t>(kMostShards))
    return {};
  std::vector<std::string> result;
  for (std::int64_t i = first; i <= last; ++i) result.push_back(fmt::format("{:0{}}", i, low.size()));
  return result;
}

std::vector<std::string> choices(const std::string& pattern, std::string_view inside) {
  std::vector<std::string> result = numbers(inside);
  if (!result.empty()) return result;
  if (inside.find(',') == std::string_view::npos) refuse(pattern, "{0000..1281} or {a,b} between braces");
  for (std::size_t from = 0; from <= inside.size();) {
    const std::size_t comma = std::min(inside.find(',', from), inside.size());
    result.emplace_back(inside.substr(from, comma - from));
    from = comma + 1;
  }
  return result;
}

std::vector<std::string> existing(const std::string& pattern) {
  if (pattern.find_first_of("*?[") == std::string::npos) return {pattern};
  glob_t found{};
  const int result = ::glob(pattern.c_str(), GLOB_ERR, nullptr, &found);
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + (result == 0 ? found.gl_pathc : 0));
  ::globfree(&found);
  if (paths.empty()) refuse(pattern, "a pattern that matches files");
  return paths;
}

}  // namespace

std::vector<std::string> expand_shards(const std::string& pattern) {
  const std::size_t open = pattern.find('{');
  if (open == std::string::npos) return existing(pattern);
  const std::size_t close = pattern.find('}', open);
  if (close == std::string::npos) refuse(pattern, "a } behind each {");
  std::vector<std::string> result;
  for (const std::string& choice : choices(pattern, pattern.substr(open + 1, close - open - 1))) {
    for (std::string& path : expand_shards(pattern.substr(0, open) + choice + pattern.substr(close + 1)))
      result.push_back(std::move(path));
    if (result.size() > kMostShards) refuse(pattern, fmt::format("at most {} files", kMostShards));
  }
  return result;
}

}  // namespace dtrain
