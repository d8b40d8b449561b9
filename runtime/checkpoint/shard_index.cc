#include "runtime/checkpoint/shard_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "runtime/base/error.h"
#include "runtime/checkpoint/json/sealed_json.h"
#include "runtime/checkpoint/json/strict_json.h"
#include "runtime/checkpoint/safetensors_header.h"

namespace dtrain {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int kIndexVersion = 1;
constexpr int kIndexDepth = 7;  // index → dtrain → tensors → tensor → pieces → piece → begin

auto box_of(const IndexedPiece& piece) {
  const auto list = [](const Dims& dims) { return std::vector<std::int64_t>(dims.begin(), dims.end()); };
  return std::pair(list(piece.part.begin), list(piece.part.extent));
}

[[noreturn]] void refuse_twice(const IndexedTensor& tensor, const IndexedPiece& a, const IndexedPiece& b) {
  throw UsageError(fmt::format("tensor '{}': expected each element once, got {} in {} and {} in {}",
                               tensor.name, a.part.to_string(), a.file, b.part.to_string(), b.file));
}

// Ranges of one box are in order after sorting; boxes that differ are few (as many as ranks cut dimensions).
void check_apart(const IndexedTensor& tensor) {
  std::map<decltype(box_of(tensor.pieces[0])), std::vector<const IndexedPiece*>> by_box;
  for (const auto& piece : tensor.pieces) {
    if (piece.part.count > 0) by_box[box_of(piece)].push_back(&piece);
  }
  for (auto& [box, pieces] : by_box) {
    std::ranges::sort(pieces, {}, [](const IndexedPiece* piece) { return piece->part.first; });
    for (std::size_t i = 1; i < pieces.size(); ++i) {
      if (overlap(pieces[i - 1]->part, pieces[i]->part)) refuse_twice(tensor, *pieces[i - 1], *pieces[i]);
    }
  }
  for (auto a = by_box.begin(); a != by_box.end(); ++a) {
    for (auto b = std::next(a); b != by_box.end(); ++b) {
      for (const auto* left : a->second) {
        for (const auto* right : b->second) {
          if (overlap(left->part, right->part)) refuse_twice(tensor, *left, *right);
        }
      }
    }
  }
}

// Pieces that are apart and as many elements as the tensor has are all of it.
void check_complete(const IndexedTensor& tensor) {
  check_apart(tensor);
  std::int64_t held = 0;
  for (const auto& piece : tensor.pieces) held += piece.part.count;
  if (held == tensor.shape.product()) return;
  throw UsageError(fmt::format("tensor '{}': expected all {} elements of {} in the shards, got {}",
                               tensor.name, tensor.shape.product(), tensor.shape.to_string(), held));
}

ordered_json tensor_json(const IndexedTensor& tensor) {
  ordered_json result = {{"dtype", safetensors_name(tensor.dtype)}, {"shape", json_of(tensor.shape)}};
  if (tensor.pieces.size() == 1 && tensor.pieces[0].key == tensor.name) {
    result["file"] = tensor.pieces[0].file;
    return result;
  }
  result["pieces"] = ordered_json::array();
  for (const auto& [file, key, part] : tensor.pieces) {
    result["pieces"].push_back({{"file", file},
                                {"key", key},
                                {"begin", json_of(part.begin)},
                                {"extent", json_of(part.extent)},
                                {"first", part.first},
                                {"count", part.count}});
  }
  return result;
}

IndexedTensor tensor_from(const std::string& name, const json& value) {
  IndexedTensor tensor;
  tensor.name = name;
  const auto dtype = safetensors_dtype(value.at("dtype").get<std::string>());
  if (!dtype) throw UsageError("tensor '" + name + "': an unknown dtype");
  tensor.dtype = *dtype;
  tensor.shape = dims_of_json(value.at("shape"));
  TensorShard{tensor.shape, Dims::filled(tensor.shape.rank(), 0), tensor.shape, 0, 0}.check("tensor '" +
                                                                                            name + "'");
  if (value.contains("file")) {
    tensor.pieces.push_back({value.at("file").get<std::string>(), name, TensorShard::whole(tensor.shape)});
  } else {
    for (const json& piece : value.at("pieces")) {
      tensor.pieces.push_back(
          {piece.at("file").get<std::string>(), piece.at("key").get<std::string>(),
           TensorShard{tensor.shape, dims_of_json(piece.at("begin")), dims_of_json(piece.at("extent")),
                       integer_of(piece.at("first")), integer_of(piece.at("count"))}});
    }
  }
  for (const auto& piece : tensor.pieces) piece.part.check("tensor '" + name + "'");
  check_complete(tensor);
  return tensor;
}

}  // namespace

std::vector<IndexedTensor> merge_shards(std::span<const ShardEntries> shards) {
  std::vector<IndexedTensor> tensors;
  std::unordered_map<std::string, std::size_t> index;
  for (const auto& shard : shards) {
    for (const SafetensorsEntry& entry : shard.entries) {
      const TensorShard part = entry.part.value_or(TensorShard::whole(entry.shape));
      const auto [at, is_new] = index.emplace(entry.tensor, tensors.size());
      if (is_new) tensors.push_back({entry.tensor, entry.dtype, part.shape, {}});
      IndexedTensor& tensor = tensors[at->second];
      if (tensor.dtype != entry.dtype || tensor.shape != part.shape) {
        throw UsageError(fmt::format("tensor '{}': expected {} of shape {} in all shards, got {} of {} in {}",
                                     tensor.name, name_of(tensor.dtype), tensor.shape.to_string(),
                                     name_of(entry.dtype), part.shape.to_string(), shard.file));
      }
      tensor.pieces.push_back({shard.file, entry.name, part});
    }
  }
  for (const auto& tensor : tensors) check_complete(tensor);
  return tensors;
}

std::string format_shard_index(std::span<const IndexedTensor> tensors) {
  ordered_json index;
  std::uint64_t bytes = 0;
  ordered_json weight_map = ordered_json::object(), all = ordered_json::object();
  for (const auto& tensor : tensors) {
    bytes += static_cast<std::uint64_t>(tensor.shape.product()) * size_of(tensor.dtype);
    all[tensor.name] = tensor_json(tensor);
    if (all[tensor.name].contains("file")) weight_map[tensor.name] = tensor.pieces[0].file;
  }
  index["metadata"] = {{"total_size", bytes}};
  index["weight_map"] = std::move(weight_map);
  index["dtrain"] = {{"format", kIndexVersion}, {"tensors", std::move(all)}};
  return format_sealed_json(std::move(index), "index of shards");
}

std::vector<IndexedTensor> parse_shard_index(const std::string& text, const std::filesystem::path& path,
                                             std::span<const std::string> files) {
  check_sealed_json(text, path);
  const json parsed = parse_strict_json(text, path, 0, kIndexDepth);
  const auto fail = [&](const std::string& found) {
    throw DataError(path.string(), -1, "an index of shards", found);
  };
  std::vector<IndexedTensor> tensors;
  try {
    const auto& ours = parsed.at("dtrain");
    if (const std::int64_t format = integer_of(ours.at("format")); format != kIndexVersion) {
      fail("format " + std::to_string(format));
    }
    for (const auto& [name, value] : ours.at("tensors").items()) {
      tensors.push_back(tensor_from(name, value));
      for (const auto& piece : tensors.back().pieces) {
        if (std::ranges::find(files, piece.file) == files.end()) fail("a file '" + piece.file + "'");
      }
    }
  } catch (const json::exception& error) {
    fail(error.what());
  } catch (const UsageError& error) {
    fail(error.what());
  }
  return tensors;
}

}  // namespace dtrain
