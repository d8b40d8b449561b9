// Classes that are counted from the labels themselves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dtrain {

/// One more than the largest of `labels`, which are 0 or more: the number of classes if it is not given.
/// Throws DataError naming `path` where that would leave nearly all classes without a sample, as years, dates
/// and other numbers that do not count classes do; `advice` is one more way out for that message, if any.
std::int64_t count_classes(std::vector<std::int64_t> labels, const std::string& path,
                           const std::string& advice = "");

}  // namespace dtrain
