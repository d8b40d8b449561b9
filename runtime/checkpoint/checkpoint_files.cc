// Writes the files of a checkpoint and reads them back with every byte verified.
#include "runtime/checkpoint/checkpoint_files.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>

#include "runtime/base/check.h"
#include "runtime/base/files/durable_file.h"
#include "runtime/base/options.h"
#include "runtime/checkpoint/input_file.h"
#include "runtime/checkpoint/json/sealed_json.h"
#include "runtime/checkpoint/shard_index.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStateFile = "state.json";
constexpr std::string_view kNamePrefix = "step-";
constexpr std::uint64_t kLargestState = 16 << 20;
constexpr std::uint64_t kLargestIndex = 1 << 30;

/// The two sets of tensors of a checkpoint, each in files of its own.
constexpr const char* kKinds[] = {"model", "optimizer"};
using Kind = const char*;

// "pt" is what PyTorch's own writer says of the names and layouts inside.
SafetensorsMetadata metadata_of(Kind kind) {
  return kind == kKinds[0] ? SafetensorsMetadata{{"format", "pt"}} : SafetensorsMetadata{};
}

/// Hugging Face's names; one file has no number and needs no index.
std::string final_name(Kind kind, std::size_t number, std::size_t count) {
  return count == 1 ? fmt::format("{}.safetensors", kind)
                    : fmt::format("{}-{:05}-of-{:05}.safetensors", kind, number + 1, count);
}

std::string index_name(Kind kind) { return fmt::format("{}.safetensors.index.json", kind); }

/// Until it is known how many ranks have something to save.
std::string staged_name(Kind kind, int shard) {
  return fmt::format("rank-{:05}-{}.safetensors", shard, kind);
}

// What another machine has just written may take a moment to be seen here.
SafetensorsFile open_staged(const fs::path& path, int shard, int shards) {
  try {
    with_patience([&] { check(Sys{::access(path.c_str(), F_OK)}, "look for " + path.string()); });
  } catch (const SystemError& error) {
    throw with_context(fmt::format("shard {} of {}: written by its rank, but not visible from here; all "
                                   "ranks must share one file system for the run's folder",
                                   shard + 1, shards),
                       error);
  }
  return SafetensorsFile::open(path, Verify::required);
}

// Names the files of one kind, leaving out shards that hold nothing, and indexes them.
void commit_kind(const fs::path& directory, Kind kind, int shards, CheckpointSeals& seals) {
  std::vector<SafetensorsFile> files;
  for (int shard = 0; shard < shards; ++shard) {
    SafetensorsFile file = open_staged(directory / staged_name(kind, shard), shard, shards);
    file.release();
    files.push_back(std::move(file));
  }
  const auto holds_nothing = [](const SafetensorsFile& file) { return file.entries().empty(); };
  std::vector<const SafetensorsFile*> kept;
  for (const SafetensorsFile& file : files) {
    if (!holds_nothing(file)) kept.push_back(&file);
  }
  if (kept.empty()) kept.push_back(&files[0]);

  std::vector<ShardEntries> entries;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    entries.push_back({final_name(kind, i, kept.size()), kept[i]->entries()});
    seals[entries.back().file] = kept[i]->seal();
  }
  const std::vector<IndexedTensor> tensors = merge_shards(entries);
  for (const SafetensorsFile& file : files) {
    if (!holds_nothing(file) || &file == kept[0]) continue;
    check(Sys{::unlink(file.path().c_str())}, "remove " + file.path().string());
  }
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const fs::path target = directory / entries[i].file;
    check(Sys{::rename(kept[i]->path().c_str(), target.c_str())}, "rename " + kept[i]->path().string());
  }
  if (kept.size() == 1) return;
  const std::string index = format_shard_index(tensors);
  write_text(directory / index_name(kind), index);
  seals[index_name(kind)] = {index.size(), checksum_of_sealed_json(index)};
}

void check_seal(const fs::path& path, const SafetensorsSeal& found, const CheckpointSeals& seals) {
  const auto at = seals.find(path.filename().string());
  const SafetensorsSeal expected = at == seals.end() ? SafetensorsSeal{} : at->second;
  if (found == expected) return;
  throw DataError(path.string(), -1,
                  fmt::format("{} bytes with header crc32 '{}', as {} says", expected.bytes,
                              expected.header_crc32, kStateFile),
                  fmt::format("{} bytes with '{}'", found.bytes, found.header_crc32));
}

// The files of one kind that state.json names: n of n, or the one that has no number.
std::vector<std::string> shard_names(const fs::path& directory, Kind kind, const CheckpointSeals& seals) {
  std::vector<std::string> names;
  for (const auto& [name, seal] : seals) {
    if (name.starts_with(std::string(kind) + "-")) names.push_back(name);
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names.size() > 1 && names[i] == final_name(kind, i, names.size())) continue;
    throw DataError((directory / kStateFile).string(), -1,
                    fmt::format("'{}' among its files", final_name(kind, i, names.size())),
                    "'" + names[i] + "'");
  }
  return names;
}

// state.json is written last and names the others, so a file of another checkpoint is refused too.
TensorFiles open_kind(const fs::path& directory, Kind kind, const CheckpointSeals& seals) {
  const std::vector<std::string> names = shard_names(directory, kind, seals);
  if (names.empty()) {
    const fs::path path = directory / final_name(kind, 0, 1);
    SafetensorsFile file = SafetensorsFile::open(path, Verify::required);
    check_seal(path, file.seal(), seals);
    return TensorFiles(std::move(file));
  }
  const fs::path path = directory / index_name(kind);
  const std::string text = read_text(path, kLargestIndex);
  const auto tensors = parse_shard_index(text, path, names);
  check_seal(path, {text.size(), checksum_of_sealed_json(text)}, seals);
  std::map<std::string, SafetensorsSeal> own;
  for (const std::string& name : names) own.emplace(name, seals.at(name));
  return TensorFiles(directory, tensors, own);
}

}  // namespace

std::string checkpoint_name(std::int64_t step) { return fmt::format("{}{:08}", kNamePrefix, step); }

std::int64_t step_of_name(const std::string& name) {
  if (!name.starts_with(kNamePrefix)) return -1;
  std::int64_t step = -1;
  const char* end = name.data() + name.size();
  const auto [stopped, error] = std::from_chars(name.data() + kNamePrefix.size(), end, step);
  return error == std::errc() && stopped == end && step >= 0 && checkpoint_name(step) == name ? step : -1;
}

std::uint64_t checkpoint_bytes(const Snapshot& snapshot) {
  constexpr std::uint64_t kStateAndFolder = 64 << 10;
  return safetensors_bytes(snapshot.model, metadata_of(kKinds[0])) +
         safetensors_bytes(snapshot.optimizer, metadata_of(kKinds[1])) + kStateAndFolder;
}

bool name_taken(const fs::path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
}

std::int64_t start_of(const TrainingState& state) {
  const auto entry = state.extra.find(kStartEntry);
  return entry == state.extra.end() ? 0 : parse_integer(entry->second).value_or(0);
}

void write_shard_files(const fs::path& directory, const Snapshot& snapshot, const Shard& shard) {
  remove_shard_files(directory, shard);
  const std::span<const NamedView> tensors[] = {snapshot.model, snapshot.optimizer};
  for (std::size_t i = 0; i < std::size(kKinds); ++i) {
    write_safetensors(directory / staged_name(kKinds[i], shard.index), tensors[i], metadata_of(kKinds[i]));
  }
  sync_directory(directory);
}

void remove_shard_files(const fs::path& directory, const Shard& shard) noexcept {
  std::error_code ignored;
  for (const Kind kind : kKinds) fs::remove(directory / staged_name(kind, shard.index), ignored);
}

void write_commit_files(const fs::path& directory, const TrainingState& state, int shards) {
  CheckpointSeals seals;
  for (const Kind kind : kKinds) commit_kind(directory, kind, shards, seals);
  write_text(directory / kStateFile, format_training_state(state, seals));
  sync_directory(directory);
}

Checkpoint load_checkpoint(const fs::path& path, CheckValues check) {
  CheckpointSeals seals;
  const fs::path state_path = path / kStateFile;
  TrainingState state = parse_training_state(read_text(state_path, kLargestState), state_path, seals);
  Checkpoint checkpoint{path, std::move(state), open_kind(path, kKinds[0], seals),
                        open_kind(path, kKinds[1], seals)};
  if (check == CheckValues::all) {
    checkpoint.model.check_values();
    checkpoint.optimizer.check_values();
  }
  return checkpoint;
}

}  // namespace dtrain
