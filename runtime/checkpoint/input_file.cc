#include "runtime/checkpoint/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/base/files/durable_file.h"

namespace dtrain {
namespace {

// Linux moves at most this much in one read(2).
constexpr std::size_t kMostInOneRead = 0x7ffff000;
constexpr Duration kFirstPause = std::chrono::milliseconds(50);
// Reading a page more is cheaper than another call; what is gathered stays in the cache of a core.
constexpr std::uint64_t kWidestGap = 4096;
constexpr std::size_t kMostGathered = 1 << 20;

bool says_there_is_none(int error_number) {
  return error_number == ENOENT || error_number == ENOTDIR || error_number == ENAMETOOLONG;
}

}  // namespace

void with_patience(const std::function<void()>& attempt) {
  const Deadline deadline = Deadline::after(kReadPatience);
  Duration pause = kFirstPause;
  for (int tries = 1;; ++tries) {
    try {
      attempt();
      return;
    } catch (const SystemError& error) {
      if (error.error_number() == EROFS) throw;  // is not going to change
      if (deadline.expired()) {
        throw with_context(
            fmt::format("tried {} times in {} s", tries,
                        std::chrono::duration_cast<std::chrono::seconds>(kReadPatience).count()),
            error);
      }
    }
    std::this_thread::sleep_for(std::min(pause, deadline.remaining()));
    pause *= 2;
  }
}

InputFile::InputFile(std::filesystem::path path) : path_(std::move(path)) {
  with_patience([this] { fd_ = open_once(identity_); });
}

UniqueFd InputFile::open_once(Identity& identity) const {
  // Non-blocking, or opening a FIFO that somebody put there would wait forever.
  UniqueFd fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd && says_there_is_none(errno)) {
    throw DataError(path_.string(), -1, "a file", "none (" + std::system_category().message(errno) + ")");
  }
  check(Sys{fd.get()}, "open " + path_.string());
  struct stat status {};
  check(Sys{::fstat(fd.get(), &status)}, "fstat " + path_.string());
  if (!S_ISREG(status.st_mode)) throw DataError(path_.string(), -1, "a regular file", "something else");
  identity = {status.st_dev, status.st_ino, static_cast<std::uint64_t>(status.st_size)};
  return fd;
}

UniqueFd InputFile::open_again() const {
  Identity found;
  UniqueFd fd = open_once(found);
  if (found != identity_) {
    throw DataError(path_.string(), -1, fmt::format("the file of {} bytes that was opened before", size()),
                    fmt::format("another one, of {} bytes", found.size));
  }
  return fd;
}

void InputFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  bool first = true;
  with_patience([&] {
    // After an error by its name again: a handle that a file server has forgotten (ESTALE) never works again.
    const UniqueFd reopened = first && fd_ ? UniqueFd() : open_again();
    first = false;
    read_once(reopened ? reopened.get() : fd_.get(), offset, out);
  });
}

void InputFile::read_once(int fd, std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got =
        ::pread(fd, out.data(), std::min(out.size(), kMostInOneRead), static_cast<off_t>(offset));
    if (got == -1 && errno == EINTR) continue;
    check(Sys{got}, "read " + path_.string());
    if (got == 0) {
      throw DataError(path_.string(), static_cast<std::int64_t>(offset),
                      fmt::format("{} more bytes", out.size()), "the end of the file");
    }
    offset += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

void InputFile::release() noexcept { fd_.reset(); }

void GatheredReads::add(std::uint64_t offset, std::byte* target, std::size_t size) {
  if (size == 0) return;
  if (!pieces_.empty()) {
    Piece& last = pieces_.back();
    const std::uint64_t end = last.offset + last.size;
    if (offset < end || offset > end + kWidestGap || offset + size - pieces_.front().offset > kMostGathered) {
      flush();
    } else if (offset == end && target == last.target + last.size) {
      last.size += size;
      return;
    }
  }
  pieces_.push_back({offset, target, size});
}

void GatheredReads::flush() {
  if (pieces_.size() == 1) {
    file_->read(pieces_[0].offset, {pieces_[0].target, pieces_[0].size});
  } else if (!pieces_.empty()) {
    const std::uint64_t begin = pieces_.front().offset;
    buffer_.resize(pieces_.back().offset + pieces_.back().size - begin);
    file_->read(begin, buffer_);
    for (const Piece& piece : pieces_)
      std::memcpy(piece.target, buffer_.data() + (piece.offset - begin), piece.size);
  }
  pieces_.clear();
}

}  // namespace dtrain
