#include "training/run/saved_tensors.h"

namespace dtrain {

NamedTensors load_tensors(const TensorFiles& files, const std::shared_ptr<Device>& device) {
  const auto host = device->type() == DeviceType::cpu ? device : make_device("cpu");
  NamedTensors tensors;
  for (const SavedTensor& saved : files.tensors()) {
    const Tensor read = Tensor::empty(saved.shape, host, saved.dtype);
    files.read(saved.name, read.view());
    tensors.emplace_back(saved.name, host == device ? read : read.to(device));
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
