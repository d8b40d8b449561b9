// What a run's config.json, summary.json and logs say, as the page's script gets it. Internal to
// runtime/metrics.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

/// The JSON object in `text` without what the page has no use for: arrays, and objects deeper than three.
/// Throws DataError naming `path` and the line when it is no JSON object.
std::string object_in(const std::string& text, const std::string& path);

/// What the lines of the log of rank `rank` say: how often the run was started, by how many workers, and
/// warnings and errors, the newest `most` of them.
struct LogFacts {
  std::vector<std::string> starts;  ///< "2 workers, cpu (oneDNN 2.6.3), backend tcp"
  std::vector<std::string> troubles;
};
LogFacts log_facts(std::string_view log, std::size_t most);

}  // namespace dtrain
