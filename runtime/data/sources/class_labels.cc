#include "runtime/data/sources/class_labels.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

// A set may lack some of its classes, as a part of a larger one does; hardly ever nine in ten of so many.
constexpr std::int64_t kFewClasses = 100, kMostEach = 10;

}  // namespace

std::int64_t count_classes(std::vector<std::int64_t> labels, const std::string& path,
                           const std::string& advice) {
  if (labels.empty()) return 0;
  std::sort(labels.begin(), labels.end());
  const std::int64_t least = labels.front(), most = labels.back();
  const auto different = std::unique(labels.begin(), labels.end()) - labels.begin();
  if (most < kFewClasses || most / different < kMostEach) return most + 1;
  throw DataError(path, -1, "labels that count classes from 0",
                  fmt::format("{} different ones from {} to {}; number the classes from 0, or say how many "
                              "there are with classes=N{}{}",
                              different, least, most, advice.empty() ? "" : ", or ", advice));
}

}  // namespace dtrain
