#include "runtime/metrics/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/options.h"
#include "runtime/base/terminal.h"

namespace dtrain {
namespace {

constexpr int kShortestBar = 10;
constexpr int kLongestBar = 40;
constexpr const char* kClearLine = "\r\x1b[K";
constexpr const char* kBold = "\x1b[1m";
constexpr const char* kPlain = "\x1b[0m";

// A part of the line; the highest rank is left out first when the line is too long. Text is ASCII, so bytes
// are columns.
struct Part {
  std::string text;
  int rank;
  bool bold = false;
};

// On a terminal the step is padded to the total's width, so that the line does not jump.
std::string step_of(const Progress& progress, bool padded) {
  if (progress.total_steps <= 0) return fmt::format("step {}", progress.step);
  const std::string total = std::to_string(progress.total_steps);
  return fmt::format("step {:>{}}/{}", progress.step, padded ? total.size() : 0, total);
}

std::vector<Part> parts_of(const Progress& progress, bool padded) {
  std::vector<Part> parts;
  parts.push_back({progress.done.empty() ? step_of(progress, padded) : progress.done, 0});
  if (progress.epochs > 0) {
    parts.push_back(
        {fmt::format("epoch {}/{}", std::min(progress.epoch + 1, progress.epochs), progress.epochs), 4});
  }
  if (progress.done.empty()) parts.push_back({fmt::format("loss {:.4f}", progress.loss), 1, true});
  if (progress.samples_per_second > 0) {
    const auto tokens = static_cast<double>(progress.tokens_per_sample);
    parts.push_back({tokens > 0 ? fmt::format("{:.0f} tokens/s", tokens * progress.samples_per_second)
                                : fmt::format("{:.0f} samples/s", progress.samples_per_second),
                     2});
  }
  if (progress.time_left) parts.push_back({"ETA " + format_duration(*progress.time_left), 3});
  if (progress.resident_bytes > 0) parts.push_back({format_bytes(progress.resident_bytes), 5});
  return parts;
}

std::size_t columns(const std::vector<Part>& parts) {
  std::size_t total = parts.empty() ? 0 : 2 * (parts.size() - 1);
  for (const auto& part : parts) total += part.text.size();
  return total;
}

std::string bar_of(const Progress& progress, int length) {
  const double done =
      std::clamp(static_cast<double>(progress.step) / static_cast<double>(progress.total_steps), 0.0, 1.0);
  const auto filled = static_cast<std::size_t>(std::lround(done * length));
  return fmt::format("[{}{}]", std::string(filled, '='),
                     std::string(static_cast<std::size_t>(length) - filled, ' '));
}

void write_ignoring_failure(int fd, const std::string& text) {
  [[maybe_unused]] const auto written = ::write(fd, text.data(), text.size());
}

std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }));
}

int terminal_width(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string wrap_words(const std::string& text, int width) {
  constexpr std::size_t kIndent = 2;
  std::string wrapped;
  std::size_t begin = 0, column = 0;  // of the line's first word, and of the next one, its space included
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '\n') {
      wrapped += text[at++];
      begin = column = 0;
      continue;
    }
    const std::size_t end = std::min(text.find_first_of(" \n", at + 1), text.size());
    const std::string_view word = std::string_view(text).substr(at, end - at);  // with the space before it
    const std::size_t length = columns_of(word);
    const bool breaks =
        width > 0 && word[0] == ' ' && column > begin && column + length > static_cast<std::size_t>(width);
    if (breaks) wrapped.append(1, '\n').append(kIndent, ' ');
    wrapped += breaks ? word.substr(1) : word;
    if (breaks) begin = kIndent;
    column = breaks ? kIndent + length - 1 : column + length;
    at = end;
  }
  return wrapped;
}

std::string format_duration(Duration duration) {
  const std::int64_t seconds =
      std::max<std::int64_t>(0, std::chrono::round<std::chrono::seconds>(duration).count());
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{} min {:02} s", seconds / 60, seconds % 60);
  return fmt::format("{} h {:02} min", seconds / 3600, seconds % 3600 / 60);
}

std::string format_bytes(std::int64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  int unit = 0;
  for (; value >= 1024 && unit < 3; ++unit) value /= 1024;
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string format_progress(const Progress& progress, int width, bool bar, bool colour) {
  std::vector<Part> parts = parts_of(progress, bar);
  const auto limit = static_cast<std::size_t>(std::max(width, 0));
  while (limit > 0 && parts.size() > 1 && columns(parts) > limit) {
    parts.erase(std::max_element(parts.begin(), parts.end(),
                                 [](const Part& a, const Part& b) { return a.rank < b.rank; }));
  }
  std::string line;
  for (const auto& part : parts) {
    if (!line.empty()) line += "  ";
    line += colour && part.bold ? fmt::format("{}{}{}", kBold, part.text, kPlain) : part.text;
  }
  if (limit > 0 && columns(parts) > limit)
    return line.substr(0, limit);  // a single part, never a coloured one

  const int left = width - static_cast<int>(columns(parts)) - 4;  // brackets and the two spaces behind
  if (bar && progress.total_steps > 0 && left >= kShortestBar) {
    line = fmt::format("{}  {}", bar_of(progress, std::min(left, kLongestBar)), line);
  }
  return line;
}

ProgressOptions progress_options_for(int fd, const Environment& environment) {
  ProgressOptions options;
  options.terminal = shows_on_terminal(fd, environment);
  options.colour = options.terminal && find_variable(environment, "NO_COLOR") == nullptr;
  options.width = [fd] { return terminal_width(fd); };
  return options;
}

ProgressTarget worker_progress_target(const Environment& environment) {
  if (find_variable(environment, "DTRAIN_STDERR_TTY") == nullptr) {
    return {STDOUT_FILENO, progress_options_for(STDOUT_FILENO, environment)};
  }
  const std::string* columns = find_variable(environment, "DTRAIN_COLUMNS");
  const auto width = columns != nullptr ? parse_integer(*columns).value_or(80) : 80;
  ProgressOptions options;
  options.terminal = true;
  options.width = [width] { return static_cast<int>(width); };
  return {STDERR_FILENO, options};
}

ProgressLine::ProgressLine(int fd, ProgressOptions options, const Clock& clock)
    : fd_(fd), options_(std::move(options)), clock_(&clock) {}

ProgressLine::~ProgressLine() {
  try {
    finish();
  } catch (...) {
    // Out of memory while saying goodbye; nothing to be done about it here.
  }
}

void ProgressLine::update(const Progress& progress) {
  last_ = progress;
  pending_ = true;
  if (!first_at_) {
    first_at_ = clock_->now();
    first_step_ = progress.step;
  }
  const Duration pause = options_.terminal ? options_.redraw_every : options_.print_every;
  if (!shown_at_ || clock_->now() - *shown_at_ >= pause) show();
}

void ProgressLine::estimate() {
  const std::int64_t steps = last_.step - first_step_;
  if (last_.time_left || last_.total_steps <= 0 || steps <= 0) return;
  const double seconds = std::chrono::duration<double>(clock_->now() - *first_at_).count();
  const auto left = static_cast<double>(std::max<std::int64_t>(0, last_.total_steps - last_.step));
  last_.time_left = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(std::min(seconds / static_cast<double>(steps) * left, 1e9)));
}

void ProgressLine::show() {
  estimate();
  if (options_.terminal) {
    // One column less: a full line would make some terminals wrap.
    write_ignoring_failure(
        fd_, fmt::format("{}{}", kClearLine,
                         format_progress(last_, std::max(width() - 1, 1), true, options_.colour)));
    drawn_ = true;
  } else {
    write_ignoring_failure(fd_, format_progress(last_, 0, false, false) + "\n");
  }
  shown_at_ = clock_->now();
  pending_ = false;
}

void ProgressLine::message(const std::string& text) {
  write_ignoring_failure(fd_, fmt::format("{}{}\n", drawn_ ? kClearLine : "",
                                          options_.terminal ? wrap_words(text, width()) : text));
  if (drawn_) show();
}

void ProgressLine::result(const std::string& full, const std::string& shorter) {
  const bool fits = !options_.terminal || columns_of(full) <= static_cast<std::size_t>(std::max(width(), 0));
  const std::string& text = fits || shorter.empty() ? full : shorter;
  const TimePoint now = clock_->now();
  const Duration most = options_.results_at_once * options_.result_every;
  results_allowed_ = result_at_ ? std::min(results_allowed_ + (now - *result_at_), most) : most;
  result_at_ = now;
  if (results_allowed_ < options_.result_every) {
    held_result_ = text;
    ++results_held_;
    return;
  }
  results_allowed_ -= options_.result_every;
  print_result(text);
}

void ProgressLine::print_result(const std::string& text) {
  if (results_held_ > 0) message(fmt::format("({} more, not printed)", results_held_));
  results_held_ = 0;
  held_result_.clear();
  message(text);
}

void ProgressLine::finish() {
  if (!held_result_.empty()) {
    --results_held_;
    print_result(std::string(held_result_));
  }
  if (pending_) show();
  if (drawn_) write_ignoring_failure(fd_, "\n");
  drawn_ = false;
  shown_at_.reset();
}

}  // namespace dtrain
