// Pipes and a pid; what lines mean is decided by the job (hosts_run.cc).
#include "launcher/hosts/remote_host.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "launcher/plan/options.h"
#include "runtime/base/check.h"

namespace dtrain::launcher {
namespace {

constexpr Duration kQuiet = std::chrono::seconds(1);
// For output that is still on its way, or whose pipe somebody holds open who has outlived the job.
constexpr Duration kLastOutput = std::chrono::seconds(1);
constexpr int kReads = 16;  // of 64 KiB, before another host has its turn

struct Pipe {
  UniqueFd read_end, write_end;
};

Pipe make_pipe() {
  int ends[2];
  check(Sys{::pipe2(ends, O_CLOEXEC)}, "pipe to a host");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

void make_non_blocking(int fd) { check(Sys{::fcntl(fd, F_SETFL, O_NONBLOCK)}, "fcntl O_NONBLOCK"); }

}  // namespace

RemoteHost::RemoteHost(HostEntry entry, int place, TakeLine take_line)
    : entry_(std::move(entry)), place_(place), take_line_(std::move(take_line)) {
  streams_[1].speaker.to_err = true;
}

RemoteHost::~RemoteHost() {
  if (pid_ <= 0 || status_) return;
  kill();
  ::waitpid(pid_, nullptr, 0);  // of SIGKILL
}

void RemoteHost::start(SpawnRequest request, const Inherited& inherited) {
  Pipe in = make_pipe(), out = make_pipe(), err = make_pipe();
  for (const int fd : {in.write_end.get(), out.read_end.get(), err.read_end.get()}) make_non_blocking(fd);
  request.in = in.read_end.get();
  request.out = out.write_end.get();
  request.err = err.write_end.get();
  program_ = request.argv.front();
  pid_ = spawn(request, inherited, -1);
  in_ = std::move(in.write_end);
  streams_[0].fd = std::move(out.read_end);
  streams_[1].fd = std::move(err.read_end);
}

void RemoteHost::send(const std::string& line) {
  if (!in_) return;
  queue_ += line + "\n";
  flush();
}

void RemoteHost::flush() {
  while (in_ && !queue_.empty()) {
    const ssize_t done = ::write(in_.get(), queue_.data(), queue_.size());
    if (done > 0) {
      queue_.erase(0, static_cast<std::size_t>(done));
    } else if (done < 0 && errno == EAGAIN) {
      return;
    } else if (done >= 0 || errno != EINTR) {
      in_.reset();  // nobody reads; the process's end says why
    }
  }
  if (!in_) queue_.clear();
}

void RemoteHost::read(bool to_err) {
  Stream& stream = streams_[to_err ? 1 : 0];
  std::array<char, 65536> chunk;
  for (int turn = 0; turn < kReads && stream.fd; ++turn) {
    const ssize_t got = ::read(stream.fd.get(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) return finish(to_err);
    stream.lines.feed({chunk.data(), static_cast<std::size_t>(got)},
                      [&](const TextLine& line) { take_line_(*this, to_err, line); });
  }
  stream.due.reset();
  if (!stream.lines.unfinished().empty()) stream.due = steady_clock().now() + kQuiet;
}

void RemoteHost::finish(bool to_err) {
  Stream& stream = streams_[to_err ? 1 : 0];
  stream.fd.reset();
  stream.due.reset();
  stream.lines.finish([&](const TextLine& line) { take_line_(*this, to_err, line); });
}

void RemoteHost::keep_time() {
  for (const bool to_err : {false, true}) {
    Stream& stream = streams_[to_err ? 1 : 0];
    if (!stream.due || steady_clock().now() < *stream.due) continue;
    stream.due.reset();
    stream.lines.hand_out_unfinished([&](const TextLine& line) { take_line_(*this, to_err, line); });
  }
}

std::optional<TimePoint> RemoteHost::due() const {
  std::optional<TimePoint> first;
  const std::optional<TimePoint> last_output =
      reaped_at_ && !ended() ? std::optional(*reaped_at_ + kLastOutput) : std::nullopt;
  for (const auto& due : {streams_[0].due, streams_[1].due, last_output}) {
    if (due && (!first || *due < *first)) first = due;
  }
  return first;
}

void RemoteHost::kill() {
  hang_up();
  if (pid_ > 0 && !status_) ::kill(pid_, SIGKILL);
}

void RemoteHost::reap() {
  if (ended()) return;
  int status = 0;
  if (!status_ && pid_ > 0 && ::waitpid(pid_, &status, WNOHANG) == pid_) {
    status_ = status;
    hang_up();  // what it has left behind, if anything, is to end
    reaped_at_ = steady_clock().now();
  }
  if (!status_) return;
  if (steady_clock().now() - *reaped_at_ >= kLastOutput) {
    for (const bool to_err : {false, true}) {
      if (streams_[to_err ? 1 : 0].fd) finish(to_err);
    }
  }
  if (!streams_[0].fd && !streams_[1].fd) state_ = State::ended;
}

std::string RemoteHost::how_it_ended() const {
  if (!status_) return program_ + " still runs";
  if (WIFSIGNALED(*status_))
    return fmt::format("{} was killed by {}", program_, signal_name(WTERMSIG(*status_)));
  const int code = WEXITSTATUS(*status_);
  return code == 127 ? fmt::format("{} ended with exit code 127: there is no dtrain-launch at the same path",
                                   program_)
                     : fmt::format("{} ended with exit code {}", program_, code);
}

}  // namespace dtrain::launcher
