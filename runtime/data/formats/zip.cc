// From the end of the file to its directory, from there to each member's own header and content.
#include "runtime/data/formats/zip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <climits>
#include <memory>
#include <optional>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/data/formats/text.h"

namespace dtrain {
namespace {

using Bytes = std::span<const std::uint8_t>;

// Sizes of the records without what varies, and their signatures.
constexpr std::uint64_t kEndBytes = 22, kEndComment = 65535, kLocatorBytes = 20, kEnd64Bytes = 56;
constexpr std::uint64_t kEntryBytes = 46, kHeaderBytes = 30;
constexpr std::uint32_t kEndMark = 0x06054b50, kLocatorMark = 0x07064b50, kEnd64Mark = 0x06064b50;
constexpr std::uint32_t kEntryMark = 0x02014b50, kHeaderMark = 0x04034b50;
constexpr std::uint16_t kExtra64 = 1, kEncrypted = 1, kStored = 0, kDeflated = 8;
constexpr std::uint64_t kMostDirectory = 64 << 20;
constexpr std::uint64_t kMostVerified = 1ULL << 30;  // as the numbers of arrays that are looked through
constexpr std::uint64_t kMaxDeflateRatio = 1032;

template <class T>
T number(Bytes bytes, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = sizeof(T); i-- > 0;) value = value << 8 | bytes[at + i];
  return static_cast<T>(value);
}

/// What a field of 32 bits that is full leaves to the record of 64-bit sizes, in the order in which they
/// stand there; false where that is missing or short.
bool read_extra64(Bytes extra, std::initializer_list<std::uint64_t*> sizes) {
  const auto full = [](const std::uint64_t* size) { return *size == UINT32_MAX; };
  if (std::none_of(sizes.begin(), sizes.end(), full)) return true;
  while (extra.size() >= 4) {
    const auto kind = number<std::uint16_t>(extra, 0), length = number<std::uint16_t>(extra, 2);
    if (extra.size() - 4 < length) return false;
    Bytes content = extra.subspan(4, length);
    extra = extra.subspan(4 + std::size_t{length});
    if (kind != kExtra64) continue;
    for (std::uint64_t* const size : sizes) {
      if (!full(size)) continue;
      if (content.size() < 8) return false;
      *size = number<std::uint64_t>(content, 0);
      content = content.subspan(8);
    }
    return true;
  }
  return false;
}

}  // namespace

/// Where the list of members lies, which ends behind it at the latest.
struct ZipArchive::Directory {
  std::uint64_t begin = 0, bytes = 0, entries = 0, end = 0;
};

void ZipArchive::refuse(std::uint64_t offset, const std::string& expected, const std::string& found) const {
  throw DataError(path_, static_cast<std::int64_t>(offset), expected, found);
}

ZipArchive::ZipArchive(Content file, std::string path) : file_(std::move(file)), path_(std::move(path)) {
  const Directory directory = find_directory();
  if (directory.bytes > kMostDirectory)
    refuse(directory.end, fmt::format("a directory of at most {} bytes", kMostDirectory),
           std::to_string(directory.bytes));
  if (directory.begin > directory.end || directory.bytes > directory.end - directory.begin) {
    refuse(directory.end, fmt::format("a directory within the {} bytes before its end", directory.end),
           fmt::format("{} bytes from {} on", directory.bytes, directory.begin));
  }
  directory_begin_ = directory.begin;
  read_directory(directory);
}

ZipArchive::Directory ZipArchive::find_directory() const {
  const std::uint64_t size = file_.size(), most = std::min(size, kEndBytes + kEndComment);
  const std::uint64_t from = size - most;
  const Bytes tail = file_.read(from, most);
  std::optional<std::uint64_t> at;
  for (std::uint64_t i = most < kEndBytes ? 0 : most - kEndBytes + 1; i-- > 0 && !at;) {
    if (number<std::uint32_t>(tail, i) == kEndMark &&
        i + kEndBytes + number<std::uint16_t>(tail, i + 20) == most)
      at = i;
  }
  if (!at) refuse(size, "the directory of a zip archive, as .npz files end", "the end of the file");
  const Bytes end = tail.subspan(*at, kEndBytes);
  Directory found{number<std::uint32_t>(end, 16), number<std::uint32_t>(end, 12),
                  number<std::uint16_t>(end, 10), from + *at};
  if (found.begin != UINT32_MAX && found.bytes != UINT32_MAX && found.entries != UINT16_MAX) return found;
  // Each may be full, or have just this value: then there is no other record.
  if (found.end < kLocatorBytes) return found;
  const Bytes locator = file_.read(found.end - kLocatorBytes, kLocatorBytes);
  if (number<std::uint32_t>(locator, 0) != kLocatorMark) return found;
  const auto begin = number<std::uint64_t>(locator, 8);
  const std::uint64_t before = found.end - kLocatorBytes;
  if (before < kEnd64Bytes || begin > before - kEnd64Bytes)
    refuse(before + 8, fmt::format("the place of a record of {} bytes before this one", kEnd64Bytes),
           std::to_string(begin));
  const Bytes record = file_.read(begin, kEnd64Bytes);
  if (number<std::uint32_t>(record, 0) != kEnd64Mark)
    refuse(begin, "the end of a zip archive's directory, with 64-bit sizes", "something else");
  return {number<std::uint64_t>(record, 48), number<std::uint64_t>(record, 40),
          number<std::uint64_t>(record, 32), begin};
}

void ZipArchive::read_directory(const Directory& directory) {
  const Bytes all = file_.read(directory.begin, directory.bytes);
  std::uint64_t at = 0;
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    const std::uint64_t offset = directory.begin + at, left = directory.bytes - at;
    if (left < kEntryBytes || number<std::uint32_t>(all, at) != kEntryMark) {
      refuse(offset, fmt::format("member {} of {} of the directory", i + 1, directory.entries),
             left < kEntryBytes ? "the directory's end" : "something else");
    }
    const Bytes entry = all.subspan(at);
    const std::size_t name = number<std::uint16_t>(entry, 28), extra = number<std::uint16_t>(entry, 30),
                      comment = number<std::uint16_t>(entry, 32);
    if (left - kEntryBytes < name + extra + comment)
      refuse(offset, "a whole entry of the directory", "the directory's end");
    ZipMember member{.name = std::string(reinterpret_cast<const char*>(entry.data()) + kEntryBytes, name),
                     .header = number<std::uint32_t>(entry, 42),
                     .stored_bytes = number<std::uint32_t>(entry, 20),
                     .bytes = number<std::uint32_t>(entry, 24),
                     .crc = number<std::uint32_t>(entry, 16)};
    const std::string shown = printable(member.name);
    if (!read_extra64(entry.subspan(kEntryBytes + name, extra),
                      {&member.bytes, &member.stored_bytes, &member.header}))
      refuse(offset, fmt::format("64-bit sizes of {}", shown), "none");
    if ((number<std::uint16_t>(entry, 8) & kEncrypted) != 0)
      refuse(offset + 8, fmt::format("{} without encryption", shown), "an encrypted member");
    const auto method = number<std::uint16_t>(entry, 10);
    if (method != kStored && method != kDeflated) {
      refuse(offset + 10, fmt::format("{} stored or deflated, as numpy.savez and savez_compressed do", shown),
             fmt::format("method {}", method));
    }
    member.deflated = method == kDeflated;
    if (!member.deflated && member.bytes != member.stored_bytes) {
      refuse(offset + 20, fmt::format("{} stored bytes of {}", member.bytes, shown),
             std::to_string(member.stored_bytes));
    }
    members_.push_back(std::move(member));
    at += kEntryBytes + name + extra + comment;
  }
}

Content ZipArchive::open(const ZipMember& member) const {
  const std::string shown = printable(member.name);
  const std::uint64_t header = member.header;
  if (header > directory_begin_ || directory_begin_ - header < kHeaderBytes)
    refuse(std::min<std::uint64_t>(header, file_.size()), fmt::format("the header of {}", shown),
           "the directory or the end of the file");
  const Bytes front = file_.read(header, kHeaderBytes);
  if (number<std::uint32_t>(front, 0) != kHeaderMark)
    refuse(header, fmt::format("the header of {}", shown), "something else");
  const std::uint64_t name = number<std::uint16_t>(front, 26),
                      begin = header + kHeaderBytes + name + number<std::uint16_t>(front, 28);
  if (begin > directory_begin_ || directory_begin_ - begin < member.stored_bytes) {
    refuse(header,
           fmt::format("{} bytes of {} before the directory at {}", member.stored_bytes, shown,
                       directory_begin_),
           fmt::format("a beginning at {}", begin));
  }
  const Bytes own = file_.read(header + kHeaderBytes, name);
  if (!std::ranges::equal(
          own, Bytes(reinterpret_cast<const std::uint8_t*>(member.name.data()), member.name.size())))
    refuse(header + kHeaderBytes, fmt::format("the name {}", shown), "another one");
  const Content stored = file_.from(begin).first(member.stored_bytes);
  const Content content = member.deflated ? inflate(member, stored) : stored;
  if (!member.deflated && member.bytes > kMostVerified) return content;
  uLong crc = ::crc32(0, nullptr, 0);
  content.for_each_piece([&](std::size_t, Bytes piece) { crc = ::crc32_z(crc, piece.data(), piece.size()); });
  if (crc != member.crc) {
    refuse(begin, fmt::format("content of {} with the checksum {:08x}", shown, member.crc),
           fmt::format("{:08x}; the file is damaged", crc));
  }
  return content;
}

Content ZipArchive::inflate(const ZipMember& member, const Content& stored) const {
  const std::string shown = printable(member.name);
  if (member.bytes / kMaxDeflateRatio > member.stored_bytes) {
    refuse(member.header,
           fmt::format("at most {} bytes of {}, {} times as many as are stored",
                       member.stored_bytes * kMaxDeflateRatio, shown, kMaxDeflateRatio),
           std::to_string(member.bytes));
  }
  z_stream stream{};
  if (::inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw Error("zlib: inflateInit2 failed: out of memory");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> ended(&stream, &::inflateEnd);
  auto inflated = std::make_shared<std::vector<std::uint8_t>>(member.bytes);
  const auto offset_of = [&](std::uint64_t read) { return member.header + read; };
  std::uint8_t beyond = 0;  // one more byte than expected is an error
  std::size_t done = 0;
  int code = Z_OK;
  stored.for_each_piece([&](std::size_t at, Bytes piece) {
    stream.next_in = const_cast<std::uint8_t*>(piece.data());
    stream.avail_in = static_cast<uInt>(piece.size());
    // An output that is full may have more behind it, or the end.
    while (code == Z_OK && (stream.avail_in > 0 || stream.avail_out == 0)) {
      const std::size_t left = inflated->size() - done;
      const auto room = static_cast<uInt>(std::min<std::size_t>(left, INT_MAX));
      stream.next_out = room > 0 ? inflated->data() + done : &beyond;
      stream.avail_out = std::max<uInt>(room, 1);
      const uInt given = stream.avail_out;
      code = ::inflate(&stream, Z_NO_FLUSH);
      const std::size_t got = given - stream.avail_out;
      if (got > left) refuse(offset_of(at), fmt::format("{} bytes of {}", member.bytes, shown), "more");
      done += got;
      if (code != Z_BUF_ERROR) continue;
      code = Z_OK;
      break;
    }
    if (code == Z_STREAM_END && (stream.avail_in > 0 || at + piece.size() < stored.size()))
      refuse(offset_of(at), fmt::format("{} deflated bytes of {}", stored.size(), shown), "fewer");
    if (code != Z_OK && code != Z_STREAM_END) {
      refuse(offset_of(at), fmt::format("intact deflated data of {}", shown),
             stream.msg != nullptr ? stream.msg : fmt::format("zlib error {}", code));
    }
  });
  if (code != Z_STREAM_END || done != inflated->size())
    refuse(offset_of(stored.size()), fmt::format("{} bytes of {}", member.bytes, shown),
           fmt::format("the end of its data after {}", done));
  const Bytes all = *inflated;
  return {std::move(inflated), all};
}

}  // namespace dtrain
