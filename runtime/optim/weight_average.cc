#include "runtime/optim/weight_average.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"
#include "runtime/optim/device_groups.h"
#include "runtime/optim/state.h"

namespace dtrain {
namespace {

constexpr std::string_view kAverage = "ema";

bool has_average(const NamedTensor& tensor) { return is_floating(tensor.second.dtype()); }

}  // namespace

std::string name_of_average(const std::string& tensor) { return tensor + "." + std::string(kAverage); }

NamedTensors take_averages(NamedTensors& state) {
  const auto is_other = [](const NamedTensor& tensor) {
    return !tensor.first.ends_with(name_of_average(""));
  };
  const auto first = std::stable_partition(state.begin(), state.end(), is_other);
  NamedTensors averages(std::make_move_iterator(first), std::make_move_iterator(state.end()));
  state.erase(first, state.end());
  return averages;
}

WeightAverage::WeightAverage(const NamedTensors& tensors, AverageOptions options) : options_(options) {
  if (options.decay && !(*options.decay >= 0 && *options.decay <= 1))
    throw UsageError("weight average: expected a decay in [0, 1], got " + std::to_string(*options.decay));
  std::ranges::copy_if(tensors, std::back_inserter(tensors_), has_average);
  averages_.resize(tensors_.size());
}

void WeightAverage::update() {
  if (options_.decay) blend(1 - *options_.decay);
}

void WeightAverage::add() {
  if (!options_.decay) blend(1.0 / static_cast<double>(++count_));
}

void WeightAverage::blend(double share) {
  const NoGrad no_grad;
  DeviceGroups devices;
  std::vector<std::vector<OptimizerSlot>> slots;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& weights = tensors_[i].second;
    if (!averages_[i].defined()) {
      averages_[i] = weights.detach().clone();
      continue;
    }
    const std::size_t device = devices.find(weights.shared_device());
    slots.resize(std::max(slots.size(), device + 1));
    slots[device].push_back({averages_[i].view(), weights.view(), {}, {}, {}});
    averages_[i].mark_modified();
  }
  for (std::size_t i = 0; i < slots.size(); ++i)
    devices.devices()[i]->kernels().lerp(slots[i], {.weight = share});
}

void WeightAverage::swap() {
  const NoGrad no_grad;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!averages_[i].defined()) continue;
    Tensor weights = tensors_[i].second.detach();
    const Tensor kept = weights.clone();
    weights.copy_from(averages_[i]);
    averages_[i].copy_from(kept);
  }
  if (hand_on_) hand_on_();
}

NamedTensors WeightAverage::named_state() const {
  NamedTensors state;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (averages_[i].defined()) state.emplace_back(name_of_average(tensors_[i].first), averages_[i]);
  }
  return state;
}

void WeightAverage::load_state(const NamedTensors& state) {
  SavedState saved(state);
  std::vector<Tensor> averages;
  for (const auto& [name, tensor] : tensors_) averages.push_back(saved.take(name, kAverage, tensor.detach()));
  saved.check_all_taken();
  averages_ = std::move(averages);
}

}  // namespace dtrain
