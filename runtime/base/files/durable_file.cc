// The order that survives a power cut: data, fsync, rename, fsync of the folder that holds the name.
#include "runtime/base/files/durable_file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <string>
#include <vector>

#include "runtime/base/check.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

// Linux moves at most this much in one write(2).
constexpr std::size_t kMostInOneWrite = 0x7ffff000;

UniqueFd create_file(const fs::path& path) {
  return UniqueFd(static_cast<int>(check(
      Sys{::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)}, "create " + path.string())));
}

// Removes a file on the way out unless it was renamed into place.
class TemporaryFile {
 public:
  explicit TemporaryFile(fs::path path) : path_(std::move(path)) {}
  ~TemporaryFile() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const fs::path& path() const noexcept { return path_; }
  void keep() noexcept { path_.clear(); }

 private:
  fs::path path_;
};

fs::path temporary_name(const fs::path& path) {
  std::string name(".");
  name.append(path.filename().string()).append(".tmp").append(unique_suffix());
  return path.parent_path() / name;
}

}  // namespace

void write_all(int fd, std::span<const std::byte> bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), std::min(bytes.size(), kMostInOneWrite));
    if (written == -1 && errno == EINTR) continue;
    check(Sys{written}, "write " + path.string());
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void write_all(int fd, std::string_view text, const fs::path& path) {
  write_all(fd, std::as_bytes(std::span(text)), path);
}

void append_whole(int fd, std::string_view text, const fs::path& path) {
  const auto before = static_cast<off_t>(check(Sys{::lseek(fd, 0, SEEK_END)}, "seek " + path.string()));
  ssize_t written = ::write(fd, text.data(), text.size());
  while (written == -1 && errno == EINTR) written = ::write(fd, text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) return;
  const int error = written == -1 ? errno : ENOSPC;  // a short write to a regular file is a full disk
  [[maybe_unused]] const int taken_back = ::ftruncate(fd, before);
  throw SystemError("write " + path.string(), error);
}

UniqueFd open_lines(const fs::path& path) {
  UniqueFd fd(static_cast<int>(check(Sys{::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666)},
                                     "open " + path.string())));
  const auto size = static_cast<off_t>(check(Sys{::lseek(fd.get(), 0, SEEK_END)}, "seek " + path.string()));
  std::array<char, 4096> block;
  off_t whole = size;
  for (bool found = false; whole > 0 && !found;) {
    const off_t from = std::max<off_t>(0, whole - static_cast<off_t>(block.size()));
    const long got = check(Sys{::pread(fd.get(), block.data(), static_cast<std::size_t>(whole - from), from)},
                           "read " + path.string());
    const std::size_t newline = std::string_view(block.data(), static_cast<std::size_t>(got)).rfind('\n');
    found = newline != std::string_view::npos;
    whole = from + (found ? static_cast<off_t>(newline) + 1 : 0);
  }
  if (whole != size) check(Sys{::ftruncate(fd.get(), whole)}, "truncate " + path.string());
  return fd;
}

std::string read_whole(int fd, const fs::path& path) {
  struct stat status {};
  check(Sys{::fstat(fd, &status)}, "fstat " + path.string());
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t have = 0;
  while (have < text.size()) {
    const long got = check(Sys{::pread(fd, text.data() + have, text.size() - have, static_cast<off_t>(have))},
                           "read " + path.string());
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  text.resize(have);
  return text;
}

void sync_file(int fd, const fs::path& path) { check(Sys{::fsync(fd)}, "fsync " + path.string()); }

void sync_directory(const fs::path& directory) {
  const fs::path& path = directory.empty() ? fs::path(".") : directory;
  const UniqueFd fd(static_cast<int>(
      check(Sys{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)}, "open " + path.string())));
  if (::fsync(fd.get()) == -1 && errno != EINVAL) throw SystemError("fsync " + path.string(), errno);
}

void make_directories(const fs::path& directory) {
  std::error_code error;
  std::vector<fs::path> missing;
  for (fs::path at = directory; !at.empty() && !fs::exists(at, error); at = at.parent_path()) {
    missing.push_back(at);
  }
  fs::create_directories(directory, error);
  if (error == std::errc::not_a_directory || error == std::errc::file_exists) {
    throw UsageError(
        directory.string() +
        ": expected a directory or a free name, found a file in the way; move it or choose another "
        "directory");
  }
  if (error) throw SystemError("create directory " + directory.string(), error.value());
  for (const fs::path& created : missing) sync_directory(created.parent_path());
}

std::string unique_suffix() {
  std::uint64_t number = 0;
  check(Sys{::getrandom(&number, sizeof number, 0)}, "getrandom");
  std::array<char, 17> text;
  std::snprintf(text.data(), text.size(), "%016" PRIx64, number);
  return text.data();
}

void replace_file(const fs::path& path, std::string_view content) {
  TemporaryFile temporary(temporary_name(path));
  const UniqueFd fd = create_file(temporary.path());
  write_all(fd.get(), content, temporary.path());
  sync_file(fd.get(), temporary.path());
  check(Sys{::rename(temporary.path().c_str(), path.c_str())},
        "rename " + temporary.path().string() + " to " + path.string());
  temporary.keep();
  sync_directory(path.parent_path());
}

void check_writable(const fs::path& directory, std::uint64_t bytes_needed) {
  make_directories(directory);
  const TemporaryFile probe(directory / (".probe.tmp" + unique_suffix()));
  const UniqueFd fd = create_file(probe.path());
  write_all(fd.get(), std::string_view("dtrain\n"), probe.path());
  sync_file(fd.get(), probe.path());

  struct statvfs space {};
  check(Sys{::statvfs(directory.c_str(), &space)}, "statvfs " + directory.string());
  const std::uint64_t free_bytes = static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize;
  if (free_bytes < bytes_needed) {
    throw SystemError(directory.string() + ": expected room for " + std::to_string(bytes_needed) +
                          " bytes, found " + std::to_string(free_bytes) +
                          "; free some or choose another directory",
                      ENOSPC);
  }
}

SystemError with_context(const std::string& context, const SystemError& error) {
  const std::string tail = SystemError("", error.error_number()).what();
  std::string text = error.what();
  if (text.ends_with(tail)) text.resize(text.size() - tail.size());
  return SystemError(context + ": " + text, error.error_number());
}

}  // namespace dtrain
