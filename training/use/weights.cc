#include "training/use/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"
#include "runtime/checkpoint/checkpoint_store.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostNamed = 8;

std::string listed(const std::vector<std::string>& names) {
  if (names.size() <= kMostNamed) return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{} and {} more", fmt::join(names.begin(), names.begin() + kMostNamed, ", "),
                     names.size() - kMostNamed);
}

std::string described(DType dtype, const Dims& shape) {
  return fmt::format("{} {}", name_of(dtype), shape.to_string());
}

bool same_kind(DType a, DType b) { return a == b || (is_floating(a) && is_floating(b)); }

/// What of a network's state the weights do not have as it needs it.
class Comparison {
 public:
  Comparison(const NamedTensors& state, const SavedWeights& weights) : state_(state), weights_(weights) {
    for (const auto& [name, tensor] : state) compare(name, tensor);
    std::set<std::string> expected;
    for (const auto& [name, tensor] : state) expected.insert(weights.name_here(name));
    for (const SavedTensor& saved : weights.tensors.tensors()) {
      if (!expected.contains(saved.name)) unexpected_.push_back(saved.name);
    }
  }

  void check(std::string_view network) const {
    std::string found;
    const auto add = [&found](const char* what, const std::vector<std::string>& list) {
      if (list.empty()) return;
      found += fmt::format("{}{}: {}", found.empty() ? "" : "; ", what, listed(list));
    };
    add("other tensors", other_);
    add("missing", missing_);
    add("unexpected", unexpected_);
    if (found.empty()) return;
    throw DataError(
        weights_.path.string(), -1, fmt::format("the weights of {} ({} tensors)", network, state_.size()),
        found + "; use a checkpoint of the same network, or give other names with dtrain convert --names");
  }

 private:
  void compare(const std::string& name, const Tensor& tensor) {
    const std::string& here = weights_.name_here(name);
    const SavedTensor* const saved = weights_.tensors.find(here);
    if (saved == nullptr) {
      if (!tied(name, tensor)) missing_.push_back(here);
    } else if (saved->shape != tensor.shape() || !same_kind(saved->dtype, tensor.dtype())) {
      other_.push_back(fmt::format("{} (expected {}, found {})", here,
                                   described(tensor.dtype(), tensor.shape()),
                                   described(saved->dtype, saved->shape)));
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
  std::vector<std::string> missing_, unexpected_, other_;
};

}  // namespace

SavedWeights open_weights(const fs::path& path, std::string_view option, Log& log) {
  if (fs::is_regular_file(path)) return {path, TensorFiles::open(path), {}};
  if (!fs::is_directory(path)) {
    throw UsageError(
        fmt::format("{} {}: expected a run directory, a checkpoint directory or a .safetensors "
                    "file; there is none",
                    option, path.string()));
  }
  if (fs::exists(path / "state.json")) {
    Checkpoint checkpoint = load_checkpoint(path);
    return {checkpoint.path, std::move(checkpoint.model), checkpoint.state.extra};
  }
  const fs::path folder = fs::exists(path / "checkpoints") ? path / "checkpoints" : path;
  auto newest = CheckpointStore(folder, 0, log).latest();
  if (!newest) throw DataError(folder.string(), -1, "a checkpoint that verifies", "none");
  return {newest->path, std::move(newest->model), newest->state.extra};
}

void load_weights(Module& network, const SavedWeights& weights, std::string_view network_name) {
  const NamedTensors state = network.state_dict();
  Comparison(state, weights).check(network_name);
  const NoGrad no_grad;
  const auto host = make_device("cpu");
  for (const auto& [name, target] : state) {
    const SavedTensor* const saved = weights.tensors.find(weights.name_here(name));
    if (saved == nullptr) continue;  // another name of what is there
    const Tensor read = Tensor::empty(saved->shape, host, saved->dtype);
    weights.tensors.read(saved->name, read.view());
    Tensor own = target;
    own.copy_from(read.to(target.dtype()).to(target.shared_device()));
  }
}

}  // namespace dtrain
