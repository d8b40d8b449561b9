#include "training/saved_tensors.h"

namespace dtrain {

NamedTensors load_tensors(const SafetensorsFile& file, const std::shared_ptr<Device>& device) {
  const auto host = device->type() == DeviceType::cpu ? device : make_device("cpu");
  NamedTensors tensors;
  for (const NamedView& named : file.tensors()) {
    const Tensor mapped = Tensor::borrow(named.view, host, nullptr);
    tensors.emplace_back(named.name, host == device ? mapped.clone() : mapped.to(device));
  }
  return tensors;
}

NamedTensors on_host(NamedTensors tensors) {
  std::shared_ptr<Device> host;
  for (auto& [name, tensor] : tensors) {
    if (tensor.device().type() == DeviceType::cpu) continue;
    if (!host) host = make_device("cpu");
    tensor = tensor.detach().to(host);
  }
  return tensors;
}

std::vector<NamedView> views_of(const NamedTensors& tensors) {
  std::vector<NamedView> views;
  for (const auto& [name, tensor] : tensors) views.push_back({name, tensor.view()});
  return views;
}

}  // namespace dtrain
