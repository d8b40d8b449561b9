#include "tests/parity/language/recorded_model.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/checkpoint/safetensors.h"

namespace dtrain::test {

namespace fs = std::filesystem;

RecordedModel::RecordedModel(const std::string& name)
    : config_(fs::path(DTRAIN_RECORDINGS) / (name + ".json")),
      files_(TensorFiles::open(fs::path(DTRAIN_RECORDINGS) / (name + ".safetensors"))),
      model_(read_text_config(config_)),
      device_(make_device("cpu")) {}

Tensor RecordedModel::read(const std::string& name) const {
  const SavedTensor* const saved = files_.find(name);
  if (saved == nullptr) throw UsageError("recording: expected " + name + ", got none");
  const Tensor tensor = Tensor::empty(saved->shape, device_, saved->dtype);
  files_.read(name, tensor.view());
  return tensor;
}

NamedTensors RecordedModel::all(const std::string& prefix) const {
  NamedTensors found;
  for (const SavedTensor& saved : files_.tensors()) {
    if (saved.name.starts_with(prefix))
      found.emplace_back(saved.name.substr(prefix.size()), read(saved.name));
  }
  return found;
}

fs::path RecordedModel::publish(const TempDir& dir, const std::string& name,
                                const NamedTensors& tensors) const {
  const fs::path folder = dir / name;
  fs::create_directories(folder);
  fs::copy_file(config_, folder / "config.json");
  std::vector<NamedView> views;
  for (const auto& [key, tensor] : tensors) views.push_back({key, tensor.view()});
  write_safetensors(folder / "model.safetensors", views, {{"format", "pt"}});
  return folder;
}

double relative_difference(const Tensor& got, const Tensor& expected) {
  const auto a = got.to_vector<double>(), b = expected.to_vector<double>();
  if (got.shape() != expected.shape()) return INFINITY;
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!(std::abs(a[i] - b[i]) <= difference)) difference = std::abs(a[i] - b[i]);  // NaN is large
    largest = std::max(largest, std::abs(b[i]));
  }
  return difference / largest;
}

}  // namespace dtrain::test
