// Format: kHeaderBytes of text padded with NUL, then the content. The entry's modification time is set to its
// source's when it is written: as long as it still has it, nobody wrote into the file and the checksum need
// not be computed again.
#include "runtime/data/cache/cache_entry.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <zlib.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <system_error>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/fd.h"

namespace dtrain::cache {
namespace {

constexpr std::size_t kHeaderBytes = 4096;
constexpr std::size_t kChunkBytes = 256 << 10;

std::string identity_text(const SourceIdentity& source) {
  return fmt::format(
      "dtrain data cache 1\nsource {}\nsource_bytes {}\nsource_mtime_ns {}\nsource_tail {:016x}\n",
      source.path, source.size_bytes, source.mtime_ns, source.tail);
}

std::uint32_t crc_of(std::span<const std::uint8_t> bytes, std::uint32_t crc = 0) {
  return static_cast<std::uint32_t>(::crc32_z(crc, bytes.data(), bytes.size()));
}

std::string header_text(const SourceIdentity& source, std::uint64_t content_bytes,
                        std::uint32_t content_crc) {
  std::string text = identity_text(source) +
                     fmt::format("content_bytes {}\ncontent_crc32 {:08x}\n", content_bytes, content_crc);
  const std::span body(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  text += fmt::format("header_crc32 {:08x}\n", crc_of(body));
  if (text.size() > kHeaderBytes)
    throw CacheError("the source's path is too long for the header of a cache entry");
  text.resize(kHeaderBytes, '\0');
  return text;
}

// Reads "<name> <number>\n" at the front of `text` and drops it; false when it is not there.
template <class Number>
bool take_line(std::string_view& text, std::string_view name, int base, Number& value) {
  if (!text.starts_with(name)) return false;
  const char* const end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data() + name.size(), end, value, base);
  if (problem != std::errc{} || stop == end || *stop != '\n') return false;
  text.remove_prefix(static_cast<std::size_t>(stop + 1 - text.data()));
  return true;
}

[[noreturn]] void fail(const std::string& what) {
  throw CacheError(what + ": " + std::generic_category().message(errno));
}

timespec to_timespec(std::int64_t ns) {
  timespec time{};
  time.tv_sec = ns / 1'000'000'000;
  time.tv_nsec = ns % 1'000'000'000;
  if (time.tv_nsec < 0) {
    time.tv_nsec += 1'000'000'000;
    --time.tv_sec;
  }
  return time;
}

bool same_time(const timespec& a, const timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

bool stamp(int fd, const SourceIdentity& source) {
  const timespec times[2] = {{0, UTIME_OMIT}, to_timespec(source.mtime_ns)};
  return ::futimens(fd, times) == 0;
}

// Only our own files, or root's, that nobody else can write.
bool trusted(const struct stat& info) {
  const bool owner = info.st_uid == ::geteuid() || info.st_uid == 0;
  return S_ISREG(info.st_mode) && owner && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

struct Header {
  std::uint64_t content_bytes = 0;
  std::uint32_t content_crc = 0;
};

// Parses and verifies the header against the very text that this source would get.
std::optional<Header> parse_header(std::span<const std::uint8_t> page, const SourceIdentity& source) {
  std::string_view text(reinterpret_cast<const char*>(page.data()), page.size());
  const std::string identity = identity_text(source);
  if (!text.starts_with(identity)) return std::nullopt;
  text.remove_prefix(identity.size());
  Header header;
  if (!take_line(text, "content_bytes ", 10, header.content_bytes)) return std::nullopt;
  if (!take_line(text, "content_crc32 ", 16, header.content_crc)) return std::nullopt;
  const std::string expected = header_text(source, header.content_bytes, header.content_crc);
  if (std::memcmp(expected.data(), page.data(), kHeaderBytes) != 0) return std::nullopt;
  return header;
}

// A file under a temporary name that is removed unless it was renamed.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& final_path)
      : name_(final_path.string() + ".tmp-XXXXXX") {
    fd_.reset(::mkostemp(name_.data(), O_CLOEXEC));
    if (!fd_) fail("create " + name_);
  }
  ~TemporaryFile() {
    if (!kept_) ::unlink(name_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  int fd() const noexcept { return fd_.get(); }

  void write_at(std::uint64_t offset, const void* data, std::size_t bytes) {
    std::size_t done = 0;
    while (done < bytes) {
      const ssize_t wrote = ::pwrite(fd(), static_cast<const char*>(data) + done, bytes - done,
                                     static_cast<off_t>(offset + done));
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) fail("write " + name_);
      done += static_cast<std::size_t>(wrote);
    }
  }

  void rename_to(const std::filesystem::path& path) {
    if (::fsync(fd()) != 0) fail("fsync " + name_);
    if (::rename(name_.c_str(), path.c_str()) != 0) fail("rename " + name_);
    kept_ = true;
    const UniqueFd folder(::open(path.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder) ::fsync(folder.get());
  }

 private:
  std::string name_;
  UniqueFd fd_;
  bool kept_ = false;
};

}  // namespace

std::string entry_name(const SourceIdentity& source) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a, 64 bit
  for (const char c : identity_text(source)) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return fmt::format("{}-{:016x}", std::filesystem::path(source.path).stem().string(), hash);
}

std::optional<Content> open_entry(const std::filesystem::path& path, const SourceIdentity& source,
                                  Refusal& refusal) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) {
    if (errno != ENOENT) refusal.reason = std::generic_category().message(errno);
    return std::nullopt;
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0 || !trusted(info)) {
    refusal.reason = "it belongs to another user or others may write to it";
    return std::nullopt;
  }
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size <= kHeaderBytes) {
    refusal.reason = "it is cut short";
    return std::nullopt;
  }
  const Content whole(fd.get(), static_cast<std::size_t>(size), path.string());
  const auto header = parse_header(whole.read(0, kHeaderBytes), source);
  if (!header || header->content_bytes != size - kHeaderBytes) {
    refusal.reason = "its header is damaged or its size is not what the header says";
    return std::nullopt;
  }
  Content content = whole.from(kHeaderBytes);
  if (!same_time(info.st_mtim, to_timespec(source.mtime_ns))) {
    std::uint32_t crc = 0;
    content.for_each_piece(
        [&](std::size_t, std::span<const std::uint8_t> piece) { crc = crc_of(piece, crc); });
    if (crc != header->content_crc) {
      refusal.reason = "its checksum is wrong";
      return std::nullopt;
    }
    stamp(fd.get(), source);  // best effort: saves the next start the checksum
  }
  return content;
}

void write_entry(const std::filesystem::path& path, const SourceIdentity& source, std::uint64_t content_bytes,
                 const std::function<std::size_t(std::span<std::uint8_t>)>& produce) {
  TemporaryFile file(path);
  const auto total = static_cast<off_t>(kHeaderBytes + content_bytes);
  errno = ::posix_fallocate(file.fd(), 0, total);
  if (errno != 0) fail(fmt::format("reserve {} bytes for {}", total, path.string()));
  std::vector<std::uint8_t> chunk(kChunkBytes);
  std::uint64_t done = 0;
  std::uint32_t crc = 0;
  while (done < content_bytes) {
    const auto want = static_cast<std::size_t>(std::min<std::uint64_t>(chunk.size(), content_bytes - done));
    const std::size_t got = produce(std::span(chunk).first(want));
    crc = crc_of(std::span(chunk).first(got), crc);
    file.write_at(kHeaderBytes + done, chunk.data(), got);
    done += got;
    if (got < want)
      throw CacheError(fmt::format("expected {} bytes of content, got {}", content_bytes, done));
  }
  const std::string header = header_text(source, content_bytes, crc);
  file.write_at(0, header.data(), header.size());
  if (!stamp(file.fd(), source)) fail("set the time of " + path.string());
  file.rename_to(path);
}

}  // namespace dtrain::cache
