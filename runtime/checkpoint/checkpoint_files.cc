// Writes the files of a checkpoint and reads them back with every byte verified.
#include "runtime/checkpoint/checkpoint_files.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <charconv>

#include "runtime/base/check.h"
#include "runtime/base/durable_file.h"
#include "runtime/base/fd.h"
#include "runtime/checkpoint/input_file.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kStateFile = "state.json";
constexpr std::string_view kNamePrefix = "step-";
constexpr std::uint64_t kLargestState = 16 << 20;

// "pt" is what PyTorch's own writer says of the names and layouts inside.
SafetensorsMetadata model_metadata() { return {{"format", "pt"}}; }

std::string read_state(const fs::path& path) {
  const InputFile file(path);
  if (file.size() > kLargestState) {
    throw DataError(path.string(), -1, fmt::format("a file of at most {} bytes", kLargestState),
                    fmt::format("{} bytes", file.size()));
  }
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

// state.json is written last and names the others, so a file of another checkpoint is refused too.
void check_seal(const SafetensorsFile& file, const CheckpointSeals& seals) {
  const auto found = seals.find(file.path().filename().string());
  const SafetensorsSeal expected = found == seals.end() ? SafetensorsSeal{} : found->second;
  if (file.seal() == expected) return;
  throw DataError(file.path().string(), -1,
                  fmt::format("{} bytes with header crc32 '{}', as {} says", expected.bytes,
                              expected.header_crc32, kStateFile),
                  fmt::format("{} bytes with '{}'", file.seal().bytes, file.seal().header_crc32));
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
  return safetensors_bytes(snapshot.model, model_metadata()) + safetensors_bytes(snapshot.optimizer) +
         kStateAndFolder;
}

void write_checkpoint_files(const fs::path& directory, const Snapshot& snapshot) {
  CheckpointSeals seals;
  seals[kModelFile] = write_safetensors(directory / kModelFile, snapshot.model, model_metadata());
  seals[kOptimizerFile] = write_safetensors(directory / kOptimizerFile, snapshot.optimizer);

  const std::string state = format_training_state(snapshot.state, seals);
  const fs::path path = directory / kStateFile;
  const UniqueFd fd(static_cast<int>(check(
      Sys{::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)}, "create " + path.string())));
  write_all(fd.get(), state, path);
  sync_file(fd.get(), path);
  sync_directory(directory);
}

Checkpoint load_checkpoint(const fs::path& path, CheckValues check) {
  CheckpointSeals seals;
  const fs::path state_path = path / kStateFile;
  TrainingState state = parse_training_state(read_state(state_path), state_path, seals);
  SafetensorsFile model = SafetensorsFile::open(path / kModelFile, Verify::required);
  check_seal(model, seals);
  SafetensorsFile optimizer = SafetensorsFile::open(path / kOptimizerFile, Verify::required);
  check_seal(optimizer, seals);
  Checkpoint checkpoint{path, std::move(state), TensorFiles(std::move(model)),
                        TensorFiles(std::move(optimizer))};
  if (check == CheckValues::all) {
    checkpoint.model.check_values();
    checkpoint.optimizer.check_values();
  }
  return checkpoint;
}

}  // namespace dtrain
