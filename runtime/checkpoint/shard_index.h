// Which file holds which part of which tensor: model.safetensors.index.json, as Hugging Face writes it for
// sharded models, with what tensors that are cut among files need besides. Internal to runtime/checkpoint.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/safetensors.h"

namespace dtrain {

/// Where a part of a tensor is.
struct IndexedPiece {
  std::string file;  ///< a name in the index' folder
  std::string key;   ///< of the entry in that file
  TensorShard part;

  bool operator==(const IndexedPiece&) const = default;
};

/// A tensor and the pieces that make it up.
struct IndexedTensor {
  std::string name;
  DType dtype = DType::f32;
  Dims shape;
  std::vector<IndexedPiece> pieces;

  bool operator==(const IndexedTensor&) const = default;
};

/// The entries of one file, under the name it has (or gets).
struct ShardEntries {
  std::string file;
  std::span<const SafetensorsEntry> entries;
};

/// Puts the shards' entries together. Throws UsageError unless every tensor has one dtype and one shape in
/// all of them and each of its elements is in exactly one.
std::vector<IndexedTensor> merge_shards(std::span<const ShardEntries> shards);

/// The text of the index. Whole tensors are in "weight_map", where other readers look for them; cut ones are
/// in "dtrain" only, so that another reader misses them by name instead of taking a part for all of it.
std::string format_shard_index(std::span<const IndexedTensor> tensors);

/// Reads what format_shard_index wrote; `path` is for messages. Throws DataError for anything else, for a
/// file that is not one of `files`, and for tensors whose pieces leave something out.
std::vector<IndexedTensor> parse_shard_index(const std::string& text, const std::filesystem::path& path,
                                             std::span<const std::string> files);

}  // namespace dtrain
