#include "tests/unit/data/idx_files.h"

#include <zlib.h>

#include <stdexcept>

namespace dtrain::test {

std::string idx_header(const std::vector<std::uint32_t>& dims, std::uint8_t type) {
  std::string bytes{'\0', '\0', static_cast<char>(type), static_cast<char>(dims.size())};
  for (const std::uint32_t extent : dims) {
    for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(extent >> shift & 0xff);
  }
  return bytes;
}

std::string idx_bytes(const std::vector<std::uint32_t>& dims, unsigned modulus) {
  std::size_t count = 1;
  for (const std::uint32_t extent : dims) count *= extent;
  std::string bytes = idx_header(dims);
  for (std::size_t i = 0; i < count; ++i) bytes += static_cast<char>(i % modulus);
  return bytes;
}

namespace {

std::string compressed(const std::string& content, int level, int window) {
  z_stream stream{};
  if (deflateInit2(&stream, level, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY) != Z_OK) throw std::bad_alloc();
  std::string out(deflateBound(&stream, content.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int code = deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  if (code != Z_STREAM_END) throw std::runtime_error("deflate failed");
  return out;
}

}  // namespace

std::string gzip(const std::string& content, int level) { return compressed(content, level, 15 + 16); }
std::string deflated(const std::string& content) { return compressed(content, 6, -15); }

}  // namespace dtrain::test
