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

#include "runtime/base/terminal.h"

namespace dtrain::launcher {
namespace {

// As much as a pipe that is ready for writing takes without blocking (PIPE_BUF).
constexpr std::size_t kPipeChunk = 4096;
constexpr std::size_t kFileChunk = std::size_t{1} << 20;

constexpr std::string_view kName = "dtrain-launch: ";
constexpr std::string_view kEraseLine = "\r\x1b[K";
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
      colour_out_(out_.terminal() && !environment.contains("NO_COLOR")),
      colour_err_(err_.terminal() && !environment.contains("NO_COLOR")) {
  winsize size{};
  if (err_.terminal() && ::ioctl(err_fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) columns_ = size.ws_col;
}

void Console::line(bool to_err, std::string_view prefix, std::string_view text) {
  Sink& sink = to_err ? err_ : out_;
  const bool beside_progress = !progress_.empty() && sink.terminal();
  if (beside_progress) lift_progress();
  if (!prefix.empty()) {
    const bool colour = to_err ? colour_err_ : colour_out_;
    if (colour) sink.append(kDim);
    sink.append(prefix);
    if (colour) sink.append(kPlain);
  }
  sink.append(text);
  sink.append("\n");
  if (beside_progress) {
    // Two descriptors of one terminal: the line must be out before the progress line is back.
    if (!to_err) sink.flush();
    lay_progress();
  }
}

void Console::own_line(std::string_view colour, std::string_view text) {
  const bool beside_progress = !progress_.empty();
  if (beside_progress) lift_progress();
  if (colour_err_) err_.append(colour);
  err_.append(kName);
  err_.append(text);
  if (colour_err_) err_.append(kPlain);
  err_.append("\n");
  if (beside_progress) lay_progress();
}

void Console::say(std::string_view text) { own_line("", text); }
void Console::complain(std::string_view text) { own_line(kRed, text); }

void Console::progress(std::string_view text) {
  if (!err_.terminal()) return;
  if (!progress_.empty()) lift_progress();
  progress_ = text;
  if (!progress_.empty()) lay_progress();
}

void Console::settle_progress() {
  if (!progress_.empty()) err_.append("\n");
  progress_.clear();
}

void Console::flush() {
  out_.flush();
  err_.flush();
  tell_losses();
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

void Console::lift_progress() {
  err_.append(kEraseLine);
  err_.flush();
}

void Console::lay_progress() { err_.append(progress_); }

}  // namespace dtrain::launcher
