#include "tests/fuzz/targets_pictures.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/base/fd.h"
#include "runtime/data/formats/tar.h"
#include "runtime/data/formats/tar_writer.h"
#include "runtime/data/images/decode.h"
#include "runtime/data/images/encode.h"
#include "runtime/data/images/files/orientation.h"
#include "runtime/data/images/files/wds_index.h"
#include "tests/fuzz/require.h"

namespace dtrain::fuzz {
namespace {

/// Every pixel of what was decoded, so that a sanitizer sees those nobody wrote.
unsigned sum_of(const PictureView& view) {
  unsigned sum = 0;
  for (int y = 0; y < view.height; ++y) {
    for (int i = 0; i < 3 * view.width; ++i) sum += view.row(y)[i];
  }
  return sum;
}

/// Makes the checksum of each header right, behind which nothing would be tried otherwise.
std::string with_checksums(std::string archive) {
  for (std::size_t at = 0; at + 512 <= archive.size(); at += 512) {
    if (archive.compare(at + 257, 5, "ustar") != 0) continue;
    archive.replace(at + 148, 8, 8, ' ');
    unsigned sum = 0;
    for (std::size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(archive[at + i]);
    archive.replace(at + 148, 7, fmt::format("{:06o}", sum) + '\0');
  }
  return archive;
}

/// Whether the sparse file `member`, whose pieces must be in order in the archive and in the file, is short
/// enough to be read for each input.
bool has_sound_pieces(const TarMember& member) {
  constexpr std::int64_t kMostBytes = 1 << 20;
  std::int64_t offset = member.offset, at = 0;
  for (const TarPiece& piece : member.pieces) {
    require(piece.offset == offset, "a sparse file's pieces follow each other in the archive");
    require(piece.at >= at && piece.bytes >= 0 && piece.bytes <= member.bytes - piece.at,
            "a sparse file's pieces are in order and within the file");
    offset += piece.bytes;
    at = piece.at + piece.bytes;
  }
  require(at == member.bytes, "the last piece ends a sparse file");
  return member.bytes <= kMostBytes;
}

void require_content(TarReader& reader, const TarMember& member, const std::string& archive) {
  std::string expected = member.pieces.empty() ? archive.substr(static_cast<std::size_t>(member.offset),
                                                                static_cast<std::size_t>(member.bytes))
                                               : std::string(static_cast<std::size_t>(member.bytes), '\0');
  for (const TarPiece& piece : member.pieces) {
    expected.replace(static_cast<std::size_t>(piece.at), static_cast<std::size_t>(piece.bytes), archive,
                     static_cast<std::size_t>(piece.offset), static_cast<std::size_t>(piece.bytes));
  }
  const auto content = reader.read(member);
  require(std::ranges::equal(content, expected, {}, {}, [](char c) { return static_cast<std::uint8_t>(c); }),
          "a member's bytes are where they are said to be");
}

}  // namespace

void picture(std::string_view input) {
  constexpr std::int64_t kMostPixels = 1 << 18;
  const EncodedPicture encoded{{reinterpret_cast<const std::uint8_t*>(input.data()), input.size()}, "input"};
  try {
    const auto whole = turned_upright(open_picture(encoded), exif_orientation(encoded.bytes));
    const PictureSize size = whole->size();
    require(size.width > 0 && size.height > 0, "a picture has pixels");
    if (static_cast<std::int64_t>(size.width) * size.height > kMostPixels) return;
    const Region part{size.width / 3, size.height / 2, size.width - size.width / 2,
                      size.height - size.height / 2};
    Picture memory;
    static_cast<void>(
        sum_of(turned_upright(open_picture(encoded), exif_orientation(encoded.bytes))->decode(part, memory)));
    static_cast<void>(sum_of(whole->decode({0, 0, size.width, size.height}, memory)));
    if (picture_format(encoded.bytes) == PictureFormat::png) {
      const ClassMap map = decode_class_map(encoded);
      require(map.size == size, "a class map has its picture's size");
      require(
          map.values.size() == static_cast<std::size_t>(size.width) * static_cast<std::size_t>(size.height),
          "a class map has a number for each pixel");
    }
    if (picture_format(encoded.bytes) != PictureFormat::jpeg) return;
    const auto rewritten = rewrite_jpeg(encoded);
    require(!rewritten || open_picture({*rewritten, "rewritten"})->size() == open_picture(encoded)->size(),
            "a rewritten picture has its size");
  } catch (const DataError& error) {
    require(error.offset_bytes() >= 0 && error.offset_bytes() <= static_cast<std::int64_t>(input.size()),
            "a refusal points into the file");
  }
}

void wds_index(std::string_view input) {
  const UniqueFd archive(static_cast<int>(check(Sys{::memfd_create("tar", MFD_CLOEXEC)}, "memfd_create")));
  const UniqueFd index(static_cast<int>(check(Sys{::memfd_create("index", MFD_CLOEXEC)}, "memfd_create")));
  check(Sys{::write(index.get(), input.data(), input.size())}, "write");
  const auto path_of = [](const UniqueFd& file) { return "/proc/self/fd/" + std::to_string(file.get()); };
  TarWriter writer(path_of(archive));
  writer.add("a.jpg", "pixels");
  writer.add("a.cls", "7");
  writer.add(std::string(150, 'n') + ".jpg", "more pixels");
  writer.finish();
  TarReader reader(path_of(archive));
  try {
    for_each_indexed(reader, "s.tar", path_of(index), [&](const TarMember& member) {
      const std::string_view content(reinterpret_cast<const char*>(reader.read(member).data()),
                                     static_cast<std::size_t>(member.bytes));
      require(content == "pixels" || content == "7" || content == "more pixels",
              "a member that is listed is one of the archive's");
    });
  } catch (const DataError&) {
  }
}

void tar(std::string_view input) {
  const std::string archive = with_checksums(std::string(input));
  const UniqueFd file(static_cast<int>(check(Sys{::memfd_create("tar", MFD_CLOEXEC)}, "memfd_create")));
  check(Sys{::write(file.get(), archive.data(), archive.size())}, "write");
  try {
    TarReader reader("/proc/self/fd/" + std::to_string(file.get()));
    std::int64_t end = 0;
    reader.for_each([&](const TarMember& member) {
      const bool in_one_piece = member.pieces.empty();
      require(member.offset >= end && member.bytes >= 0, "members follow each other");
      end = in_one_piece ? member.offset + member.bytes : member.pieces.back().offset;
      require(end <= static_cast<std::int64_t>(archive.size()), "a member lies in its archive");
      if (in_one_piece || has_sound_pieces(member)) require_content(reader, member, archive);
    });
  } catch (const DataError& error) {
    require(error.offset_bytes() >= 0 && error.offset_bytes() <= static_cast<std::int64_t>(archive.size()),
            "a refusal points into the archive");
  }
}

}  // namespace dtrain::fuzz
