#include "training/use/weight_mismatch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr std::size_t kMostNamed = 8;

std::string described(DType dtype, const Dims& shape) {
  return fmt::format("{} {}", name_of(dtype), shape.to_string());
}

}  // namespace

std::string some_of(const std::vector<std::string>& names) {
  if (names.size() <= kMostNamed) return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{} and {} more", fmt::join(names.begin(), names.begin() + kMostNamed, ", "),
                     names.size() - kMostNamed);
}

bool same_kind(DType a, DType b) { return a == b || (is_floating(a) && is_floating(b)); }

void WeightMismatch::add_other(const std::string& name, DType expected, const Dims& expected_shape,
                               DType found, const Dims& found_shape) {
  other.push_back(fmt::format("{} (expected {}, found {})", name, described(expected, expected_shape),
                              described(found, found_shape)));
}

void WeightMismatch::check(const std::filesystem::path& path, std::string_view network, std::size_t tensors,
                           std::string_view advice) const {
  std::string found;
  const auto add = [&found](const char* what, const std::vector<std::string>& list) {
    if (list.empty()) return;
    found += fmt::format("{}{}: {}", found.empty() ? "" : "; ", what, some_of(list));
  };
  add("other tensors", other);
  add("missing", missing);
  add("unexpected", unexpected);
  if (found.empty()) return;
  throw DataError(path.string(), -1, fmt::format("the weights of {} ({} tensors)", network, tensors),
                  fmt::format("{}; {}", found, advice));
}

}  // namespace dtrain
