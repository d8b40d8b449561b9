// Walks from header to header. A header and the short members behind it are read in one piece of a few KiB,
// so that an archive costs about one system call for each long member.
#include "runtime/data/formats/tar.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/fd.h"
#include "runtime/data/formats/tar_header.h"
#include "runtime/data/formats/text.h"

namespace dtrain {
namespace {

constexpr std::int64_t kMostExtra = 1 << 20;   // bytes of a pax header or a long name
constexpr std::int64_t kMostSparse = 1 << 30;  // bytes of a sparse file that is read

using Bytes = TarBytes;

/// Where the block behind a member begins.
std::int64_t behind(const TarMember& member) {
  const std::int64_t end = member.pieces.empty() ? member.offset + member.bytes : member.pieces.back().offset;
  return (end + kTarBlock - 1) / kTarBlock * kTarBlock;
}

[[noreturn]] void refuse_map(const std::string& path, std::int64_t offset, const std::string& name) {
  throw DataError(
      path, offset,
      fmt::format("a map of the sparse file {}: pieces in order, within the file, together as long "
                  "as what is stored",
                  printable(name)),
      "something else");
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

void check_sparse(const std::string& path, const TarMember& member) {
  if (member.pieces.empty() || member.bytes <= kMostSparse) return;
  throw DataError(path, member.offset,
                  fmt::format("a sparse file of at most {} bytes with its holes", kMostSparse),
                  fmt::format("{}, which has {}", printable(member.name), member.bytes));
}

std::span<const std::uint8_t> TarReader::read(const TarMember& member) {
  if (member.pieces.empty()) return window_->at(member.offset, member.bytes);
  check_sparse(path_, member);
  filled_.assign(static_cast<std::size_t>(member.bytes), 0);
  for (const TarPiece& piece : member.pieces)
    std::ranges::copy(window_->at(piece.offset, piece.bytes), filled_.begin() + piece.at);
  return filled_;
}

std::optional<TarMember> TarReader::member_at(std::int64_t offset) {
  if (offset < kTarBlock || offset % kTarBlock != 0 || offset > window_->size()) return std::nullopt;
  const Bytes block = window_->at(offset - kTarBlock, kTarBlock);
  const auto kind = static_cast<char>(block[156]);
  const auto bytes = tar_number(block.subspan(124, 12));
  if (!tar_checksum_fits(block) || (kind != '0' && kind != '\0' && kind != '7') || !bytes ||
      *bytes > window_->size() - offset)
    return std::nullopt;
  return TarMember{tar_name(block), offset, *bytes};
}

// Of an old GNU archive: the map begins in the member's own header and continues in blocks behind that.
void TarReader::read_old_map(std::int64_t header, TarMember& member) {
  constexpr std::size_t kEntries = 386, kMore = 482, kSize = 483, kNumber = 12, kMoreAgain = 504;
  SparseMap map;
  const Bytes block = window_->at(header, kTarBlock);
  const auto size = tar_number(block.subspan(kSize, kNumber));
  bool good = size && map.add_entries(block.subspan(kEntries, kMore - kEntries));
  for (bool more = block[kMore] != 0; more && good; member.offset += kTarBlock) {
    const Bytes next = window_->at(member.offset, kTarBlock);
    more = next[kMoreAgain] != 0;
    good = map.add_entries(next.first(kMoreAgain));
  }
  if (!good) refuse_map(path_, header, member.name);
  check_end(header, member);
  auto pieces = map.pieces(member.offset, *size, member.bytes);
  if (!pieces) refuse_map(path_, header, member.name);
  member.bytes = *size;
  member.pieces = *std::move(pieces);
}

// Of a pax archive: the map is in the records before the header, or in front of the content.
void TarReader::read_pax_map(const TarExtras& extras, TarMember& member) {
  const std::int64_t begin = member.offset, end = begin + member.bytes;
  if (!extras.version_known()) {
    throw DataError(
        path_, begin,
        fmt::format("the sparse file {} in GNU's version 0.0, 0.1 or 1.0", printable(member.name)),
        fmt::format("version {}.{}", printable(extras.major), printable(extras.minor)));
  }
  if (!extras.sparse_size)
    throw DataError(path_, begin, fmt::format("the size of the sparse file {}", printable(member.name)),
                    "none");
  SparseMapText text;
  while (extras.map_in_content() && !text.complete()) {
    if (end - member.offset < kTarBlock || !text.add(window_->at(member.offset, kTarBlock)))
      refuse_map(path_, member.offset, member.name);
    member.offset += kTarBlock;
  }
  const SparseMap& map = extras.map_in_content() ? text.map() : extras.map;
  auto pieces = map.pieces(member.offset, *extras.sparse_size, end - member.offset);
  if (!pieces) refuse_map(path_, begin, member.name);
  member.bytes = *extras.sparse_size;
  member.pieces = *std::move(pieces);
}

void TarReader::check_end(std::int64_t header, const TarMember& member) const {
  const std::int64_t left = window_->size() - member.offset;
  if (member.bytes <= left) return;
  throw DataError(path_, header, fmt::format("{} bytes of {}", member.bytes, printable(member.name)),
                  fmt::format("{} until the archive's end", left));
}

void TarReader::read_extras(char kind, const TarMember& member, TarExtras& extras) {
  if (member.bytes > kMostExtra) {
    throw DataError(path_, member.offset, "a long name or a pax header of at most 1 MiB",
                    fmt::format("{} bytes", member.bytes));
  }
  const Bytes content = read(member);
  const std::string_view words(reinterpret_cast<const char*>(content.data()), content.size());
  if (kind == 'L') {
    extras.name = std::string(words.substr(0, words.find('\0')));
    return;
  }
  const std::string_view wrong = extras.add(words);
  if (!wrong.empty())
    throw DataError(path_, member.offset, "records of a pax header", printable(wrong.substr(0, 60)));
}

void TarReader::for_each(const std::function<void(const TarMember&)>& visit) {
  TarExtras extras;
  for (std::int64_t at = 0; at < window_->size();) {
    const Bytes block = window_->at(at, kTarBlock);
    if (std::ranges::all_of(block, [](std::uint8_t byte) { return byte == 0; })) return;
    if (!tar_checksum_fits(block))
      throw DataError(path_, at, "a header of a tar archive", "a wrong checksum");
    const auto kind = static_cast<char>(block[156]);
    const auto bytes = tar_number(block.subspan(124, 12));
    if (!bytes) throw DataError(path_, at, "the size of a member", "no number");
    const bool is_more = kind == 'L' || kind == 'x' || kind == 'X';  // X: Solaris's x
    TarMember member{extras.sparse_name ? *extras.sparse_name : extras.name.value_or(tar_name(block)),
                     at + kTarBlock, *bytes};
    if (extras.bytes && !is_more) member.bytes = *extras.bytes;
    check_end(at, member);
    if (is_more) read_extras(kind, member, extras);
    const bool is_regular = kind == '0' || kind == '\0' || kind == '7' || kind == 'S';
    if (kind == 'S') {
      read_old_map(at, member);
    } else if (is_regular && extras.sparse) {
      read_pax_map(extras, member);
    }
    if (is_regular && !member.name.ends_with('/')) visit(member);
    at = behind(member);
    if (!is_more && kind != 'K' && kind != 'g') extras = {};
  }
}

}  // namespace dtrain
