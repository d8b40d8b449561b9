// Pipes, files and lines of one worker's stream.
#include "launcher/output/capture.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "launcher/output/log_lock.h"
#include "runtime/base/check.h"

namespace dtrain::launcher {
namespace {

constexpr std::size_t kChunk = 65536;
constexpr std::streamoff kTailBytes = 16384;
constexpr Duration kPrompt = std::chrono::milliseconds(100);

// Before the worker, or a thread, writes there, which find out themselves where that fails.
void write_mark(const UniqueFd& file, const std::string& mark) {
  [[maybe_unused]] const ssize_t written = ::write(file.get(), mark.data(), mark.size());
}

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t") == std::string_view::npos; }

}  // namespace

Capture::Capture(const StreamPlan& stream, std::string prefix, const CaptureOptions& options,
                 Console& console, const Clock& clock)
    : options_(options),
      console_(console),
      clock_(clock),
      speaker_{options.to_err, std::move(prefix), options.name, options.order, !options.passthrough},
      to_console_(stream.console),
      data_(is_data()),
      bars_(console.shows_bars(speaker_)),
      lines_(bars_ || !options.passthrough) {
  if (data_) speaker_.marks_cuts = false;
  UniqueFd file;
  if (!stream.file.empty()) {
    file_path_ = options.log_folder + "/" + stream.file;
    file = open_log_file(file_path_);
    log_lock_ = lock_log_file(file_path_);
    if (is_continued(log_lock_)) write_mark(file, options.mark);
    struct stat status {};
    if (::fstat(file.get(), &status) == 0) file_begin_ = status.st_size;
  }
  if (!file || !to_console_) options_.filtered = nullptr;
  if (options.inherit) return;
  if (file && !to_console_) {  // straight to the file: no copy through the launcher
    const int flags = static_cast<int>(check(Sys{::fcntl(file.get(), F_GETFL)}, "fcntl F_GETFL"));
    check(Sys{::fcntl(file.get(), F_SETFL, flags & ~O_NONBLOCK)}, "fcntl F_SETFL");
    worker_end_ = std::move(file);
    return;
  }
  if (file) file_ = std::make_unique<LogFile>(std::move(file), "log file " + file_path_);
  int ends[2];
  check(Sys{::pipe2(ends, O_CLOEXEC)}, "pipe for a worker's output");
  pipe_.reset(ends[0]);
  worker_end_.reset(ends[1]);
  check(Sys{::fcntl(pipe_.get(), F_SETFL, O_NONBLOCK)}, "fcntl O_NONBLOCK");
}

// One worker's stderr is no data: bars and messages of the launcher's go there.
bool Capture::is_data() const {
  const Sink& sink = options_.to_err ? console_.err() : console_.out();
  return options_.alone && speaker_.prefix.empty() && !sink.terminal() &&
         (options_.passthrough || !options_.to_err);
}

int Capture::poll_fd() {
  if (!pipe_) return -1;
  if (to_console_ && sink().broken() && !file_) {
    // As if the worker wrote to the broken stream itself: it gets SIGPIPE.
    if (!options_.to_err) pipe_.reset();
    to_console_ = false;
    return pipe_.get();
  }
  return (to_console_ && sink().full()) || held_back() ? -1 : pipe_.get();
}

bool Capture::read_some(std::size_t limit) {
  std::array<char, kChunk> chunk;
  bool any = false;
  for (std::size_t total = 0; pipe_ && total < limit;) {
    const ssize_t got = ::read(pipe_.get(), chunk.data(), std::min(chunk.size(), limit - total));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return any;  // EAGAIN: nothing more for now
    if (got == 0) {
      pipe_.reset();
      finish_line();
      return any;
    }
    any = true;
    total += static_cast<std::size_t>(got);
    take({chunk.data(), static_cast<std::size_t>(got)});
    if (static_cast<std::size_t>(got) < chunk.size()) return any;
  }
  return any;
}

void Capture::finish() {
  constexpr std::size_t kAtMost = std::size_t{8}
                                  << 20;  // a descendant that writes without end must not hold us
  read_some(kAtMost);
  finish_line();
  console_.forget(speaker_);
  tell_losses();
}

void Capture::give_up_file() {
  if (file_) file_->give_up();
  tell_losses();
}

void Capture::take(std::string_view bytes) {
  if (file_) file_->append(bytes);
  tell_losses();
  if (data_ && to_console_) console_.pass(speaker_, bytes);
  if (data_ && !options_.to_err && options_.filtered == nullptr) return;
  lines_.feed(bytes, [this](const TextLine& line) { emit(line); });
  set_deadline();
}

// The end of the stream. What is passed on unchanged gets no newline that the worker did not write.
void Capture::finish_line() {
  if (options_.passthrough && !lines_.holds_state())
    lines_.hand_out_unfinished([this](const TextLine& line) { emit(line); });
  else
    lines_.finish([this](const TextLine& line) { emit(line); });
  due_.reset();
}

void Capture::set_deadline() {
  due_.reset();
  if (!to_console_ || data_) return;
  const bool has_state = lines_.holds_state();
  if (bars_) console_.bar(speaker_, has_state ? strip_controls(lines_.unfinished()) : "");
  if (has_state && !bars_) due_ = std::max(next_state_, clock_.now());
  const bool may_ask =
      options_.alone && bars_;  // somebody who is asked for input is not to wait for the question
  if (!has_state && !lines_.unfinished().empty()) due_ = clock_.now() + (may_ask ? kPrompt : kQuiet);
}

void Capture::keep_time() {
  if (!due_ || clock_.now() < *due_) return;
  due_.reset();
  if (lines_.holds_state())
    show_state();
  else
    lines_.hand_out_unfinished([this](const TextLine& line) { emit(line); });
}

void Capture::show_state() {
  const std::string text = strip_controls(lines_.unfinished());
  if (is_blank(text) || text == shown_state_) return;
  console_.line(speaker_, text);
  shown_state_ = text;
  next_state_ = clock_.now() + kStateInterval;
}

std::string Capture::shown_text(const TextLine& line) const {
  if (options_.passthrough && !line.state) return std::string(line.text);
  return options_.progress || line.state ? strip_controls(line.text) : escape_controls(line.text);
}

void Capture::emit(const TextLine& line) {
  const std::string text = shown_text(line);
  if (line.state && is_blank(text)) return;  // a bar that has been wiped out
  if (options_.filtered != nullptr)
    options_.filtered->take(speaker_.prefix, line.text, line.unfinished, filtered_line_);
  if (options_.to_err) tail_.add(text, line.continued);
  if (!to_console_ || data_) return;
  if (bars_) console_.bar(speaker_, "");  // its last state becomes a line
  const bool shown_before = line.state && text == std::exchange(shown_state_, "");
  if (shown_before) return;
  if (line.unfinished)
    console_.open(speaker_, text, line.continued);
  else
    console_.line(speaker_, text, line.continued);
}

void Capture::tell_losses() {
  if (!file_) return;
  if (const auto news = file_->take_news()) console_.complain(*news);
}

std::deque<std::string> Capture::last_lines() const {
  std::error_code ignored;
  const bool readable = std::filesystem::is_regular_file(file_path_, ignored);  // a FIFO would be waited for
  if (!tail_.lines().empty() || !readable) return tail_.lines();
  std::ifstream file(file_path_, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  file.seekg(std::clamp<std::streamoff>(size - kTailBytes, std::min(file_begin_, size), size));
  const std::string end(std::istreambuf_iterator<char>(file), {});
  Tail tail;
  LineSplitter lines;
  const auto add = [&](const TextLine& line) { tail.add(shown_text(line), line.continued); };
  lines.feed(end, add);
  lines.finish(add);
  return tail.lines();
}

}  // namespace dtrain::launcher
