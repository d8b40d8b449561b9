// Header first, then the elements from the cheapest place: a mapping, the cache, or memory that grows with
// what really comes out of the file.
#include "runtime/data/formats/idx.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr std::uint8_t kUnsignedByte = 0x08;
constexpr std::size_t kIdxMagicBytes = 4;
constexpr std::size_t kMostDimensions = 4, kLongestHeader = kIdxMagicBytes + 4 * kMostDimensions;
constexpr std::uint64_t kSmallestWorthCaching = 1 << 20;  // smaller content inflates in under 5 ms
constexpr std::size_t kFirstAllocation = 1 << 20;

struct Header {
  Dims dims;
  std::size_t bytes = 0;          // of the header
  std::uint64_t total_bytes = 0;  // header and elements
};

// What parsing needs to know of the file, plain or not.
struct Origin {
  const std::string& path;
  bool compressed;
  std::uint64_t most_bytes;  // no content can be longer

  [[noreturn]] void refuse(std::uint64_t offset, std::string expected, const std::string& found) const {
    if (compressed) expected += " (offset in the decompressed content)";
    throw DataError(path, static_cast<std::int64_t>(offset), expected, found);
  }
};

std::uint32_t big_endian(std::span<const std::uint8_t> bytes, std::size_t at) {
  return std::uint32_t{bytes[at]} << 24 | std::uint32_t{bytes[at + 1]} << 16 |
         std::uint32_t{bytes[at + 2]} << 8 | bytes[at + 3];
}

// "[n, 28, 28]"
std::string shape_text(const Dims& item) {
  std::string text = "[n";
  for (const std::int64_t extent : item) text += ", " + std::to_string(extent);
  return text + "]";
}

// `rank` 0: any that there may be.
std::size_t check_magic(std::span<const std::uint8_t> front, std::size_t rank, const Origin& origin) {
  if (front.size() < kIdxMagicBytes)
    origin.refuse(front.size(), "an IDX header of at least 4 bytes", "the end of the file");
  if (front[0] != 0 || front[1] != 0) {
    origin.refuse(0, "two zero bytes, as IDX files begin",
                  fmt::format("0x{:02x} 0x{:02x}", front[0], front[1]));
  }
  if (front[2] != kUnsignedByte) {
    origin.refuse(2, "element type 0x08 (unsigned byte)", fmt::format("0x{:02x}", front[2]));
  }
  if (rank == 0 && (front[3] < 1 || front[3] > kMostDimensions)) {
    origin.refuse(3, fmt::format("from 1 to {} dimensions", kMostDimensions), std::to_string(front[3]));
  }
  if (rank > 0 && front[3] != rank)
    origin.refuse(3, fmt::format("{} dimensions", rank), std::to_string(front[3]));
  return front[3];
}

// `front` holds the beginning of the content, as much of a header as there is.
Header parse_header(std::span<const std::uint8_t> front, const std::optional<Dims>& item,
                    const Origin& origin) {
  const std::size_t rank = check_magic(front, item ? static_cast<std::size_t>(item->rank()) + 1 : 0, origin);
  Header header;
  header.bytes = kIdxMagicBytes + 4 * rank;
  if (front.size() < header.bytes) {
    origin.refuse(front.size(), fmt::format("an IDX header of {} bytes", header.bytes),
                  "the end of the file");
  }
  std::uint64_t elements = 1;
  for (std::size_t i = 0; i < rank; ++i) {
    const std::size_t at = kIdxMagicBytes + 4 * i;
    const std::uint32_t extent = big_endian(front, at);
    const auto index = static_cast<int>(i);
    if (extent == 0) origin.refuse(at, fmt::format("dimension {} to be at least 1", i), "0");
    if (i > 0 && item && extent != (*item)[index - 1]) {
      origin.refuse(at, fmt::format("items of shape {}", shape_text(*item)),
                    fmt::format("{} in dimension {}", extent, i));
    }
    if (__builtin_mul_overflow(elements, std::uint64_t{extent}, &elements)) {
      origin.refuse(at, "dimensions whose product fits in 64 bits", "a larger product");
    }
    header.dims.push_back(extent);
  }
  const std::uint64_t room = origin.most_bytes - std::min<std::uint64_t>(origin.most_bytes, header.bytes);
  if (elements > room) {
    origin.refuse(kIdxMagicBytes,
                  fmt::format("{} elements, the product of dimensions {}", elements, header.dims.to_string()),
                  origin.compressed ? fmt::format("a gzip file that can hold {} at most", room)
                                    : fmt::format("{} bytes behind the header", room));
  }
  header.total_bytes = header.bytes + elements;
  return header;
}

[[noreturn]] void refuse_longer(const Origin& origin, const Header& header) {
  origin.refuse(header.total_bytes,
                fmt::format("the end of the file, as dimensions {} say", header.dims.to_string()),
                "more bytes");
}

IdxArray from_content(const Content& content, const Header& header) {
  return {header.dims, content.from(header.bytes), header.bytes};
}

IdxArray from_whole(const Content& content, const std::optional<Dims>& item, const Origin& origin) {
  const Header header = parse_header(content.read(0, std::min(content.size(), kLongestHeader)), item, origin);
  if (content.size() > header.total_bytes) refuse_longer(origin, header);
  return from_content(content, header);
}

// Reads one piece of a file whose header is known; verifies at the last one that nothing follows, which makes
// zlib verify its checksum too.
std::size_t read_piece(ContentReader& reader, const Origin& origin, const Header& header,
                       std::span<std::uint8_t> out) {
  const std::size_t got = reader.read(out);
  if (got < out.size()) {
    origin.refuse(reader.position(),
                  fmt::format("{} bytes, the product of dimensions {} and a header of {}", header.total_bytes,
                              header.dims.to_string(), header.bytes),
                  "the end of the content");
  }
  std::uint8_t beyond = 0;
  if (reader.position() == header.total_bytes && reader.read(std::span(&beyond, 1)) != 0)
    refuse_longer(origin, header);
  return got;
}

// Memory that grows in place as content arrives, so that a header cannot make us take what the file does not
// have.
class GrowingBuffer {
 public:
  GrowingBuffer() = default;
  ~GrowingBuffer() { std::free(data_); }
  GrowingBuffer(const GrowingBuffer&) = delete;
  GrowingBuffer& operator=(const GrowingBuffer&) = delete;

  std::span<std::uint8_t> bytes() noexcept { return {data_, size_}; }
  void resize(std::size_t size) {
    auto* const moved = static_cast<std::uint8_t*>(std::realloc(data_, size));
    if (moved == nullptr) throw std::bad_alloc();
    data_ = moved;
    size_ = size;
  }

 private:
  std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
};

IdxArray inflate_into_memory(const std::string& path, const IdxExpectation& expectation, const Origin& origin,
                             const Header& header) {
  ContentReader reader(path, expectation.purpose);
  auto buffer = std::make_shared<GrowingBuffer>();
  std::size_t filled = 0;
  while (filled < header.total_bytes) {
    const auto room = static_cast<std::size_t>(
        std::min<std::uint64_t>(header.total_bytes, std::max(kFirstAllocation, 2 * filled)));
    buffer->resize(room);
    filled += read_piece(reader, origin, header, buffer->bytes().subspan(filled));
  }
  return from_content({buffer, buffer->bytes()}, header);
}

IdxArray read_compressed(ContentReader& reader, const IdxExpectation& expectation, const Origin& origin,
                         DataCache& cache) {
  if (const auto cached = cache.find(reader.identity())) return from_whole(*cached, expectation.item, origin);

  std::array<std::uint8_t, kLongestHeader> front;
  const std::size_t got = reader.read(front);
  const Header header = parse_header(std::span(front).first(got), expectation.item, origin);

  if (header.total_bytes >= kSmallestWorthCaching) {
    ContentReader whole(origin.path, expectation.purpose);
    const auto kept = cache.build(whole.identity(), header.total_bytes, [&](std::span<std::uint8_t> out) {
      return read_piece(whole, origin, header, out);
    });
    if (kept) return from_whole(*kept, expectation.item, origin);
  }
  return inflate_into_memory(origin.path, expectation, origin, header);
}

}  // namespace

IdxArray read_idx(const std::string& path, const IdxExpectation& expectation, DataCache& cache) {
  if (expectation.item && expectation.item->rank() + 1 > static_cast<int>(kMostDimensions)) {
    throw UsageError(fmt::format("read_idx: expected items of at most {} dimensions, got shape {}",
                                 kMostDimensions - 1, expectation.item->to_string()));
  }
  ContentReader reader(path, expectation.purpose);
  const Origin origin{path, reader.compressed(), reader.max_content_bytes()};
  if (origin.compressed) return read_compressed(reader, expectation, origin, cache);
  if (reader.file_bytes() == 0) origin.refuse(0, "an IDX header of at least 4 bytes", "an empty file");
  const auto size = static_cast<std::size_t>(reader.file_bytes());
  return from_whole(Content(reader.fd(), size, path), expectation.item, origin);
}

}  // namespace dtrain
