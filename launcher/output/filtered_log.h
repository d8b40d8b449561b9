// One log file for all workers that gets only the lines which contain one of some texts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/output/log_file.h"

namespace dtrain::launcher {

class FilteredLog {
 public:
  /// Lines are appended to the file at `path`; see LogFile. `mark`: see mark_of_job. Throws SystemError, and
  /// UsageError when another job writes to the file.
  FilteredLog(const std::string& path, std::vector<std::string> texts, const std::string& mark);

  /// A stream's line, or the next piece of one, without a newline. `line` is the stream's own memory of it.
  void take(std::string_view prefix, std::string_view piece, bool unfinished, std::string& line);
  LogFile& file() noexcept { return file_; }

 private:
  std::vector<std::string> texts_;
  UniqueFd lock_;
  LogFile file_;
};

}  // namespace dtrain::launcher
