#include "training/use/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "parallel/tensor/split_module.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"
#include "runtime/checkpoint/checkpoint_store.h"
#include "runtime/optim/weight_average.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

/// What of a network's state the weights do not have as it needs it.
class Comparison {
 public:
  /// `slices`: of a rank's part of a network, what of the whole its tensors are.
  Comparison(const NamedTensors& state, const SavedWeights& weights,
             const std::map<std::string, TensorShard>& slices)
      : state_(state), weights_(weights), slices_(slices) {
    for (const auto& [name, tensor] : state) compare(name, tensor);
    std::set<std::string> expected;
    for (const auto& [name, tensor] : state) expected.insert(weights.name_here(name));
    for (const SavedTensor& saved : weights.tensors.tensors()) {
      if (!expected.contains(saved.name)) mismatch_.unexpected.push_back(saved.name);
    }
  }

  void check(std::string_view network, MissingWeights missing) const {
    if (missing == MissingWeights::kept && kept_.size() < state_.size()) return;
    mismatch_.check(weights_.path, network, state_.size(),
                    "use a checkpoint of the same network, or give other names with dtrain convert --names");
  }
  /// Those of the network that the weights do not have as it needs them.
  const std::vector<std::string>& kept() const noexcept { return kept_; }
  /// Those of the weights that the network does not have.
  const std::vector<std::string>& unused() const noexcept { return mismatch_.unexpected; }

 private:
  void compare(const std::string& name, const Tensor& tensor) {
    const std::string& here = weights_.name_here(name);
    const SavedTensor* const saved = weights_.tensors.find(here);
    const auto slice = slices_.find(name);
    const Dims shape = slice == slices_.end() ? tensor.shape() : slice->second.shape;
    if (saved == nullptr) {
      if (tied(name, tensor)) return;
      mismatch_.missing.push_back(here);
      kept_.push_back(name);
    } else if (saved->shape != shape || !same_kind(saved->dtype, tensor.dtype())) {
      mismatch_.add_other(here, tensor.dtype(), shape, saved->dtype, saved->shape);
      kept_.push_back(name);
    }
  }

  /// Whether another name of the same memory is there.
  bool tied(const std::string& name, const Tensor& tensor) const {
    return std::any_of(state_.begin(), state_.end(), [&](const auto& other) {
      return other.first != name && other.second.view().data == tensor.view().data &&
             other.second.shape() == tensor.shape() &&
             weights_.tensors.find(weights_.name_here(other.first)) != nullptr;
    });
  }

  const NamedTensors& state_;
  const SavedWeights& weights_;
  const std::map<std::string, TensorShard>& slices_;
  WeightMismatch mismatch_;
  std::vector<std::string> kept_;
};

/// In which of the files a tensor's values are to be found, and its name there.
std::pair<const TensorFiles*, std::string> place_of(const SavedWeights& weights, const std::string& name) {
  std::string average = name_of_average(name);
  if (weights.averages && weights.averages->find(average) != nullptr)
    return {&*weights.averages, std::move(average)};
  return {&weights.tensors, name};
}

SavedWeights weights_of(Checkpoint checkpoint) {
  SavedWeights weights{checkpoint.path, std::move(checkpoint.model), checkpoint.state.extra};
  const auto is_average = [](const SavedTensor& saved) { return saved.name.ends_with(name_of_average("")); };
  if (std::ranges::any_of(checkpoint.optimizer.tensors(), is_average))
    weights.averages = std::move(checkpoint.optimizer);
  return weights;
}

}  // namespace

void SavedWeights::read(const std::string& name, const View& target) const {
  const auto [files, stored] = place_of(*this, name);
  files->read(stored, target);
}

void SavedWeights::read(const std::string& name, const TensorShard& part, const View& target) const {
  const auto [files, stored] = place_of(*this, name);
  files->read(stored, part, target);
}

SavedWeights open_weights(const fs::path& path, std::string_view option, Log& log) {
  if (fs::is_regular_file(path)) return {path, TensorFiles::open(path), {}};
  if (!fs::is_directory(path)) {
    throw UsageError(
        fmt::format("{} {}: expected a run directory, a checkpoint directory or a .safetensors "
                    "file; there is none",
                    option, path.string()));
  }
  if (fs::exists(path / "state.json")) return weights_of(load_checkpoint(path));
  const fs::path folder = fs::exists(path / "checkpoints") ? path / "checkpoints" : path;
  auto newest = CheckpointStore(folder, 0, log).latest();
  if (!newest) throw DataError(folder.string(), -1, "a checkpoint that verifies", "none");
  return weights_of(std::move(*newest));
}

LeftOut load_weights(Module& network, const SavedWeights& weights, std::string_view network_name,
                     MissingWeights missing) {
  const NamedTensors state = network.state_dict();
  const auto slices = slices_of(network);
  const Comparison comparison(state, weights, slices);
  comparison.check(network_name, missing);
  const NoGrad no_grad;
  const auto host = make_device("cpu");
  for (const auto& [name, target] : state) {
    const SavedTensor* const saved = weights.tensors.find(weights.name_here(name));
    if (saved == nullptr) continue;  // another name of what is there, or kept
    if (std::ranges::find(comparison.kept(), name) != comparison.kept().end()) continue;
    const auto slice = slices.find(name);
    const Tensor read = Tensor::empty(target.shape(), host, saved->dtype);
    if (slice == slices.end()) {
      weights.read(saved->name, read.view());
    } else {
      weights.read(saved->name, slice->second, read.view());
    }
    Tensor own = target;
    own.copy_from(read.to(target.dtype()).to(target.shared_device()));
  }
  return {comparison.kept(), comparison.unused()};
}

}  // namespace dtrain
