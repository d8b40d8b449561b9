// Escaping and trimming of workers' lines.
#include "launcher/output/lines.h"

#include <algorithm>

namespace dtrain::launcher {
namespace {

bool is_control(unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7f; }

// C1 controls (U+0080 to U+009F) are two bytes in UTF-8; some terminals take U+009B for the start of a
// sequence.
bool is_c1(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]) == 0xc2 && i + 1 < text.size() &&
         static_cast<unsigned char>(text[i + 1]) >= 0x80 && static_cast<unsigned char>(text[i + 1]) <= 0x9f;
}

void append_hex(std::string& out, unsigned char c) {
  constexpr char kDigits[] = "0123456789abcdef";
  out += "\\x";
  out += kDigits[c >> 4];
  out += kDigits[c & 15];
}

// Length of the escape sequence at `i` (CSI, or ESC and one character).
std::size_t sequence_length(std::string_view text, std::size_t i) {
  std::size_t end = i + 1;
  if (end >= text.size()) return 1;
  if (text[end] != '[') return 2;
  ++end;
  while (end < text.size() && (text[end] < 0x40 || text[end] > 0x7e)) ++end;
  return std::min(end + 1, text.size()) - i;
}

}  // namespace

std::string_view LineSplitter::unfinished() const {
  std::string_view text = pending_;
  if (has_states_) text = text.substr(0, text.find_last_not_of('\r') + 1);
  return text;
}

// The part that is left of what is pending and `part`; carriage returns at the end wait for what follows
// them.
std::string_view LineSplitter::newest_state(std::string_view part) {
  const std::size_t text_end = part.find_last_not_of('\r') + 1;
  if (text_end == 0) return part.substr(0, pending_.ends_with('\r') ? 0 : 1);
  const std::size_t back = part.substr(0, text_end).rfind('\r');
  const bool replaces = back != std::string_view::npos || (text_end > 0 && pending_.ends_with('\r'));
  if (!replaces) return part;
  pending_.clear();
  continued_ = false;
  state_ = true;
  if (back != std::string_view::npos) part.remove_prefix(back + 1);
  return part;
}

// Several bars below each other: a newline leads to the lower one, and at its end the cursor goes up again.
bool LineSplitter::replaces_the_line_above() {
  if (!state_ || !unfinished().ends_with("\x1b[A")) return false;
  pending_.push_back('\r');
  return true;
}

std::size_t LineSplitter::whole_characters(std::string_view text, std::size_t at_most) {
  std::size_t end = std::min(at_most, text.size());
  for (int back = 0; back < 3 && end > 1 && end < text.size(); ++back) {
    if ((static_cast<unsigned char>(text[end]) & 0xc0) != 0x80) return end;
    --end;
  }
  return end;
}

std::string escape_controls(std::string_view text) {
  if (text.ends_with('\r')) text.remove_suffix(1);
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c == '\r') {
      out += "\\r";
    } else if (is_control(c)) {
      append_hex(out, c);
    } else if (is_c1(text, i)) {
      append_hex(out, static_cast<unsigned char>(text[++i]));
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string strip_controls(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      i += sequence_length(text, i) - 1;
    } else if (is_c1(text, i)) {
      ++i;
    } else if (!is_control(static_cast<unsigned char>(text[i]))) {
      out += text[i];
    }
  }
  return out;
}

std::string_view first_columns(std::string_view text, std::size_t columns) {
  std::size_t seen = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool starts_character = (static_cast<unsigned char>(text[i]) & 0xc0) != 0x80;
    if (starts_character && seen++ == columns) return text.substr(0, i);
  }
  return text;
}

void Tail::add(std::string_view line, bool continued) {
  if (!continued || kept_.empty()) kept_.emplace_back();
  if (kept_.size() > lines_) kept_.pop_front();
  std::string& kept = kept_.back();
  kept.append(line.substr(line.size() - std::min(line.size(), kMaxBytes + 1)));
  if (kept.size() <= kMaxBytes) return;
  std::size_t from = kept.size() - (kMaxBytes - kCut.size());
  while (from < kept.size() && (static_cast<unsigned char>(kept[from]) & 0xc0) == 0x80) ++from;
  kept.replace(0, from, kCut);
}

}  // namespace dtrain::launcher
