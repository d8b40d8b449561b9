// From bytes to lines: cutting, escaping, and remembering the last ones. Pure.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

namespace dtrain::launcher {

constexpr std::size_t kMaxLineBytes = 65536;
/// Stands where a line was cut.
constexpr std::string_view kCut = "…";

/// What a stream holds between two newlines, or a part of it.
struct TextLine {
  std::string_view text;    ///< without the newline
  bool continued = false;   ///< its beginning has been handed out before
  bool unfinished = false;  ///< more of it may come
  bool state = false;  ///< of text that carriage returns have replaced (a progress bar) only this is left
};

/// Collects a stream's bytes and hands out whole lines. A carriage return restarts the line, as on a
/// terminal: what it replaces, the former state of a progress bar, is dropped. A line longer than
/// kMaxLineBytes comes in pieces, so that memory stays bounded.
class LineSplitter {
 public:
  /// `has_states`: false leaves carriage returns alone.
  explicit LineSplitter(bool has_states = true) : has_states_(has_states) {}

  /// Calls `take(const TextLine&)` for each line that `bytes` completes.
  template <class Take>
  void feed(std::string_view bytes, Take&& take) {
    while (!bytes.empty()) {
      const std::size_t newline = bytes.find('\n');
      const std::string_view part = bytes.substr(0, newline);
      const bool plain = !has_states_ || part.find('\r') == std::string_view::npos;
      if (newline != std::string_view::npos && plain && is_empty() && part.size() <= kMaxLineBytes) {
        take(TextLine{part});  // the usual case: a whole line, no copy
      } else {
        hold(part, take);
        if (newline != std::string_view::npos && !replaces_the_line_above()) emit(false, take);
      }
      bytes.remove_prefix(newline == std::string_view::npos ? bytes.size() : newline + 1);
    }
  }

  /// Hands out what is left at the end of the stream, if anything.
  template <class Take>
  void finish(Take&& take) {
    if (!is_empty()) emit(false, take);
  }

  /// Hands out the unfinished line as far as it has come; what follows continues it.
  template <class Take>
  void hand_out_unfinished(Take&& take) {
    if (!pending_.empty()) emit(true, take);
  }

  /// The unfinished line, as far as it was not handed out.
  std::string_view unfinished() const;
  /// The unfinished line is one that carriage returns replace again and again.
  bool holds_state() const { return state_ || (has_states_ && pending_.ends_with('\r')); }

 private:
  template <class Take>
  void hold(std::string_view part, Take&& take) {
    if (has_states_) part = newest_state(part);
    while (pending_.size() + part.size() > kMaxLineBytes) {
      const std::size_t fits = whole_characters(part, kMaxLineBytes - pending_.size());
      pending_.append(part.substr(0, fits));
      part.remove_prefix(fits);
      emit(true, take);
    }
    pending_.append(part);
  }

  template <class Take>
  void emit(bool unfinished, Take&& take) {
    take(TextLine{this->unfinished(), continued_, unfinished, state_});
    pending_.clear();
    continued_ = unfinished;
    state_ = unfinished && state_;
  }

  bool is_empty() const { return pending_.empty() && !continued_ && !state_; }
  std::string_view newest_state(std::string_view part);
  bool replaces_the_line_above();
  static std::size_t whole_characters(std::string_view text, std::size_t at_most);

  bool has_states_;
  bool continued_ = false, state_ = false;
  std::string pending_;  // carriage returns at its end have not replaced anything yet: a newline may follow
};

/// `text` with control characters made visible (\r, \x1b, \x00, …), so that a worker cannot move the cursor,
/// recolour or retitle the terminal. Tabs and UTF-8 stay; a carriage return at the very end is dropped
/// (CRLF).
std::string escape_controls(std::string_view text);

/// `text` without escape sequences and control characters: what is left of a progress line.
std::string strip_controls(std::string_view text);

/// The first `columns` characters of UTF-8 `text`; combining and wide characters count as one.
std::string_view first_columns(std::string_view text, std::size_t columns);

/// Remembers the last lines of a stream, and of a long one its end.
class Tail {
 public:
  explicit Tail(std::size_t lines = 10) : lines_(lines) {}
  /// `continued`: it belongs to the line that was added last.
  void add(std::string_view line, bool continued = false);
  const std::deque<std::string>& lines() const noexcept { return kept_; }

 private:
  static constexpr std::size_t kMaxBytes = 512;  // of each line
  std::size_t lines_;
  std::deque<std::string> kept_;
};

}  // namespace dtrain::launcher
