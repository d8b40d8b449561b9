// The header is Python text, of which only what NumPy itself writes is understood: the three keys in any
// order, strings in either quote, any spaces.
#include "runtime/data/formats/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/cache/content_reader.h"

namespace dtrain {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are used as they lie in the file");

constexpr std::string_view kMagic = "\x93NUMPY";
// NumPy's own headers end long before: they grow with the fields of a record only.
constexpr std::size_t kNpyMagicBytes = 6, kVersionEnd = 8, kLongestFront = 1 << 20;

struct KnownType {
  std::string_view descr;
  NpyType type;
};
constexpr std::array kKnownTypes = {
    KnownType{"<f4", NpyType::f4}, KnownType{"<f8", NpyType::f8}, KnownType{"<f2", NpyType::f2},
    KnownType{"<i2", NpyType::i2}, KnownType{"|i1", NpyType::i1}, KnownType{"<i4", NpyType::i4},
    KnownType{"<i8", NpyType::i8}, KnownType{"|u1", NpyType::u1}, KnownType{"|b1", NpyType::b1}};

/// The dictionary, from its first character on; offsets count bytes of the file.
class HeaderText {
 public:
  HeaderText(std::string_view text, std::size_t offset, const std::string& path)
      : text_(text), offset_(offset), path_(path) {}

  [[noreturn]] void refuse(std::size_t at, const std::string& expected) const {
    const std::string_view found = text_.substr(std::min(at, text_.size()), kShown);
    throw DataError(path_, static_cast<std::int64_t>(offset_ + at), expected,
                    found.empty() ? "the header's end" : fmt::format("\"{}\"", printable(found)));
  }
  std::size_t at() const noexcept { return at_; }

  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n')) ++at_;
  }
  bool take(char wanted) {
    skip_spaces();
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!take(wanted)) refuse(at_, fmt::format("'{}' in the header's dictionary", wanted));
  }
  bool take(std::string_view word) {
    skip_spaces();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  std::string_view string() {
    skip_spaces();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    const std::size_t end =
        quote == '\'' || quote == '"' ? text_.find(quote, at_ + 1) : std::string_view::npos;
    if (end == std::string_view::npos) refuse(at_, "a string in quotes");
    const std::string_view value = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return value;
  }
  std::int64_t extent() {
    skip_spaces();
    const std::size_t from = at_;
    std::uint64_t value = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      value = value * 10 + static_cast<std::uint64_t>(text_[at_++] - '0');
      if (value > INT64_MAX / 16) refuse(from, "an extent that memory can hold");
    }
    if (at_ == from) refuse(at_, "an extent, a whole number");
    take('L');  // as Python 2 wrote them
    return static_cast<std::int64_t>(value);
  }
  bool ended() {
    skip_spaces();
    return at_ == text_.size();
  }

 private:
  static constexpr std::size_t kShown = 24;
  static std::string printable(std::string_view text) {
    std::string shown(text);
    std::replace_if(
        shown.begin(), shown.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    return shown;
  }

  std::string_view text_;
  std::size_t offset_, at_ = 0;
  const std::string& path_;
};

NpyType parse_type(HeaderText& text) {
  const std::size_t at = text.at();
  if (text.take('[')) text.refuse(at, "one type for all elements (not a structured array)");
  const std::string_view descr = text.string();
  for (const KnownType& known : kKnownTypes)
    if (known.descr == descr) return known.type;
  if (descr.starts_with('>'))
    text.refuse(at, "little-endian elements (save a.astype(a.dtype.newbyteorder('<')))");
  text.refuse(at,
              "elements of type <f4, <f8, <f2, <i4, <i8, <i2, |i1, |u1 or |b1 (save "
              "a.astype(numpy.float32), say)");
}

/// Whether the order is Fortran's.
bool parse_order(HeaderText& text) {
  text.skip_spaces();
  const std::size_t at = text.at();
  if (text.take("False")) return false;
  if (text.take("True")) return true;
  text.refuse(at, "True or False");
}

Dims parse_shape(HeaderText& text) {
  Dims shape;
  text.expect('(');
  while (!text.take(')')) {
    if (shape.rank() == kMaxRank) text.refuse(text.at(), fmt::format("at most {} dimensions", kMaxRank));
    shape.push_back(text.extent());
    if (text.take(',')) continue;
    text.expect(')');
    break;
  }
  return shape;
}

struct Parts {
  std::optional<NpyType> type;
  std::optional<Dims> shape;
  std::optional<bool> fortran;
};

Parts parse_dictionary(HeaderText& text) {
  Parts parts;
  text.expect('{');
  while (!text.take('}')) {
    const std::size_t at = text.at();
    const std::string_view key = text.string();
    text.expect(':');
    text.skip_spaces();
    if (key == "descr" && !parts.type) {
      parts.type = parse_type(text);
    } else if (key == "fortran_order" && !parts.fortran) {
      parts.fortran = parse_order(text);
    } else if (key == "shape" && !parts.shape) {
      parts.shape = parse_shape(text);
    } else {
      text.refuse(at, "each of the keys descr, fortran_order and shape once");
    }
    if (text.take(',')) continue;
    text.expect('}');
    break;
  }
  if (!text.ended()) text.refuse(text.at(), "the end of the header behind its dictionary");
  if (!parts.type || !parts.shape || !parts.fortran)
    text.refuse(text.at(), "the keys descr, fortran_order and shape in the header");
  return parts;
}

std::uint64_t little_endian(std::span<const std::uint8_t> bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | bytes[i];
  return value;
}

/// Where the dictionary lies in the file.
struct Extent {
  std::size_t from, bytes;
};

Extent find_dictionary(std::span<const std::uint8_t> content, const std::string& path) {
  const auto cut = [&](const char* expected) {
    throw DataError(path, static_cast<std::int64_t>(content.size()), expected, "the end of the file");
  };
  const auto front = content.first(std::min(content.size(), kNpyMagicBytes));
  if (!std::equal(front.begin(), front.end(), reinterpret_cast<const std::uint8_t*>(kMagic.data())))
    throw DataError(path, 0, "\\x93NUMPY, as .npy files begin", "something else");
  if (content.size() < kVersionEnd) cut("the magic number and version of a .npy file");
  const int major = content[6], minor = content[7];
  if (major < 1 || major > 3 || minor != 0)
    throw DataError(path, 6, "version 1.0, 2.0 or 3.0", fmt::format("{}.{}", major, minor));
  const std::size_t from = kVersionEnd + (major == 1 ? 2 : 4);
  if (content.size() < from) cut("the length of the header");
  const std::uint64_t bytes = little_endian(content.subspan(kVersionEnd, from - kVersionEnd));
  if (bytes > content.size() - from) {
    throw DataError(path, kVersionEnd,
                    fmt::format("a header of at most the {} bytes that follow", content.size() - from),
                    std::to_string(bytes));
  }
  return {from, static_cast<std::size_t>(bytes)};
}

}  // namespace

std::size_t size_of(NpyType type) noexcept { return size_of(dtype_of_npy(type)); }

DType dtype_of_npy(NpyType type) noexcept {
  switch (type) {
    case NpyType::f4:
      return DType::f32;
    case NpyType::f8:
      return DType::f64;
    case NpyType::i4:
      return DType::i32;
    case NpyType::i8:
      return DType::i64;
    case NpyType::f2:
      return DType::f16;
    case NpyType::i2:
      return DType::i16;
    case NpyType::i1:
      return DType::i8;
    case NpyType::u1:
    case NpyType::b1:
      break;
  }
  return DType::u8;
}

NpyHeader parse_npy_header(std::span<const std::uint8_t> content, const std::string& path) {
  const Extent extent = find_dictionary(content, path);
  HeaderText text({reinterpret_cast<const char*>(content.data()) + extent.from, extent.bytes}, extent.from,
                  path);
  const Parts parts = parse_dictionary(text);
  NpyHeader header{*parts.type, *parts.shape, *parts.fortran, extent.from + extent.bytes, 0};
  header.total = size_of(header.type);
  bool fits = true;
  for (const std::int64_t extent_of_dim : header.shape)
    fits = fits &&
           !__builtin_mul_overflow(header.total, static_cast<std::uint64_t>(extent_of_dim), &header.total) &&
           header.total <= INT64_MAX / 2;
  if (!fits) {
    throw DataError(path, static_cast<std::int64_t>(extent.from), "a shape that memory can hold",
                    header.shape.to_string());
  }
  header.total += header.bytes;
  return header;
}

View NpyArray::row(std::int64_t index) const {
  const Dims shape(std::span(header.shape.begin() + 1, header.shape.end()));
  const std::size_t bytes = static_cast<std::size_t>(shape.product()) * size_of(header.type);
  const auto found = elements.read(static_cast<std::size_t>(index) * bytes, bytes);
  return {const_cast<std::uint8_t*>(found.data()), dtype_of_npy(header.type), shape,
          contiguous_strides(shape)};
}

namespace {

/// The elements of an array in C order. Its last index changes fastest there, and slowest in Fortran's.
Content in_c_order(const NpyHeader& header, const Content& elements) {
  const std::size_t each = size_of(header.type);
  const int rank = header.shape.rank();
  std::array<std::size_t, kMaxRank> index{}, stride{};  // strides in the file, in bytes
  for (std::size_t d = 0, step = each; d < static_cast<std::size_t>(rank); ++d) {
    stride[d] = step;
    step *= static_cast<std::size_t>(header.shape[static_cast<int>(d)]);
  }
  const auto from = elements.read(0, elements.size());
  auto bytes = std::make_shared<std::vector<std::uint8_t>>(from.size());
  std::size_t at = 0;  // in the file
  for (std::size_t to = 0; to < bytes->size(); to += each) {
    std::memcpy(bytes->data() + to, from.data() + at, each);
    for (auto d = static_cast<std::size_t>(rank); d-- > 0;) {
      at += stride[d];
      if (++index[d] < static_cast<std::size_t>(header.shape[static_cast<int>(d)])) break;
      at -= index[d] * stride[d];
      index[d] = 0;
    }
  }
  const std::span<const std::uint8_t> all = *bytes;
  return {std::move(bytes), all};
}

}  // namespace

NpyArray read_npy(const std::string& path) {
  const ContentReader file(path, "a .npy file");
  if (file.file_bytes() == 0) throw DataError(path, 0, "a .npy file", "an empty file");
  if (file.compressed()) throw DataError(path, 0, "a .npy file as NumPy writes it", "gzip; unpack it first");
  return read_npy(Content(file.fd(), static_cast<std::size_t>(file.file_bytes()), path), path);
}

NpyArray read_npy(const Content& content, const std::string& path) {
  const NpyHeader header = parse_npy_header(content.read(0, std::min(content.size(), kLongestFront)), path);
  if (content.size() != header.total) {
    throw DataError(path, static_cast<std::int64_t>(std::min<std::uint64_t>(content.size(), header.total)),
                    fmt::format("{} bytes for an array of shape {}", header.total, header.shape.to_string()),
                    fmt::format("a file of {}", content.size()));
  }
  const Content elements = content.from(header.bytes);
  return {header, header.fortran && header.shape.rank() > 1 ? in_c_order(header, elements) : elements};
}

}  // namespace dtrain
