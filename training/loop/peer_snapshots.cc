// A copy is a checkpoint like any other, in a folder of its own: it appears whole or not at all, and
// verifies.
#include "training/loop/peer_snapshots.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "runtime/base/error.h"
#include "runtime/base/options.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFiles[] = {"model.safetensors", "optimizer.safetensors", "state.json"};
constexpr std::size_t kPieceBytes = std::size_t{32} << 20;

// The first rank of each node keeps the node's copy.
bool is_first_of_node(Communicator& communicator, const Environment& environment, const Deadline& deadline) {
  std::int64_t own = parse_integer(variable_or(environment, "GROUP_RANK", "0")).value_or(0);
  std::vector<std::int64_t> nodes(static_cast<std::size_t>(communicator.size()));
  communicator
      .all_gather({.data = &own, .count = 1, .dtype = DType::i64},
                  {.data = nodes.data(), .count = nodes.size(), .dtype = DType::i64}, "nodes of the ranks")
      ->wait(deadline);
  return std::find(nodes.begin(), nodes.end(), own) - nodes.begin() == communicator.rank();
}

std::string read_piece(std::ifstream& file, std::size_t bytes) {
  std::string piece(bytes, '\0');
  file.read(piece.data(), static_cast<std::streamsize>(bytes));
  return piece;
}

}  // namespace

PeerSnapshots::PeerSnapshots(Communicator& communicator, const Environment& environment, Log& log,
                             Duration patience)
    : communicator_(communicator),
      log_(log),
      patience_(patience),
      folder_(variable_or(environment, "DTRAIN_MEMORY_DIR", "")) {
  const Deadline deadline = Deadline::after(patience);
  const bool keeps = is_first_of_node(communicator, environment, deadline);
  const int rank = static_cast<int>(all_max(keeps && folder_.empty() ? communicator.rank() : -1, deadline));
  if (rank >= 0)
    throw UsageError(fmt::format(
        "--peer-snapshots: expected a folder in memory from the launcher (DTRAIN_MEMORY_DIR), got "
        "none on rank {}; start workers with dtrain-launch, on a machine with /dev/shm",
        rank));
  if (!keeps) return;
  store_ = std::make_unique<CheckpointStore>(folder_ / "snapshots", 1, log);
  saver_ = std::make_unique<CheckpointSaver>(
      store_.get(), log, CheckpointSaverOptions{.on_failure = [this](const Error& error) { warn(error); }});
}

PeerSnapshots::~PeerSnapshots() = default;

std::int64_t PeerSnapshots::all_max(std::int64_t value, const Deadline& deadline) {
  communicator_
      .all_reduce({.data = &value, .count = 1, .dtype = DType::i64}, ReduceOp::max, "peer snapshots")
      ->wait(deadline);
  return value;
}

std::optional<Checkpoint> PeerSnapshots::find(std::int64_t step, const Deadline& deadline) {
  std::optional<Checkpoint> own;
  try {
    if (store_) own = store_->latest();
  } catch (const Error& error) {
    log_.write(LogLevel::warning,
               fmt::format("the copy of the training state here cannot be used: {}", error.what()));
  }
  const std::int64_t on_disk = all_max(communicator_.rank() == 0 ? step : -1, deadline);
  const std::int64_t here = own ? own->state.step : -1;
  const std::int64_t newest = all_max(here, deadline);
  if (newest <= on_disk) return std::nullopt;
  // Of equals the one with the lowest rank: rank 0's needs no sending.
  const auto holder = communicator_.size() - 1 -
                      static_cast<int>(all_max(
                          here == newest ? communicator_.size() - 1 - communicator_.rank() : -1, deadline));
  if (holder == 0) return communicator_.rank() == 0 ? std::move(own) : std::nullopt;
  if (communicator_.rank() == holder) send(*own, deadline);
  return communicator_.rank() == 0 ? receive(holder, deadline) : std::nullopt;
}

void PeerSnapshots::send(const Checkpoint& checkpoint, const Deadline& deadline) {
  for (const char* name : kFiles) {
    std::ifstream file(checkpoint.path / name, std::ios::binary);
    auto left = static_cast<std::int64_t>(fs::file_size(checkpoint.path / name));
    communicator_.send({.data = &left, .count = 1, .dtype = DType::i64}, 0, "size of a peer's snapshot")
        ->wait(deadline);
    while (left > 0) {
      std::string piece = read_piece(file, std::min(kPieceBytes, static_cast<std::size_t>(left)));
      communicator_
          .send({.data = piece.data(), .count = piece.size(), .dtype = DType::u8}, 0, "a peer's snapshot")
          ->wait(deadline);
      left -= static_cast<std::int64_t>(piece.size());
    }
  }
}

std::optional<Checkpoint> PeerSnapshots::receive(int from, const Deadline& deadline) {
  const fs::path folder = folder_ / "received";
  fs::remove_all(folder);
  fs::create_directories(folder);
  for (const char* name : kFiles) {
    std::ofstream file(folder / name, std::ios::binary);
    std::int64_t left = 0;
    communicator_
        .receive({.data = &left, .count = 1, .dtype = DType::i64}, from, "size of a peer's snapshot")
        ->wait(deadline);
    while (left > 0) {
      std::string piece(std::min(kPieceBytes, static_cast<std::size_t>(left)), '\0');
      communicator_
          .receive({.data = piece.data(), .count = piece.size(), .dtype = DType::u8}, from,
                   "a peer's snapshot")
          ->wait(deadline);
      file.write(piece.data(), static_cast<std::streamsize>(piece.size()));
      left -= static_cast<std::int64_t>(piece.size());
    }
  }
  try {
    return load_checkpoint(folder);
  } catch (const Error& error) {
    log_.write(LogLevel::warning,
               fmt::format("the copy of the training state from rank {} cannot be used here: {}", from,
                           error.what()));
    return std::nullopt;
  }
}

void PeerSnapshots::keep(const Snapshot& snapshot) {
  try {
    saver_->save(snapshot, Deadline::after(patience_));
  } catch (const SystemError& error) {
    warn(error);
  }
}

void PeerSnapshots::drop_from(std::int64_t step) {
  if (!keeps()) return;
  try {
    saver_->wait(Deadline::after(patience_));
  } catch (const Error& error) {
    warn(error);
  }
  saver_->poll();
  for (const CheckpointEntry& entry : store_->list()) {
    std::error_code ignored;
    if (entry.step >= step) fs::remove_all(entry.path, ignored);
  }
}

void PeerSnapshots::warn(const Error& error) {
  if (std::exchange(warned_, true)) return;
  log_.write(
      LogLevel::warning,
      fmt::format("no copy of the training state was kept in memory: {}; training continues (reported once)",
                  error.what()));
}

}  // namespace dtrain
