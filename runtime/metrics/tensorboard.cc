#include "runtime/metrics/tensorboard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "runtime/base/check.h"
#include "runtime/base/files/durable_file.h"
#include "runtime/metrics/protobuf.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

using namespace protobuf;

constexpr std::uint32_t kCastagnoliReflected = 0x82f63b78U;
constexpr int kSessionStart = 1;

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1U) != 0 ? kCastagnoliReflected : 0U);
    table[byte] = value;
  }
  return table;
}

// TensorFlow masks stored checksums so that a checksum over data with checksums in it stays a good one.
std::uint32_t masked_crc(std::string_view text) {
  const std::uint32_t crc = crc32c(std::as_bytes(std::span(text)));
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

std::string event(double wall_time, std::int64_t step) {
  std::string out;
  put_tag(out, 1, Wire::fixed64);
  put_little_endian(out, wall_time);
  if (step != 0) {
    put_tag(out, 2, Wire::varint);
    put_varint(out, static_cast<std::uint64_t>(step));
  }
  return out;
}

constexpr std::string_view kEventFile = "events.out.tfevents.";

/// Whether an earlier start left curves in `directory`.
bool has_events(const fs::path& directory) {
  std::error_code ignored;
  return std::any_of(
      fs::directory_iterator(directory, ignored), fs::directory_iterator(),
      [](const auto& entry) { return entry.path().filename().string().starts_with(kEventFile); });
}

fs::path event_path(const fs::path& directory, double wall_time) {
  char host[65] = {};
  ::gethostname(host, sizeof host - 1);
  return directory /
         fmt::format("{}{}.{}.{}", kEventFile, static_cast<std::int64_t>(wall_time), host, ::getpid());
}

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes) noexcept {
  static constexpr auto kTable = make_table();
  std::uint32_t crc = ~0U;
  for (const std::byte byte : bytes) {
    crc = kTable[(crc ^ std::to_integer<std::uint32_t>(byte)) & 0xffU] ^ (crc >> 8);
  }
  return ~crc;
}

std::string tensorboard_record(std::string_view payload) {
  std::string record;
  put_little_endian(record, static_cast<std::uint64_t>(payload.size()));
  put_little_endian(record, masked_crc(record));
  record += payload;
  put_little_endian(record, masked_crc(payload));
  return record;
}

TensorBoardWriter::TensorBoardWriter(const fs::path& directory, double wall_time,
                                     std::int64_t resumed_at_step)
    : TensorBoardWriter(directory, wall_time, resumed_at_step, resumed_at_step > 0 || has_events(directory)) {
}

TensorBoardWriter::TensorBoardWriter(const fs::path& directory, double wall_time,
                                     std::int64_t resumed_at_step, bool begins_again)
    : path_(event_path(directory, wall_time)),
      fd_(static_cast<int>(check(Sys{::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)},
                                 "create " + path_.string()))) {
  std::string version = event(wall_time, 0);
  put_bytes(version, 3, "brain.Event:2");
  std::string records = tensorboard_record(version);
  if (begins_again) {
    std::string session;
    put_tag(session, 1, Wire::varint);
    put_varint(session, kSessionStart);
    std::string restart = event(wall_time, resumed_at_step + 1);  // forget this step and later ones
    put_bytes(restart, 7, session);
    records += tensorboard_record(restart);
  }
  write_all(fd_.get(), records, path_);
}

void TensorBoardWriter::scalars(std::span<const std::pair<std::string, double>> points, std::int64_t step,
                                double wall_time) {
  std::string records;
  for (const auto& [tag, value] : points) {
    std::string point;
    put_bytes(point, 1, tag);
    put_tag(point, 2, Wire::fixed32);
    put_little_endian(point, static_cast<float>(value));
    std::string summary;
    put_bytes(summary, 1, point);
    std::string payload = event(wall_time, step);
    put_bytes(payload, 5, summary);
    records += tensorboard_record(payload);
  }
  append_whole(fd_.get(), records, path_);
}

}  // namespace dtrain
