// Reads and writes safetensors files (https://huggingface.co/docs/safetensors): 8 bytes of header length, a
// JSON header, the values. Files written here also carry a CRC-32 of each tensor and of the header in the
// metadata, so that a cut or flipped file is refused; other readers ignore them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/named_view.h"

namespace dtrain {

class InputFile;

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

/// One tensor of a file, or one part of a tensor. `begin` and `end` count bytes from the start of the values.
struct SafetensorsEntry {
  std::string name;  ///< the key in the file
  DType dtype = DType::f32;
  Dims shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::string crc32 = {};   ///< 8 hex digits; empty when the file has none
  std::string tensor = {};  ///< the tensor's name: the key, unless this is a part
  std::optional<TensorShard> part = std::nullopt;
};

/// Size of the file that write_safetensors would make, in bytes. Throws as write_safetensors does.
std::uint64_t safetensors_bytes(std::span<const NamedView> tensors, const SafetensorsMetadata& metadata = {});

/// Writes `tensors` to a new file at `path` and fsyncs it; `path` must not exist. Not atomic by itself: see
/// CheckpointStore. Widest element types come first, otherwise in the order given, so that every tensor is
/// aligned. A part has the key "<name>@<part>", and the metadata says what it is a part of. Throws UsageError
/// for an empty, reserved, repeated or non-UTF-8 name, a view that is not contiguous or does not fit its
/// part, or a header over the limit; SystemError when the file cannot be written (what was written stays).
SafetensorsSeal write_safetensors(const std::filesystem::path& path, std::span<const NamedView> tensors,
                                  const SafetensorsMetadata& metadata = {});

/// How much SafetensorsFile::open checks. Structure (sizes, offsets, names) is always checked.
enum class Verify {
  when_present,  ///< checksums that are there must match; for files from elsewhere
  required,      ///< every checksum must be there and match; for our own checkpoints
};

/// An open file whose header was checked; values are read when they are asked for. TensorFiles is what most
/// callers want. Every read throws DataError (path, offset, expected, found) for what is not as it must be,
/// SystemError for what still cannot be read after kReadPatience.
class SafetensorsFile {
 public:
  /// Opens the file and checks its header; reads no values.
  static SafetensorsFile open(const std::filesystem::path& path, Verify verify = Verify::when_present);

  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;
  ~SafetensorsFile();

  const std::filesystem::path& path() const noexcept;
  const SafetensorsSeal& seal() const noexcept;
  /// Every tensor in file order.
  const std::vector<SafetensorsEntry>& entries() const noexcept;
  /// The tensor with the key `name`, or nullptr.
  const SafetensorsEntry* find(const std::string& name) const noexcept;
  /// Metadata without the reserved keys.
  const SafetensorsMetadata& metadata() const noexcept;

  /// Reads every byte once and compares the checksums there are. Needs 1 MiB.
  void check_values() const;
  /// Reads the whole of `entry`, one of entries(), to `out`, end - begin bytes, and compares its checksum.
  void read(const SafetensorsEntry& entry, std::span<std::byte> out) const;

  /// Where the values begin, and the file itself: for reading parts of entries, which no checksum covers.
  std::uint64_t values_at() const noexcept;
  const InputFile& file() const noexcept;
  /// See InputFile::release.
  void release() noexcept;

 private:
  struct Impl;
  explicit SafetensorsFile(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtrain
