#include "parallel/sync/used_parameters.h"

namespace dtrain {

UsedParameters used_anywhere(const UsedParameters& used, Communicator& ranks, const Deadline& deadline) {
  if (ranks.size() == 1 || used.empty()) return used;
  std::vector<std::int32_t> flags(used.begin(), used.end());
  ranks.all_reduce({flags.data(), flags.size(), DType::i32}, ReduceOp::max, "parameters that were used")
      ->wait(deadline);
  return {flags.begin(), flags.end()};
}

void complete_gradients(const NamedTensors& parameters, Communicator& ranks, const Deadline& deadline) {
  UsedParameters used;
  for (const auto& [name, tensor] : parameters) used.push_back(tensor.grad().defined());
  const UsedParameters by_any = used_anywhere(used, ranks, deadline);
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (!by_any[i] || used[i]) continue;
    Tensor parameter = parameters[i].second;
    parameter.set_grad(Tensor::zeros_like(parameter.detach()));
  }
}

GradientSlot used_slot(const std::vector<GradientSlot>& gradients) {
  const std::size_t count = gradients.size();
  return {"parameters that were used", count, gradients.front().dtype, {static_cast<std::int64_t>(count)}};
}

void write_used(Kernels& kernels, const View& slot, const UsedParameters& used) {
  kernels.fill(slot, 1.0);
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (used[i]) continue;
    const View one{static_cast<std::byte*>(slot.data) + i * size_of(slot.dtype), slot.dtype, {1}, {1}};
    kernels.fill(one, 0.0);
  }
}

UsedParameters read_used(const std::shared_ptr<Device>& device, const View& slot) {
  UsedParameters used;
  for (const double sum : Tensor::borrow(slot, device, nullptr).to_vector<double>()) used.push_back(sum > 0);
  return used;
}

}  // namespace dtrain
