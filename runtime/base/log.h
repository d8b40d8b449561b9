// Where libraries report what is worth knowing but is not an error. They are handed a Log; they never print.
#pragma once

#include <string_view>

namespace dtrain {

enum class LogLevel { debug, info, warning, error };

/// Receives one message a call, without a trailing newline. Implementations are thread-safe and never throw.
class Log {
 public:
  virtual ~Log() = default;
  virtual void write(LogLevel level, std::string_view message) noexcept = 0;
};

/// Writes "prefix: level: message" to a descriptor in one write(2), messages below `threshold` dropped.
class FdLog final : public Log {
 public:
  /// `fd` is borrowed; `prefix` must outlive the log.
  FdLog(int fd, std::string_view prefix, LogLevel threshold)
      : fd_(fd), prefix_(prefix), threshold_(threshold) {}
  void write(LogLevel level, std::string_view message) noexcept override;

 private:
  int fd_;
  std::string_view prefix_;
  LogLevel threshold_;
};

/// Drops everything.
class NullLog final : public Log {
 public:
  void write(LogLevel, std::string_view) noexcept override {}
};

}  // namespace dtrain
