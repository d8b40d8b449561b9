// Writes the files of a checkpoint and reads them back with every byte verified.
#include "runtime/checkpoint/checkpoint_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <charconv>

#include "runtime/base/check.h"
#include "runtime/base/durable_file.h"
#include "runtime/base/fd.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kStateFile = "state.json";
constexpr std::string_view kNamePrefix = "step-";
constexpr std::int64_t kLargestState = 16 << 20;

// "pt" is what PyTorch's own writer says of the names and layouts inside.
SafetensorsMetadata model_metadata() { return {{"format", "pt"}}; }

std::string read_state(const fs::path& path) {
  const UniqueFd fd(static_cast<int>(
      check(Sys{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)}, "open " + path.string())));
  struct stat status {};
  check(Sys{::fstat(fd.get(), &status)}, "fstat " + path.string());
  if (!S_ISREG(status.st_mode) || status.st_size > kLargestState) {
    throw DataError(path.string(), -1, fmt::format("a regular file of at most {} bytes", kLargestState),
                    fmt::format("{} bytes", status.st_size));
  }
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t have = 0;
  while (have < text.size()) {
    const ssize_t got = ::read(fd.get(), text.data() + have, text.size() - have);
    if (got == -1 && errno == EINTR) continue;
    check(Sys{got}, "read " + path.string());
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  text.resize(have);
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

Checkpoint load_checkpoint(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    throw DataError(path.string(), -1, "a checkpoint directory (step-…) with state.json in it",
                    error ? error.message() : "something else");
  }
  CheckpointSeals seals;
  const fs::path state_path = path / kStateFile;
  TrainingState state = parse_training_state(read_state(state_path), state_path, seals);
  SafetensorsFile model = SafetensorsFile::open(path / kModelFile, Verify::required);
  check_seal(model, seals);
  SafetensorsFile optimizer = SafetensorsFile::open(path / kOptimizerFile, Verify::required);
  check_seal(optimizer, seals);
  return {path, std::move(state), std::move(model), std::move(optimizer)};
}

}  // namespace dtrain
