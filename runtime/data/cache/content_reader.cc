// Front-to-back reading with zlib. A gzip file may have several members, one after the other; their contents
// are joined, as gzip does.
#include "runtime/data/cache/content_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "runtime/base/check.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr std::size_t kBufferBytes = 256 << 10;
constexpr std::uint64_t kMaxDeflateRatio = 1032;
constexpr std::uint8_t kGzipMagic[2] = {0x1f, 0x8b};
constexpr int kGzipWindow = 15 + 16;  // zlib: 32 KiB window, gzip wrapper

std::size_t read_at(int fd, std::uint64_t offset, void* out, std::size_t bytes, const std::string& path) {
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t got =
        ::pread(fd, static_cast<char*>(out) + done, bytes - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) break;
    done += static_cast<std::size_t>(check(Sys{got}, "read " + path));
  }
  return done;
}

std::string resolved(const std::string& path) {
  char* real = ::realpath(path.c_str(), nullptr);
  if (real == nullptr) return path;
  std::string result(real);
  std::free(real);
  return result;
}

}  // namespace

struct ContentReader::Inflater {
  Inflater() {
    if (::inflateInit2(&stream, kGzipWindow) != Z_OK) throw Error("zlib: inflateInit2 failed: out of memory");
  }
  ~Inflater() { ::inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  /// Where in the file the next byte that zlib looks at is.
  std::int64_t file_offset() const noexcept { return static_cast<std::int64_t>(loaded - stream.avail_in); }

  z_stream stream{};
  std::array<std::uint8_t, kBufferBytes> buffer;
  std::uint64_t loaded = 0;  // bytes of the file read into the buffer so far
  bool ended = false;
};

ContentReader::ContentReader(const std::string& path, const std::string& purpose) : path_(path) {
  fd_.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd_) throw DataError(path, -1, purpose, std::generic_category().message(errno));
  identify();
  std::uint8_t magic[2] = {};
  if (read_at(fd_.get(), 0, magic, sizeof magic, path_) == sizeof magic &&
      std::memcmp(magic, kGzipMagic, sizeof magic) == 0) {
    inflater_ = std::make_unique<Inflater>();
  }
}

ContentReader::~ContentReader() = default;

void ContentReader::identify() {
  struct stat info {};
  check(Sys{::fstat(fd_.get(), &info)}, "fstat " + path_);
  if (!S_ISREG(info.st_mode)) {
    throw DataError(path_, -1, "a regular file", S_ISDIR(info.st_mode) ? "a directory" : "a special file");
  }
  identity_.path = resolved(path_);
  identity_.size_bytes = static_cast<std::uint64_t>(info.st_size);
  identity_.mtime_ns = static_cast<std::int64_t>(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec;
  if (identity_.size_bytes >= sizeof identity_.tail) {
    read_at(fd_.get(), identity_.size_bytes - sizeof identity_.tail, &identity_.tail, sizeof identity_.tail,
            path_);
  }
}

std::uint64_t ContentReader::max_content_bytes() const noexcept {
  if (!compressed()) return identity_.size_bytes;
  std::uint64_t bound = 0;
  return __builtin_mul_overflow(identity_.size_bytes, kMaxDeflateRatio, &bound) ? UINT64_MAX : bound;
}

std::size_t ContentReader::read(std::span<std::uint8_t> out) {
  const std::size_t got = compressed() ? read_inflated(out) : read_plain(out);
  position_ += got;
  return got;
}

std::size_t ContentReader::read_plain(std::span<std::uint8_t> out) {
  return read_at(fd_.get(), position_, out.data(), out.size(), path_);
}

// Loads the next piece of the file; false at its end.
bool ContentReader::refill() {
  auto& in = *inflater_;
  const std::size_t got = read_at(fd_.get(), in.loaded, in.buffer.data(), in.buffer.size(), path_);
  in.loaded += got;
  in.stream.next_in = in.buffer.data();
  in.stream.avail_in = static_cast<uInt>(got);
  return got > 0;
}

// Called where a member ended: true when another one follows, false at the end of the file.
bool ContentReader::next_member() {
  auto& in = *inflater_;
  if (in.stream.avail_in == 0 && !refill()) return false;
  if (*in.stream.next_in != kGzipMagic[0]) {
    throw DataError(path_, in.file_offset(), "the end of the file or another gzip member",
                    std::to_string(file_bytes() - static_cast<std::uint64_t>(in.file_offset())) +
                        " bytes of something else");
  }
  return ::inflateReset(&in.stream) == Z_OK;
}

std::size_t ContentReader::read_inflated(std::span<std::uint8_t> out) {
  auto& in = *inflater_;
  std::size_t done = 0;
  while (done < out.size() && !in.ended) {
    if (in.stream.avail_in == 0 && !refill()) {
      throw DataError(path_, in.file_offset(), "more gzip data", "the end of the file");
    }
    const auto piece = static_cast<uInt>(std::min<std::size_t>(out.size() - done, INT_MAX));
    in.stream.next_out = out.data() + done;
    in.stream.avail_out = piece;
    const int code = ::inflate(&in.stream, Z_NO_FLUSH);
    done += piece - in.stream.avail_out;
    if (code == Z_STREAM_END) {
      in.ended = !next_member();
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
      throw DataError(path_, in.file_offset(), "intact gzip data",
                      in.stream.msg != nullptr ? in.stream.msg : "zlib error " + std::to_string(code));
    }
  }
  return done;
}

}  // namespace dtrain
