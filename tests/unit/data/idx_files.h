// Makes IDX and gzip bytes for tests, right ones and wrong ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/data/formats/idx.h"

namespace dtrain::test {

/// Header for `dims` and elements 0, 1, … modulo `modulus`, as many as the dimensions say.
std::string idx_bytes(const std::vector<std::uint32_t>& dims, unsigned modulus = 251);
/// Only the header.
std::string idx_header(const std::vector<std::uint32_t>& dims, std::uint8_t type = 8);
/// One gzip member.
std::string gzip(const std::string& content, int level = 6);
/// Deflated, without a header or a checksum.
std::string deflated(const std::string& content);

/// All of its bytes.
inline std::string text_of(const Content& content) {
  const auto bytes = content.read(0, content.size());
  return {bytes.begin(), bytes.end()};
}

/// Keeps what was logged.
class RecordingLog final : public Log {
 public:
  void write(LogLevel, std::string_view message) noexcept override { text_ += std::string(message) + "\n"; }
  const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
};

/// Runs `body`, which must throw a DataError, and returns it.
template <class Body>
DataError data_error_of(Body body) {
  try {
    body();
  } catch (const DataError& error) {
    return error;
  }
  throw Error("expected a DataError, nothing was thrown");
}

}  // namespace dtrain::test
