// Queues and writes; see the header.
#include "launcher/output/console.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "launcher/output/lines.h"
#include "runtime/base/terminal.h"

namespace dtrain::launcher {
namespace {

// As much as a pipe that is ready for writing takes without blocking (PIPE_BUF).
constexpr std::size_t kPipeChunk = 4096;
constexpr std::size_t kFileChunk = std::size_t{1} << 20;

constexpr std::string_view kName = "dtrain-launch: ";
constexpr std::string_view kEraseLine = "\r\x1b[K", kEraseLineAbove = "\x1b[A\x1b[K";
constexpr std::size_t kMostBars = 8;  // more are counted
constexpr std::string_view kRed = "\x1b[31m", kDim = "\x1b[2m", kPlain = "\x1b[0m";

bool is_regular_file(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

// A write to a pipe or terminal that poll called ready can still block when somebody else has filled it
// meanwhile or the terminal was stopped in the middle. What this process opens itself need not block.
UniqueFd open_again(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0 || (!S_ISFIFO(status.st_mode) && ::isatty(fd) == 0)) return UniqueFd();
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  return UniqueFd(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

bool are_same(int fd, int other) {
  struct stat a {
  }, b{};
  return ::fstat(fd, &a) == 0 && ::fstat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// Asked for each time: people resize terminals.
winsize window_of(const Sink& sink) {
  constexpr winsize kUsual{24, 80, 0, 0};
  winsize size{};
  const bool known = sink.terminal() && ::ioctl(sink.fd(), TIOCGWINSZ, &size) == 0;
  return known && size.ws_col > 1 && size.ws_row > 1 ? size : kUsual;
}

bool ready_for_writing(int fd, int timeout_ms) {
  pollfd wait{fd, POLLOUT, 0};
  return ::poll(&wait, 1, timeout_ms) > 0;
}

}  // namespace

Sink::Sink(int fd, const Environment& environment)
    : fd_(fd),
      own_(open_again(fd)),
      terminal_(shows_on_terminal(fd, environment)),
      regular_file_(is_regular_file(fd)) {}

std::ptrdiff_t Sink::write_some(std::string_view text) {
  if (own_) return ::write(own_.get(), text.data(), text.size());
  const ssize_t sent = ::send(fd_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent < 0 && errno == ENOTSOCK ? ::write(fd_, text.data(), text.size()) : sent;
}

void Sink::append(std::string_view text) {
  if (broken_) return;
  const bool cut_off = losses_.error() != 0 && mid_line_;  // what comes next starts on a line of its own
  if (cut_off && queue_.empty()) queue_.push_back('\n');
  queue_.append(text);
}

void Sink::flush() {
  while (wants_to_write() && ready_for_writing(fd_, 0)) {
    const std::size_t chunk = regular_file_ ? kFileChunk : kPipeChunk;
    const std::ptrdiff_t done = write_some(std::string_view(queue_).substr(written_, chunk));
    if (done < 0) {
      if (errno == EINTR || errno == EAGAIN) break;
      drop_queue(errno);
      break;
    }
    written_ += static_cast<std::size_t>(done);
    if (done > 0) mid_line_ = queue_[written_ - 1] != '\n';
    losses_.worked();
  }
  if (!wants_to_write()) {
    queue_.clear();
    written_ = 0;
  } else if (written_ > kHighWater) {
    queue_.erase(0, written_);
    written_ = 0;
  }
}

// Only a departed reader is final; a disk may have room again.
void Sink::drop_queue(int error) {
  broken_ = error == EPIPE || error == ECONNRESET;
  if (!broken_) losses_.failed(error, queue_.size() - written_);
  queue_.clear();
  written_ = 0;
}

void Sink::flush(const Deadline& deadline) {
  flush();
  while (wants_to_write() && !deadline.expired()) {
    ready_for_writing(fd_, deadline.poll_timeout_ms());
    flush();
  }
}

Console::Console(int out_fd, int err_fd, const Environment& environment)
    : out_(out_fd, environment),
      err_(err_fd, environment),
      same_place_(are_same(out_fd, err_fd)),
      colour_out_(out_.terminal() && !environment.contains("NO_COLOR")),
      colour_err_(err_.terminal() && !environment.contains("NO_COLOR")) {}

int Console::columns() const { return window_of(err_).ws_col; }

// Prepares the speaker's stream for text of its: closes a line that is open there, unless the text continues
// it, and writes the prefix.
Sink& Console::begin(const Speaker& speaker, bool continued) {
  Sink& sink = sink_of(speaker);
  if (sink.terminal() || same_place_) lift_bars();
  if (continued && open_on(speaker.to_err).speaker == &speaker) return sink;
  close_line(speaker.to_err);
  if (same_place_ && !speaker.to_err) err_.flush();
  if (!speaker.prefix.empty()) {
    const bool colour = speaker.to_err ? colour_err_ : colour_out_;
    if (colour) sink.append(kDim);
    sink.append(speaker.prefix);
    if (colour) sink.append(kPlain);
  }
  if (continued && speaker.marks_cuts) sink.append(kCut);
  return sink;
}

void Console::close_line(bool to_err) {
  OpenLine& line = open_on(to_err);
  if (!line.is_open) return;
  Sink& sink = line.to_err ? err_ : out_;
  if (line.marks_cuts && line.speaker != nullptr) sink.append(kCut);
  sink.append("\n");
  if (&sink != &err_) sink.flush();
  line = {};
}

void Console::line(const Speaker& speaker, std::string_view text, bool continued) {
  OpenLine& open = open_on(speaker.to_err);
  if (continued && text.empty() && open.speaker != &speaker) return;  // all of it has been shown, and closed
  Sink& sink = begin(speaker, continued);
  sink.append(text);
  sink.append("\n");
  open = {};
}

void Console::open(const Speaker& speaker, std::string_view text, bool continued) {
  begin(speaker, continued).append(text);
  open_on(speaker.to_err) = {true, speaker.to_err, speaker.marks_cuts, &speaker};
}

void Console::pass(const Speaker& speaker, std::string_view bytes) {
  if (bytes.empty()) return;
  begin(speaker, true).append(bytes);
  open_on(speaker.to_err) = {!bytes.ends_with('\n'), speaker.to_err, false, &speaker};
}

void Console::forget(const Speaker& speaker) {
  bar(speaker, "");
  for (OpenLine& line : open_) {
    if (line.speaker == &speaker) line.speaker = nullptr;
  }
}

void Console::own_line(std::string_view colour, std::string_view text) {
  lift_bars();
  close_line(true);
  if (colour_err_) err_.append(colour);
  err_.append(kName);
  err_.append(text);
  if (colour_err_) err_.append(kPlain);
  err_.append("\n");
}

void Console::say(std::string_view text) { own_line("", text); }
void Console::complain(std::string_view text) { own_line(kRed, text); }

bool Console::shows_bars(const Speaker& speaker) const {
  return err_.terminal() && (speaker.to_err || out_.terminal());
}

void Console::bar(const Speaker& speaker, std::string_view text) {
  if (text.empty()) {
    bars_changed_ = bars_.erase(&speaker) > 0 || bars_changed_;
  } else if (std::string& shown = bars_[&speaker]; shown != text) {
    shown = text;
    bars_changed_ = true;
  }
}

void Console::settle_bars() {
  if (laid_rows_ > 0) err_.append("\n");
  laid_rows_ = 0;
  bars_.clear();
  bars_changed_ = false;
}

// Bars come back when everything else is out: what they would push aside is not written yet, and on a
// terminal that stands still only their newest state waits.
void Console::flush() {
  out_.flush();
  err_.flush();
  tell_losses();
  const bool must_lay = bars_changed_ || (laid_rows_ == 0 && !bars_.empty());
  if (!must_lay || err_.wants_to_write() || (out_.terminal() && out_.wants_to_write())) return;
  lift_bars();
  lay_bars();
  err_.flush();
}

void Console::flush(const Deadline& deadline) {
  out_.flush(deadline);
  err_.flush(deadline);
  out_.losses().end();
  err_.losses().end();
  tell_losses();
  err_.flush(deadline);
}

// Where stderr itself takes nothing, the words wait with the rest, or are lost with it.
void Console::tell_losses() {
  if (const auto news = out_.losses().take_news("stdout")) complain(*news);
  if (const auto news = err_.losses().take_news("stderr")) complain(*news);
}

void Console::lift_bars() {
  if (laid_rows_ == 0) return;
  err_.append(kEraseLine);
  for (; laid_rows_ > 1; --laid_rows_) err_.append(kEraseLineAbove);
  laid_rows_ = 0;
  err_.flush();  // stdout may be the same terminal
}

void Console::lay_bars() {
  bars_changed_ = false;
  const std::vector<std::string> rows = this->rows();
  if (rows.empty()) return;
  close_line(true);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i > 0) err_.append("\n");
    err_.append(rows[i]);
  }
  laid_rows_ = rows.size();
}

// A row that is too long would wrap, and rows that do not fit scroll away: neither could be lifted again.
std::vector<std::string> Console::rows() const {
  const winsize window = window_of(err_);
  const std::size_t width = window.ws_col - 1U,
                    most = std::clamp<std::size_t>(window.ws_row / 2U, 1, kMostBars);
  const bool named = bars_.size() > 1;
  std::vector<std::string> rows;
  for (const auto& [speaker, text] : bars_) {
    if (rows.size() == most) {
      const std::string more = std::string(kCut) + " " + std::to_string(bars_.size() - most + 1) + " more";
      rows.back() = first_columns(more, width);
      break;
    }
    const std::string row = named ? speaker->name + text : text;
    rows.emplace_back(first_columns(row, width));
  }
  return rows;
}

}  // namespace dtrain::launcher
