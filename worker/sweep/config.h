// What a sweep is asked for: its JSON file as checked values. Pure but for reading the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::sweep {

/// Of a sweep.
inline constexpr std::int64_t kMostRuns = 100'000;

/// How a value is drawn between two bounds.
enum class Scale {
  linear,   ///< uniformly
  log,      ///< its logarithm uniformly: as many between 0.001 and 0.01 as between 0.01 and 0.1
  integer,  ///< a whole number, both bounds included
};

struct Range {
  double least = 0, most = 0;
  Scale scale = Scale::linear;
};

/// What an option of the program is to be.
struct OptionChoice {
  std::string name;                 ///< as the program has it, with dashes
  std::vector<std::string> values;  ///< as text; one of them in each run
  std::optional<Range> range;       ///< in place of `values`
  bool swept = false;               ///< a list or a range: part of a run's name
};

enum class Method { grid, random };

/// One sweep:
///
///     {"method": "grid",                                     // or "random", with "count" and "seed"
///      "options": {"model": "lenet", "epochs": 3,            // the same in every run
///                  "lr": [0.01, 0.1],                        // grid: each with each; random: one of them
///                  "momentum": {"min": 0, "max": 0.99}}}     // random only; "scale": linear, log or int
struct SweepConfig {
  std::string file;     ///< where it was read, for messages
  std::string program;  ///< empty: dtrain train
  Method method = Method::grid;
  std::int64_t count = 0;             ///< runs of a random sweep
  std::uint64_t seed = 0;             ///< of a random sweep
  int workers = 1;                    ///< of each run: "nproc_per_node"
  std::string metric;                 ///< empty: accuracy where there is one, else loss
  std::vector<OptionChoice> options;  ///< by name, ascending
};

/// Checks `text`, the content of `file`. Throws DataError for text that is not JSON or has a key twice,
/// UsageError naming file and field for anything else that is wrong.
SweepConfig parse_config(std::string_view text, const std::string& file);

/// parse_config() of a file. Throws UsageError when it cannot be read.
SweepConfig read_config(const std::filesystem::path& file);

}  // namespace dtrain::sweep
