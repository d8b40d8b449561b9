// From argv, environment and config file to one table of settings, each with its source. The program's own
// arguments are cut off before anything else looks at the command line.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::launcher {

using Environment = std::map<std::string, std::string>;

struct Setting {
  std::string value;
  std::string source;  ///< "flag", "DTRAIN_…", "config FILE" or "default"
};

struct CommandLine {
  std::map<std::string, Setting> settings;  ///< by canonical name; every flag has an entry
  std::vector<std::string> program;         ///< the first positional and all that follows
  std::vector<std::string> notes;           ///< one line for each option that was given and does nothing here
};

/// Reads a file whole; throws SystemError when it cannot.
using FileReader = std::function<std::string(const std::string& path)>;

/// Settles every flag: command line, else `DTRAIN_<FLAG>`, else the file named by --config, else the default.
/// `arguments` is argv without argv[0]. Pure but for `read_file`. Throws UsageError naming the option (with
/// "did you mean" for unknown ones) and DataError for a config file that is not a JSON object.
CommandLine parse_command_line(const std::vector<std::string>& arguments, const Environment& environment,
                               const FileReader& read_file);

/// The help, in groups, readable at 80 columns.
std::string help_text();

/// Every setting with its source, one a line, for --print-config.
std::string config_text(const CommandLine& line);

}  // namespace dtrain::launcher
