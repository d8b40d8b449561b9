// Pipes, files and lines of one worker's stream.
#include "launcher/output/capture.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "runtime/base/check.h"

namespace dtrain::launcher {
namespace {

constexpr std::size_t kChunk = 65536;
constexpr std::streamoff kTailBytes = 16384;

}  // namespace

Capture::Capture(const StreamPlan& stream, std::string prefix, const CaptureOptions& options,
                 Console& console)
    : options_(options), prefix_(std::move(prefix)), console_(console), to_console_(stream.console) {
  UniqueFd file;
  if (!stream.file.empty()) {
    file_path_ = options.log_folder + "/" + stream.file;
    file = open_log_file(file_path_);
  }
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
      lines_.finish([this](std::string_view line) { emit(line); });
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
  lines_.finish([this](std::string_view line) { emit(line); });
  tell_losses();
}

void Capture::give_up_file() {
  if (file_) file_->give_up();
  tell_losses();
}

void Capture::take(std::string_view bytes) {
  if (file_) file_->append(bytes);
  tell_losses();
  if (options_.progress) {
    take_progress(bytes);
  } else {
    lines_.feed(bytes, [this](std::string_view line) { emit(line); });
  }
}

// Text after a carriage return replaces the progress line; text that ends in a newline is a line like any
// other.
void Capture::take_progress(std::string_view bytes) {
  lines_.feed(bytes, [this](std::string_view line) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::size_t back = line.rfind('\r');
    if (back != std::string_view::npos) console_.progress("");  // the bar's last state becomes a line
    emit(back == std::string_view::npos ? line : line.substr(back + 1));
  });
  std::string& pending = lines_.pending();
  std::string_view update = pending;
  if (update.find('\r') == std::string_view::npos) return;
  if (update.ends_with('\r')) update.remove_suffix(1);
  if (const std::size_t back = update.rfind('\r'); back != std::string_view::npos)
    update.remove_prefix(back + 1);
  const std::string shown = strip_controls(update);
  const auto width = static_cast<std::size_t>(console_.columns() - 1);
  if (!shown.empty()) console_.progress(first_columns(shown, width));
  // Only the newest state is kept; the carriage return in front of it marks what follows as an update.
  std::string kept(1, '\r');
  kept += update;
  pending = std::move(kept);
}

void Capture::emit(std::string_view line) {
  std::string escaped;
  if (!options_.passthrough) {
    escaped = options_.progress ? strip_controls(line) : escape_controls(line);
    line = escaped;
  }
  if (options_.to_err) tail_.add(line);
  if (to_console_) console_.line(options_.to_err, prefix_, line);
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
  file.seekg(std::max<std::streamoff>(0, size - kTailBytes));
  Tail tail;
  std::string line;
  while (std::getline(file, line)) tail.add(escape_controls(line));
  return tail.lines();
}

}  // namespace dtrain::launcher
