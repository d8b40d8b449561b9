// What a run's config.json, summary.json and logs say, in words. Internal to runtime/metrics.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/metrics/report/metrics_reader.h"

namespace dtrain {

/// One option of a run.
struct RunOption {
  std::string name;  ///< "global-batch-size"
  std::string value;
  std::string source;  ///< "command line", "default", …
};

/// A line of a table: "Images per second", "8,516".
struct Fact {
  std::string id;    ///< the same thing has the same in every run
  std::string name;  ///< for people
  std::string text;
  std::optional<double> value = std::nullopt;  ///< to compare by
  int better = 0;                              ///< 1: more of it, -1: less of it, 0: neither
};

struct RunConfig {
  std::vector<RunOption> options;
  std::vector<Fact> settings;  ///< what options and workers together made: batch of a worker, …
  std::vector<Fact> machine;

  /// The value of option `name`; empty when it is not there.
  std::string option(std::string_view name) const;
};

/// What a summary says beside the numbers for the tables.
struct RunSummaryFacts {
  std::string status;  ///< "finished", "stopped", …; empty: there is no summary
  double steps = -1;
  std::vector<Fact> results;
  PhaseTimes phases;  ///< rank 0's
};

/// "Images", "Sequences" or "Samples": what a run of `config` learns from.
std::string samples_word(const RunConfig& config);

/// What config.json text says. Throws DataError naming `path` and the line when it is not a JSON object;
/// whatever else is odd in it is passed over.
RunConfig config_facts(const std::string& json_text, const std::string& path);

/// What summary.json text says. `samples`: samples_word(). Throws as config_facts.
RunSummaryFacts summary_facts(const std::string& json_text, const std::string& path,
                              const std::string& samples);

/// What the lines of the log of rank `rank` say: how often the run was started, by how many workers, and
/// warnings and errors, the newest `most` of them.
struct LogFacts {
  std::vector<std::string> starts;  ///< "2 workers, cpu (oneDNN 2.6.3), backend tcp"
  std::vector<std::string> troubles;
};
LogFacts log_facts(std::string_view log, std::size_t most);

}  // namespace dtrain
