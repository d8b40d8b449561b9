#include "training/saving.h"

#include <fmt/format.h>

#include "parallel/layout/saved_tensors.h"
#include "runtime/base/error.h"
#include "runtime/base/files/durable_file.h"
#include "runtime/checkpoint/safetensors.h"
#include "training/loop/finite_check.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

// Where the network's tensors are: files are read to there.
std::shared_ptr<Device> device_of(const Module& network) {
  const NamedTensors state = network.state_dict();
  return state.empty() ? make_device("cpu") : state.front().second.shared_device();
}

// Not buffers: a mask of minus infinity may be one.
void check_finite(std::int64_t step, const Module& network, const Optimizer& optimizer) {
  const RankState numbers{whole(network.named_parameters()), whole(optimizer.named_state())};
  const auto name = FiniteCheck(device_of(network)).find(numbers);
  if (!name) return;
  throw Error(
      fmt::format("checkpoint of step {}: expected finite numbers, got {}, which is not; it was not "
                  "written, and those before are intact. Lower the learning rate, or limit gradients",
                  step, *name));
}

}  // namespace

fs::path save_checkpoint(CheckpointStore& store, const TrainingState& state, const Module& network,
                         const Optimizer& optimizer) {
  check_finite(state.step, network, optimizer);
  const RankState parts = on_host({whole(network.state_dict()), whole(optimizer.named_state())});
  return store.save({state, views_of(parts.model), views_of(parts.optimizer)});
}

void restore(const Checkpoint& checkpoint, Module& network, Optimizer& optimizer) {
  const auto device = device_of(network);
  network.load_state_dict(load_tensors(checkpoint.model, device));
  optimizer.load_state(load_tensors(checkpoint.optimizer, device));
}

void save_weights(const Module& network, const fs::path& path) {
  const RankState parts = on_host({whole(network.state_dict()), {}});
  fs::path beside = path;
  beside += ".tmp" + unique_suffix();
  std::error_code error;
  try {
    write_safetensors(beside, views_of(parts.model));
    fs::rename(beside, path, error);
    if (error) throw SystemError("rename to " + path.string(), error.value());
    sync_directory(path.has_parent_path() ? path.parent_path() : ".");
  } catch (...) {
    fs::remove(beside, error);
    throw;
  }
}

void load_weights(Module& network, const fs::path& path) {
  network.load_state_dict(load_tensors(TensorFiles::open(path), device_of(network)));
}

}  // namespace dtrain
