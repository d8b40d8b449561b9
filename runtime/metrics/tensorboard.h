// A TensorBoard event file: length-prefixed, CRC-32C-checked records of protobuf Events, written by hand
// because three fields of one message are all that is needed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/fd.h"

namespace dtrain {

/// CRC-32C (Castagnoli, reflected) of `bytes`.
std::uint32_t crc32c(std::span<const std::byte> bytes) noexcept;

/// One record of the event file: u64 length, masked CRC of it, `payload`, masked CRC of it; little-endian.
std::string tensorboard_record(std::string_view payload);

/// Writes events.out.tfevents.<time>.<host> into a run's folder. Each record is one write(2). Not
/// thread-safe.
class TensorBoardWriter {
 public:
  /// Creates a new event file in `directory`, which tells TensorBoard to forget what earlier files say about
  /// steps after `resumed_at_step`: after a start from nothing (0), about all of them. `wall_time` is in
  /// seconds since 1970. Throws SystemError.
  TensorBoardWriter(const std::filesystem::path& directory, double wall_time,
                    std::int64_t resumed_at_step = 0);

  /// A point of each curve ("train/loss"), all in one write(2). Throws SystemError.
  void scalars(std::span<const std::pair<std::string, double>> points, std::int64_t step, double wall_time);

  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  TensorBoardWriter(const std::filesystem::path& directory, double wall_time, std::int64_t resumed_at_step,
                    bool begins_again);

  std::filesystem::path path_;
  UniqueFd fd_;
};

}  // namespace dtrain
