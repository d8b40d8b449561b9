// What batch.json and evaluation.json of a run say, as the page's script gets it. Internal to
// runtime/metrics.
#pragma once

#include <string>

namespace dtrain {

/// The first training pictures, {"sheet":…,"samples":[{"sample":…,"label":…},…]}, from the file's
/// `text`. Throws DataError naming `path` for anything else.
std::string shown_batch(const std::string& text, const std::string& path);

/// An evaluation: {"epoch":…,"samples":…,"classes":[…],"matrix":[[…],…] or null,"confused":[{"label":…,
/// "predicted":…,"count":…,"of":…},…],"mistakes":[{"sample":…,"label":…,"predicted":…,"probability":…},…],
/// "sheet":…}. "matrix" for up to 24 classes; "confused" has the pairs that are confused most often. Throws
/// DataError as shown_batch.
std::string shown_evaluation(const std::string& text, const std::string& path);

}  // namespace dtrain
