// Saved tensors by name, wherever they lie: in one safetensors file, or cut over the files of many ranks. Who
// reads need not know how they were cut: a job that was saved by 4 ranks is read by 3 or 8.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/named_view.h"
#include "runtime/checkpoint/safetensors.h"

namespace dtrain {

struct IndexedTensor;

/// What is known of a saved tensor before its values are read. `shape` is that of the whole tensor.
struct SavedTensor {
  std::string name;
  DType dtype = DType::f32;
  Dims shape;
};

/// Opens what it reads from; nothing is held in memory but names and shapes.
///
///     TensorFiles model = TensorFiles::open("runs/mine/checkpoints/step-00000040/model.safetensors");
///     const SavedTensor* weight = model.find("fc1.weight");
///     model.read("fc1.weight", view_of_all_of_it);
///     model.read("fc1.weight", TensorShard::slice(weight->shape, 0, 256, 512), view_of_half_of_it);
///
/// Every read throws DataError (path, offset, expected, found) for values that are not as they must be,
/// SystemError for a file that cannot be read after several tries. Not thread-safe.
class TensorFiles {
 public:
  /// One safetensors file, ours or anybody's. Checks the header; values are checked as they are read.
  static TensorFiles open(const std::filesystem::path& path, Verify verify = Verify::when_present);
  /// The same of a file that is open.
  explicit TensorFiles(SafetensorsFile file);
  /// Several files of `directory`, described by `tensors`; `seals`, by file name, says what each must be.
  /// Opens them when they are needed. Internal to runtime/checkpoint.
  TensorFiles(const std::filesystem::path& directory, std::span<const IndexedTensor> tensors,
              const std::map<std::string, SafetensorsSeal>& seals);

  TensorFiles(TensorFiles&&) noexcept;
  TensorFiles& operator=(TensorFiles&&) noexcept;
  ~TensorFiles();

  /// Every tensor: of one file in its order, of several by name.
  const std::vector<SavedTensor>& tensors() const noexcept;
  /// The tensor called `name`, or nullptr.
  const SavedTensor* find(const std::string& name) const noexcept;
  /// Bytes of all values.
  std::uint64_t bytes() const noexcept;

  /// Reads all of `name` into `target`, which is contiguous, in CPU memory, of the saved dtype and shape. The
  /// checksum of each piece that is one stretch of it is compared: of all, unless inner dimensions are cut.
  /// Throws UsageError for a name that is not there or a target that does not fit.
  void read(const std::string& name, const View& target) const;

  /// Reads `part` of `name`; `target` has the saved dtype and part.count elements. Only the files that hold
  /// some of it are opened, and only what is needed of them is read, but for gaps of less than a page. No
  /// checksum covers a part of what a file holds: check_values() does that before. Throws UsageError as
  /// above, or when `part` is of another shape.
  void read(const std::string& name, const TensorShard& part, const View& target) const;

  /// Reads every byte of every `shares`th file, beginning with number `share`, and compares checksums: n
  /// ranks check a checkpoint together with check_values(rank, n), then agree. Needs 1 MiB.
  void check_values(int share = 0, int shares = 1) const;

 private:
  struct Impl;
  explicit TensorFiles(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtrain
