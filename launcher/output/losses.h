// Counts what a stream could not take, and finds the words for it: once when losing begins, once when it
// ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dtrain::launcher {

class Losses {
 public:
  /// A write of `bytes` failed with `error` (an errno, not 0; ETIMEDOUT: it did not return in time); they are
  /// dropped.
  void failed(int error, std::uint64_t bytes) noexcept;
  /// A write succeeded.
  void worked() noexcept;
  /// Nothing more will be written: what is still lost is to be told.
  void end() noexcept;

  /// Of the last write; 0 when it succeeded.
  int error() const noexcept { return error_; }
  /// All that was ever dropped.
  std::uint64_t bytes() const noexcept { return bytes_; }

  /// What people should know since the last call: "`stream` cannot be written to: No space left on device;
  /// …".
  std::optional<std::string> take_news(const std::string& stream);

 private:
  int error_ = 0, last_error_ = 0, told_error_ = 0;
  std::uint64_t bytes_ = 0, told_bytes_ = 0;
  bool over_ = false;  // a time of losing has ended
};

}  // namespace dtrain::launcher
