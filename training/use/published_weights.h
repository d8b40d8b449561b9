// Weights in a folder as others publish them: config.json beside model.safetensors, or several files with
// model.safetensors.index.json (https://huggingface.co/docs/safetensors). Read into a network, and written
// from one.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/checkpoint/tensor_files.h"
#include "runtime/nn/module.h"
#include "training/published_format.h"
#include "training/use/weight_mismatch.h"

namespace dtrain {

/// The tensors of such a folder, by the names they have there.
class PublishedWeights {
 public:
  /// Whether `path` is such a folder, rather than a run or a checkpoint of dtrain.
  static bool is_folder(const std::filesystem::path& path);
  /// Reads headers only. Throws DataError for an index that does not fit its files, and for a folder that has
  /// weights in another form alone.
  static PublishedWeights open(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const noexcept { return folder_; }
  std::vector<std::string> names() const;
  /// Throws UsageError where there is none of that name.
  const SavedTensor& find(const std::string& name) const;
  /// All of `name` on `host`, a CPU, in the file's dtype.
  Tensor read(const std::string& name, const std::shared_ptr<Device>& host) const;

 private:
  std::filesystem::path folder_;
  std::vector<TensorFiles> files_;
  std::map<std::string, std::size_t> file_of_;  ///< by a tensor's name
};

/// Copies `weights` into `network`, or into a rank's slices of it, whose tensors `format` describes. Throws
/// DataError that names the folder and, of what does not fit, names, expected and found; nothing is changed
/// then. Returns what was left out, of MissingWeights::kept.
LeftOut load_published(Module& network, const PublishedWeights& weights, const PublishedFormat& format,
                       std::string_view network_name, MissingWeights missing = MissingWeights::refused);

/// Of a tensor of the network as it is published: part `part`, contiguous, in `dtype`. `ours` is whole, on a
/// CPU.
Tensor published_part(const Tensor& ours, const PublishedTensor& published, std::size_t part, DType dtype);

/// Writes config.json, the weights of `state` (whole, by the network's names) and, where format.folder has
/// them, tokenizer files into the new folder `folder`, which appears whole or not at all. Files hold at most
/// `file_bytes` where that is possible. Returns how many tensors. Throws UsageError where the folder exists,
/// SystemError.
std::size_t write_published(const std::filesystem::path& folder, const NamedTensors& state,
                            const PublishedFormat& format, std::uint64_t file_bytes = 5'000'000'000);

}  // namespace dtrain
