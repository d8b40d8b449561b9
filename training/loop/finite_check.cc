#include "training/loop/finite_check.h"

#include <cmath>
#include <vector>

#include "runtime/optim/guard/update_guard.h"

namespace dtrain {
namespace {

bool are_finite(std::span<const Tensor> tensors, const std::shared_ptr<Device>& device) {
  UpdateGuard guard(device);
  guard.inspect(tensors);
  return !guard.found_any();
}

/// The first value of `view`, of a floating field of one sample, that is not finite.
std::optional<double> bad_value(const View& view) {
  for (std::int64_t i = 0; i < view.numel(); ++i) {
    const double value = view.dtype == DType::f64 ? view.as<const double>()[i] : view.as<const float>()[i];
    if (!std::isfinite(value)) return value;
  }
  return std::nullopt;
}

std::optional<BadSample> bad_sample_in(const Batch& batch) {
  for (std::size_t field = 0; field < batch.views().size(); ++field) {
    const View& view = batch.views()[field];
    if (view.dtype != DType::f32 && view.dtype != DType::f64) continue;
    if (const auto value = bad_value(view)) return BadSample{batch.indices.front(), field, *value};
  }
  return std::nullopt;
}

}  // namespace

void FiniteCheck::take_new(const Module& network) {
  for (const auto& [name, buffer] : network.named_buffers()) {
    if (is_floating(buffer.dtype()) && !are_finite({&buffer, 1}, buffer.shared_device())) meant_.insert(name);
  }
}

std::optional<std::string> FiniteCheck::find(const RankState& parts) const {
  const auto in_model = find(parts.model);
  return in_model ? in_model : find(parts.optimizer);
}

std::optional<std::string> FiniteCheck::find(std::span<const NamedShard> parts) const {
  std::vector<Tensor> tensors;
  std::vector<const NamedShard*> looked_at;
  for (const NamedShard& part : parts) {
    if (!is_floating(part.tensor.dtype()) || meant_.contains(part.name)) continue;
    tensors.push_back(part.tensor.detach());
    looked_at.push_back(&part);
  }
  if (are_finite(tensors, device_)) return std::nullopt;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!are_finite({&tensors[i], 1}, device_)) return looked_at[i]->name;
  }
  return std::nullopt;
}

std::optional<std::string> FiniteCheck::find(const Checkpoint& checkpoint) const {
  auto name = find(checkpoint.model);
  if (!name) name = find(checkpoint.optimizer);
  return name ? std::optional(*name + " is not finite") : std::nullopt;
}

std::optional<std::string> FiniteCheck::find(const TensorFiles& files) const {
  const auto host = make_device("cpu");
  for (const SavedTensor& saved : files.tensors()) {
    if (!is_floating(saved.dtype) || meant_.contains(saved.name)) continue;
    const Tensor read = Tensor::empty(saved.shape, host, saved.dtype);
    files.read(saved.name, read.view());
    if (!are_finite({&read, 1}, host)) return saved.name;
  }
  return std::nullopt;
}

std::optional<BadSample> find_bad_sample(const std::shared_ptr<const Source>& source,
                                         std::vector<std::int64_t> indices, std::int64_t epoch,
                                         std::uint64_t seed, Duration patience) {
  if (indices.empty()) return std::nullopt;
  Loader loader(source, make_device("cpu"), {.batch_size = 1, .seed = seed});
  loader.start(std::move(indices), epoch);
  while (const auto batch = loader.next(Deadline::after(patience))) {
    if (auto found = bad_sample_in(*batch)) return found;
  }
  return std::nullopt;
}

}  // namespace dtrain
