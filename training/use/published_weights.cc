#include "training/use/published_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "parallel/tensor/split_module.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "training/use/weight_mismatch.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kFile = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

/// Which file of the folder has which tensor.
std::map<std::string, std::string> read_index(const fs::path& path) {
  std::ifstream in(path);
  const Json index = Json::parse(in, nullptr, false);
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || map == index.end() || !map->is_object())
    throw DataError(path.string(), -1, "an index with a weight_map", "something else");
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : map->items()) {
    const bool plain =
        file.is_string() && fs::path(file.get<std::string>()).filename() == file.get<std::string>();
    if (!plain)
      throw DataError(path.string(), -1, fmt::format("the name of a file for {}", name), file.dump());
    files[name] = file.get<std::string>();
  }
  return files;
}

bool has_pickles(const fs::path& folder) {
  return fs::exists(folder / "pytorch_model.bin") || fs::exists(folder / "pytorch_model.bin.index.json");
}

[[noreturn]] void refuse_folder(const fs::path& folder) {
  throw DataError(
      folder.string(), -1, fmt::format("{} or {}", kFile, kIndex),
      has_pickles(folder)
          ? "pytorch_model.bin, which could run code when it is read; load it with transformers and "
            "save_pretrained() it again"
          : "neither");
}

Tensor slice_of(Tensor whole, const TensorShard& shard) {
  for (int dim = 0; dim < whole.rank(); ++dim)
    whole = whole.slice(dim, shard.begin[dim], shard.begin[dim] + shard.extent[dim]);
  return whole;
}

/// The shape of a part of a tensor of `ours`.
Dims shape_of(const PublishedTensor& tensor, const PublishedTensor::Part& part, const Dims& ours) {
  Dims shape = ours;
  shape[0] = part.rows;
  if (tensor.transposed) std::swap(shape[0], shape[1]);
  return shape;
}

/// A loading: first everything is compared, then copied.
class Loading {
 public:
  Loading(Module& network, const PublishedWeights& weights, const PublishedFormat& format)
      : state_(network.state_dict()), weights_(weights), format_(format), slices_(slices_of(network)) {
    for (const std::string& name : weights.names()) {
      const std::string known = format.canonical(name);
      if (!known.empty()) saved_as_.emplace(known, name);
    }
    for (const PublishedTensor& tensor : format.tensors) compare(tensor);
    for (const auto& [known, name] : saved_as_) {
      if (!expected_.contains(known)) mismatch_.unexpected.push_back(name);
    }
  }

  void check(std::string_view network, MissingWeights missing) const {
    const bool partial = missing == MissingWeights::kept;
    if (partial && kept_.size() < format_.tensors.size()) return;
    mismatch_.check(weights_.folder(), network, format_.tensors.size(),
                    partial ? "nothing of them fits" : "use the model that config.json describes");
  }

  LeftOut copy() const {
    const NoGrad no_grad;
    const auto host = make_device("cpu");
    for (const PublishedTensor& tensor : format_.tensors) {
      if (kept_.contains(tensor.ours)) continue;
      Tensor target = here(tensor.ours);
      const Tensor whole = whole_of(tensor, host);
      const auto slice = slices_.find(tensor.ours);
      const Tensor own = slice == slices_.end() ? whole : slice_of(whole, slice->second);
      target.copy_from(own.contiguous().to(target.dtype()).to(target.shared_device()));
    }
    return {{kept_.begin(), kept_.end()}, mismatch_.unexpected};
  }

 private:
  const Tensor& here(const std::string& ours) const {
    const auto found = std::ranges::find(state_, ours, &NamedTensor::first);
    if (found == state_.end())
      throw UsageError(fmt::format("expected a network with a tensor {}, got none", ours));
    return found->second;
  }

  void compare(const PublishedTensor& tensor) {
    const Tensor& own = here(tensor.ours);
    const auto slice = slices_.find(tensor.ours);
    const Dims whole = slice == slices_.end() ? own.shape() : slice->second.shape;
    for (const PublishedTensor::Part& part : tensor.parts) {
      expected_.insert(part.name);
      const auto saved = saved_as_.find(part.name);
      if (saved == saved_as_.end()) {
        mismatch_.missing.push_back(part.name);
        kept_.insert(tensor.ours);
        continue;
      }
      const SavedTensor& found = weights_.find(saved->second);
      const Dims shape = shape_of(tensor, part, whole);
      if (found.shape == shape && same_kind(found.dtype, own.dtype())) continue;
      mismatch_.add_other(saved->second, own.dtype(), shape, found.dtype, found.shape);
      kept_.insert(tensor.ours);
    }
  }

  /// Our tensor of all ranks, float32.
  Tensor whole_of(const PublishedTensor& tensor, const std::shared_ptr<Device>& host) const {
    Tensors parts;
    for (const PublishedTensor::Part& part : tensor.parts) {
      const Tensor read = weights_.read(saved_as_.at(part.name), host).to(DType::f32);
      parts.push_back(tensor.transposed ? read.transpose(0, 1) : read);
    }
    const Tensor whole = parts.size() == 1 ? parts[0] : cat(parts, 0);
    if (tensor.rows.empty()) return whole;
    return whole.index_select(0, Tensor::from_data(tensor.rows, {whole.size(0)}, host));
  }

  NamedTensors state_;
  const PublishedWeights& weights_;
  const PublishedFormat& format_;
  std::map<std::string, TensorShard> slices_;
  std::map<std::string, std::string> saved_as_;  ///< PublishedTensor's name → the file's
  std::set<std::string> expected_, kept_;        ///< names of theirs; of ours
  WeightMismatch mismatch_;
};

}  // namespace

bool PublishedWeights::is_folder(const fs::path& path) {
  if (!fs::exists(path / "config.json") || fs::exists(path / "state.json")) return false;
  return fs::exists(path / kFile) || fs::exists(path / kIndex) || has_pickles(path);
}

PublishedWeights PublishedWeights::open(const fs::path& folder) {
  PublishedWeights weights;
  weights.folder_ = folder;
  std::map<std::string, std::string> index;
  std::vector<std::string> files;
  if (fs::exists(folder / kIndex)) {
    index = read_index(folder / kIndex);
    for (const auto& [name, file] : index) {
      if (std::ranges::find(files, file) == files.end()) files.push_back(file);
    }
  } else if (fs::exists(folder / kFile)) {
    files = {kFile};
  } else {
    refuse_folder(folder);
  }
  for (const std::string& file : files) {
    weights.files_.push_back(TensorFiles::open(folder / file));
    for (const SavedTensor& saved : weights.files_.back().tensors()) {
      if (index.empty() || (index.contains(saved.name) && index.at(saved.name) == file))
        weights.file_of_.emplace(saved.name, weights.files_.size() - 1);
    }
  }
  for (const auto& [name, file] : index) {
    if (!weights.file_of_.contains(name))
      throw DataError((folder / file).string(), -1, fmt::format("{}, as {} says", name, kIndex),
                      "no such tensor");
  }
  return weights;
}

std::vector<std::string> PublishedWeights::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : file_of_) names.push_back(name);
  return names;
}

const SavedTensor& PublishedWeights::find(const std::string& name) const {
  const auto file = file_of_.find(name);
  if (file == file_of_.end())
    throw UsageError(fmt::format("{}: expected a tensor {}, got none", folder_.string(), name));
  return *files_[file->second].find(name);
}

Tensor PublishedWeights::read(const std::string& name, const std::shared_ptr<Device>& host) const {
  const SavedTensor& saved = find(name);
  const Tensor tensor = Tensor::empty(saved.shape, host, saved.dtype);
  files_[file_of_.at(name)].read(name, tensor.view());
  return tensor;
}

LeftOut load_published(Module& network, const PublishedWeights& weights, const PublishedFormat& format,
                       std::string_view network_name, MissingWeights missing) {
  const Loading loading(network, weights, format);
  loading.check(network_name, missing);
  return loading.copy();
}

}  // namespace dtrain
