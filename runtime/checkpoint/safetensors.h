// Reads and writes safetensors files (https://huggingface.co/docs/safetensors): 8 bytes of header length, a
// JSON header, the values. Files written here also carry a CRC-32 of each tensor and of the header in the
// metadata, so that a cut or flipped file is refused; other readers ignore them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/named_view.h"

namespace dtrain {

/// The free "__metadata__" part of the header. Keys that begin with "dtrain." are reserved for checksums.
using SafetensorsMetadata = std::map<std::string, std::string>;

/// Longest header written or accepted.
inline constexpr std::uint64_t kMaxSafetensorsHeaderBytes = 16ULL << 20;

/// What tells one file from any other: its header holds the checksum of every tensor.
struct SafetensorsSeal {
  std::uint64_t bytes = 0;   ///< of the file
  std::string header_crc32;  ///< 8 hex digits; empty when the file has no checksums

  bool operator==(const SafetensorsSeal&) const = default;
};

/// Size of the file that write_safetensors would make, in bytes. Throws as write_safetensors does.
std::uint64_t safetensors_bytes(std::span<const NamedView> tensors, const SafetensorsMetadata& metadata = {});

/// Writes `tensors` to a new file at `path` and fsyncs it; `path` must not exist. Not atomic by itself: see
/// CheckpointStore. Widest element types come first, otherwise in the order given, so that every tensor is
/// aligned. Throws UsageError for an empty, reserved, repeated or non-UTF-8 name, a view that is not
/// contiguous, or a header over the limit; SystemError when the file cannot be written (what was written
/// stays).
SafetensorsSeal write_safetensors(const std::filesystem::path& path, std::span<const NamedView> tensors,
                                  const SafetensorsMetadata& metadata = {});

/// How much SafetensorsFile::open checks. Structure (sizes, offsets, names) is always checked.
enum class Verify {
  when_present,  ///< checksums that are there must match; for files from elsewhere
  required,      ///< every checksum must be there and match; for our own checkpoints
};

/// A mapped file. Moves keep the views valid; they end with the object.
class SafetensorsFile {
 public:
  /// Maps and checks the whole file: reads every byte once. Throws DataError (path, offset, expected, found)
  /// for anything that is not as it must be, SystemError when the file cannot be opened or mapped.
  static SafetensorsFile open(const std::filesystem::path& path, Verify verify = Verify::when_present);

  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;
  ~SafetensorsFile();

  const std::filesystem::path& path() const noexcept;
  const SafetensorsSeal& seal() const noexcept;
  /// Every tensor in file order. Read-only memory: writing through a view faults.
  const std::vector<NamedView>& tensors() const noexcept;
  /// The tensor called `name`, or nullptr.
  const NamedView* find(const std::string& name) const noexcept;
  /// Metadata without the reserved keys.
  const SafetensorsMetadata& metadata() const noexcept;

 private:
  struct Impl;
  explicit SafetensorsFile(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtrain
