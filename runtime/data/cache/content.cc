#include "runtime/data/cache/content.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/base/fd.h"

namespace dtrain {

struct Content::File {
  std::string path;
  UniqueFd fd;
  std::size_t size_bytes = 0;  ///< when it was opened

  [[noreturn]] void refuse_shortened() const {
    struct stat info {};
    check(Sys{::fstat(fd.get(), &info)}, "fstat " + path);
    throw DataError(path, info.st_size, fmt::format("the {} bytes it had when it was opened", size_bytes),
                    fmt::format("{}; it was truncated or rewritten while it was read (write a new file and "
                                "rename it over the old one instead)",
                                info.st_size));
  }
};

Content::Content(int fd, std::size_t size_bytes, const std::string& path) : size_(size_bytes) {
  const auto again = check(Sys{::fcntl(fd, F_DUPFD_CLOEXEC, 0)}, "duplicate the descriptor of " + path);
  file_ = std::make_shared<const File>(File{path, UniqueFd(static_cast<int>(again)), size_bytes});
}

Content::Content(std::shared_ptr<const void> owner, std::span<const std::uint8_t> bytes)
    : owner_(std::move(owner)), memory_(bytes.data()), size_(bytes.size()) {}

Content Content::from(std::size_t bytes) const {
  Content rest = *this;
  rest.begin_ += bytes;
  rest.size_ -= bytes;
  if (memory_ != nullptr) rest.memory_ += bytes;
  return rest;
}

Content Content::first(std::size_t bytes) const {
  Content front = *this;
  front.size_ = bytes;
  return front;
}

std::span<const std::uint8_t> Content::read(std::size_t offset, std::size_t count) const {
  if (!file_) return {memory_ + offset, count};
  static thread_local std::vector<std::uint8_t> room;
  if (room.size() < count) room.resize(count);
  for (std::size_t done = 0; done < count;) {
    const ssize_t got = ::pread(file_->fd.get(), room.data() + done, count - done,
                                static_cast<off_t>(begin_ + offset + done));
    if (got < 0 && errno == EINTR) continue;
    check(Sys{got}, "read " + file_->path);
    if (got == 0) file_->refuse_shortened();
    done += static_cast<std::size_t>(got);
  }
  return {room.data(), count};
}

}  // namespace dtrain
