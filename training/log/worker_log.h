// A worker's log: warnings go to standard error, everything to a file of its own in the run directory once
// there is one.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "runtime/base/fd.h"
#include "runtime/base/log.h"

namespace dtrain {

class WorkerLog final : public Log {
 public:
  /// `prefix` starts each line on standard error.
  explicit WorkerLog(std::string prefix);

  /// From now on also appends to `path`. A file that cannot be opened is reported and done without. Not to be
  /// called while another thread writes.
  void attach(const std::filesystem::path& path) noexcept;

  void write(LogLevel level, std::string_view message) noexcept override;
  /// To the file only: for what somebody else shows.
  void note(LogLevel level, std::string_view message) noexcept;

 private:
  std::string prefix_;
  FdLog console_;
  UniqueFd file_;
  std::optional<FdLog> file_log_;
};

}  // namespace dtrain
