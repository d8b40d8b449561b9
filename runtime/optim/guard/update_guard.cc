#include "runtime/optim/guard/update_guard.h"

#include <vector>

#include "runtime/optim/device_groups.h"

namespace dtrain {

UpdateGuard::UpdateGuard(const std::shared_ptr<Device>& device)
    : gate_(Tensor::zeros({2}, device)), found_(gate_.slice(0, 0, 1)), corrupted_(gate_.slice(0, 1, 2)) {}

void UpdateGuard::attach(Optimizer& optimizer) const { optimizer.set_gate(gate_); }

void UpdateGuard::inspect(std::span<const Tensor> gradients) {
  look_at(gradients, [](const std::shared_ptr<Device>& there, std::span<const View> views,
                        const View& found) { there->kernels().find_not_finite(views, found); });
}

// Each device looks at its own; those that are not the flag's have one of their own for the moment.
void UpdateGuard::look_at(std::span<const Tensor> gradients, const Look& look) {
  DeviceGroups groups;
  const std::shared_ptr<Device>& home = found_.shared_device();
  std::vector<std::vector<View>> views(groups.find(home) + 1);
  for (const Tensor& gradient : gradients) {
    if (!gradient.defined()) continue;
    const std::size_t group = groups.find(gradient.shared_device());
    views.resize(groups.devices().size());
    views[group].push_back(gradient.view());
  }
  look(home, views.front(), found_.view());
  for (std::size_t group = 1; group < views.size(); ++group) {
    const std::shared_ptr<Device>& there = groups.devices()[group];
    const Tensor found = Tensor::zeros({1}, there);
    look(there, views[group], found.view());
    home->kernels().binary(BinaryOp::max, found_.view(), found.to(home).view(), found_.view());
  }
  found_.mark_modified();
}

}  // namespace dtrain
