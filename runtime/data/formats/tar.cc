// Walks from header to header. A header and the short members behind it are read in one piece of a few KiB,
// so that an archive costs about one system call for each long member.
#include "runtime/data/formats/tar.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/fd.h"
#include "runtime/data/formats/text.h"

namespace dtrain {
namespace {

constexpr std::int64_t kBlock = 512;
constexpr std::int64_t kMostName = 1 << 20;  // bytes of a pax header or a long name

using Bytes = std::span<const std::uint8_t>;

std::string_view text(Bytes block, std::size_t at, std::size_t length) {
  const std::string_view field(reinterpret_cast<const char*>(block.data()) + at, length);
  return field.substr(0, field.find('\0'));
}

/// Octal digits, or, where the first bit is set, a number of the base 256. Nothing where it is neither.
std::optional<std::int64_t> number(Bytes block, std::size_t at, std::size_t length) {
  if ((block[at] & 0x80) != 0) {
    std::uint64_t value = block[at] & 0x7f;
    for (std::size_t i = 1; i < length; ++i) {
      if (value >> 55 != 0) return std::nullopt;
      value = value << 8 | block[at + i];
    }
    return static_cast<std::int64_t>(value);
  }
  std::string_view digits = text(block, at, length);
  while (digits.starts_with(' ')) digits.remove_prefix(1);
  while (digits.ends_with(' ')) digits.remove_suffix(1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 8);
  if (digits.empty()) return 0;
  if (error != std::errc() || end != digits.data() + digits.size() || value < 0) return std::nullopt;
  return value;
}

/// The header's own checksum, its field counted as blanks.
bool checksum_fits(Bytes block) {
  constexpr std::size_t kAt = 148, kLength = 8;
  std::int64_t sum = 0, signed_sum = 0;  // some old programs added signed bytes
  for (std::size_t i = 0; i < block.size(); ++i) {
    const std::uint8_t byte = i >= kAt && i < kAt + kLength ? ' ' : block[i];
    sum += byte;
    signed_sum += static_cast<std::int8_t>(byte);
  }
  const auto expected = number(block, kAt, kLength);
  return expected && (*expected == sum || *expected == signed_sum);
}

/// What precedes a member's own header and says more about it.
struct Extras {
  std::optional<std::string> name;
  std::optional<std::int64_t> bytes;
  bool sparse = false;
};

/// Records "LENGTH KEY=VALUE\n". False where one is none.
bool read_pax(std::string_view records, Extras& extras) {
  while (!records.empty()) {
    std::size_t length = 0;
    const auto [end, error] = std::from_chars(records.data(), records.data() + records.size(), length);
    const auto digits = static_cast<std::size_t>(end - records.data());
    if (error != std::errc() || length > records.size() || length < digits + 3 || *end != ' ' ||
        records[length - 1] != '\n')
      return false;
    const std::string_view record = records.substr(digits + 1, length - digits - 2);
    const std::size_t equals = record.find('=');
    if (equals == std::string_view::npos) return false;
    const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
    if (key == "path") extras.name = value;
    if (key.starts_with("GNU.sparse.")) extras.sparse = true;
    if (key == "size") {
      std::int64_t bytes = 0;
      const auto [last, wrong] = std::from_chars(value.data(), value.data() + value.size(), bytes);
      if (wrong != std::errc() || last != value.data() + value.size() || bytes < 0) return false;
      extras.bytes = bytes;
    }
    records.remove_prefix(length);
  }
  return true;
}

std::string name_of(Bytes block) {
  std::string name(text(block, 0, 100));
  const bool is_ustar = std::memcmp(block.data() + 257, "ustar\0", 6) == 0;
  const std::string_view prefix = is_ustar ? text(block, 345, 155) : std::string_view();
  return prefix.empty() ? name : std::string(prefix) + "/" + name;
}

}  // namespace

/// A stretch of the file in memory.
class TarReader::Window {
 public:
  explicit Window(const std::string& path) : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (!file_ && errno == ENOENT) throw DataError(path, -1, "a tar archive", "no such file");
    if (!file_) throw SystemError("open " + path, errno);
    struct stat status {};
    if (::fstat(file_.get(), &status) != 0) throw SystemError("stat " + path, errno);
    if (!S_ISREG(status.st_mode)) throw DataError(path, -1, "a tar archive", "something that is not a file");
    size_ = status.st_size;
  }

  std::int64_t size() const noexcept { return size_; }
  /// `count` bytes from `offset` on. Throws DataError where the file has fewer.
  Bytes at(std::int64_t offset, std::int64_t count) {
    if (offset < begin_ || offset + count > begin_ + static_cast<std::int64_t>(bytes_.size())) {
      bytes_.resize(static_cast<std::size_t>(std::max(count, kPiece)));
      begin_ = offset;
      bytes_.resize(fill());
    }
    if (offset + count > begin_ + static_cast<std::int64_t>(bytes_.size()))
      throw DataError(path_, offset, fmt::format("{} more bytes of the archive", count), "its end");
    return Bytes(bytes_).subspan(static_cast<std::size_t>(offset - begin_), static_cast<std::size_t>(count));
  }

 private:
  static constexpr std::int64_t kPiece = 4096;

  std::size_t fill() {
    std::size_t done = 0;
    while (done < bytes_.size()) {
      const ssize_t count = ::pread(file_.get(), bytes_.data() + done, bytes_.size() - done,
                                    begin_ + static_cast<std::int64_t>(done));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw SystemError("read " + path_, errno);
      if (count == 0) break;
      done += static_cast<std::size_t>(count);
    }
    return done;
  }

  std::string path_;
  UniqueFd file_;
  std::int64_t size_ = 0, begin_ = 0;
  std::vector<std::uint8_t> bytes_;
};

TarReader::TarReader(std::string path) : path_(std::move(path)), window_(std::make_unique<Window>(path_)) {
  const Bytes begin = window_->at(0, std::min<std::int64_t>(window_->size(), 6));
  const auto starts = [&](std::string_view magic) {
    return begin.size() >= magic.size() && std::memcmp(begin.data(), magic.data(), magic.size()) == 0;
  };
  const char* const how = starts("\x1f\x8b")           ? "gzip"
                          : starts("\x28\xb5\x2f\xfd") ? "zstd"
                          : starts(
                                "\xfd"
                                "7zXZ")
                              ? "xz"
                          : starts("BZh") ? "bzip2"
                                          : nullptr;
  if (how != nullptr) {
    throw DataError(path_, 0,
                    "a tar archive that is not compressed, as samples are read from any place in it",
                    fmt::format("one compressed by {}; unpack it; images hardly compress anyway", how));
  }
}

TarReader::~TarReader() = default;

std::span<const std::uint8_t> TarReader::read(const TarMember& member) {
  return window_->at(member.offset, member.bytes);
}

std::optional<TarMember> TarReader::member_at(std::int64_t offset) {
  if (offset < kBlock || offset % kBlock != 0 || offset > window_->size()) return std::nullopt;
  const Bytes block = window_->at(offset - kBlock, kBlock);
  const auto kind = static_cast<char>(block[156]);
  const auto bytes = number(block, 124, 12);
  if (!checksum_fits(block) || (kind != '0' && kind != '\0' && kind != '7') || !bytes ||
      *bytes > window_->size() - offset)
    return std::nullopt;
  return TarMember{name_of(block), offset, *bytes};
}

void TarReader::for_each(const std::function<void(const TarMember&)>& visit) {
  Extras extras;
  for (std::int64_t at = 0; at < window_->size();) {
    const Bytes block = window_->at(at, kBlock);
    if (std::ranges::all_of(block, [](std::uint8_t byte) { return byte == 0; })) return;
    if (!checksum_fits(block)) throw DataError(path_, at, "a header of a tar archive", "a wrong checksum");
    const auto kind = static_cast<char>(block[156]);
    const auto bytes = number(block, 124, 12);
    if (!bytes) throw DataError(path_, at, "the size of a member", "no number");
    const bool about_the_next = kind == 'L' || kind == 'x';
    TarMember member{extras.name.value_or(name_of(block)), at + kBlock, *bytes};
    if (extras.bytes && !about_the_next) member.bytes = *extras.bytes;
    if (member.bytes > window_->size() - member.offset) {
      throw DataError(path_, at, fmt::format("{} bytes of {}", member.bytes, printable(member.name)),
                      fmt::format("{} until the archive's end", window_->size() - member.offset));
    }
    at = member.offset + (member.bytes + kBlock - 1) / kBlock * kBlock;
    if (about_the_next) {
      if (member.bytes > kMostName)
        throw DataError(path_, member.offset, "a long name of at most 1 MiB", std::to_string(member.bytes));
      const Bytes content = read(member);
      const std::string_view words(reinterpret_cast<const char*>(content.data()), content.size());
      if (kind == 'L') extras.name = std::string(words.substr(0, words.find('\0')));
      if (kind == 'x' && !read_pax(words, extras))
        throw DataError(path_, member.offset, "records of a pax header", "something else");
      continue;
    }
    if (kind == 'K' || kind == 'g') continue;
    const bool is_regular = kind == '0' || kind == '\0' || kind == '7';
    if (kind == 'S' || (is_regular && extras.sparse)) {
      throw DataError(
          path_, member.offset, "members that lie in one piece",
          fmt::format("the sparse file {}; pack it with its holes filled", printable(member.name)));
    }
    if (is_regular && !member.name.ends_with('/')) visit(member);
    extras = {};
  }
}

}  // namespace dtrain
