// From bytes to lines: cutting, escaping, and remembering the last ones. Pure.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

namespace dtrain::launcher {

constexpr std::size_t kMaxLineBytes = 65536;

/// Collects a stream's bytes and hands out whole lines without their newline. A line longer than
/// kMaxLineBytes comes in pieces of that size, so that memory stays bounded.
class LineSplitter {
 public:
  /// Calls `take(std::string_view line)` for each line that `bytes` completes.
  template <class Take>
  void feed(std::string_view bytes, Take&& take) {
    while (!bytes.empty()) {
      const std::size_t newline = bytes.find('\n');
      const std::size_t length = newline == std::string_view::npos ? bytes.size() : newline;
      std::string_view part = bytes.substr(0, length);
      while (pending_.size() + part.size() > kMaxLineBytes) {
        const std::size_t fits = kMaxLineBytes - pending_.size();
        pending_.append(part.substr(0, fits));
        part.remove_prefix(fits);
        emit(take);
      }
      bytes.remove_prefix(length);
      if (newline == std::string_view::npos) {
        pending_.append(part);
        return;
      }
      bytes.remove_prefix(1);
      if (pending_.empty()) {
        take(part);  // the usual case: a whole line, no copy
      } else {
        pending_.append(part);
        emit(take);
      }
    }
  }

  /// Hands out what is left at the end of the stream, if anything.
  template <class Take>
  void finish(Take&& take) {
    if (!pending_.empty()) emit(take);
  }

  /// The unfinished line.
  std::string& pending() noexcept { return pending_; }

 private:
  template <class Take>
  void emit(Take&& take) {
    take(std::string_view(pending_));
    pending_.clear();
  }

  std::string pending_;
};

/// `text` with control characters made visible (\r, \x1b, \x00, …), so that a worker cannot move the cursor,
/// recolour or retitle the terminal. Tabs and UTF-8 stay; a carriage return at the very end is dropped
/// (CRLF).
std::string escape_controls(std::string_view text);

/// `text` without escape sequences and control characters: what is left of a progress line.
std::string strip_controls(std::string_view text);

/// The first `columns` characters of UTF-8 `text`; combining and wide characters count as one.
std::string_view first_columns(std::string_view text, std::size_t columns);

/// Remembers the last lines of a stream, within a bound.
class Tail {
 public:
  explicit Tail(std::size_t lines = 10) : lines_(lines) {}
  void add(std::string_view line);
  const std::deque<std::string>& lines() const noexcept { return kept_; }

 private:
  static constexpr std::size_t kMaxBytes = 512;  // of each line
  std::size_t lines_;
  std::deque<std::string> kept_;
};

}  // namespace dtrain::launcher
