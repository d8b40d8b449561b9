#include "training/run/saved_tensors.h"

namespace dtrain {

NamedTensors load_tensors(const TensorFiles& files, const std::shared_ptr<Device>& device) {
  const auto host = device->runs_ahead() ? make_device("cpu") : device;
  NamedTensors tensors;
  for (const SavedTensor& saved : files.tensors()) {
    const Tensor read = Tensor::empty(saved.shape, host, saved.dtype);
    files.read(saved.name, read.view());
    tensors.emplace_back(saved.name, host == device ? read : read.to(device));
  }
  return tensors;
}

StateParts on_host(StateParts parts) {
  std::shared_ptr<Device> host;
  for (NamedTensors* tensors : {&parts.model, &parts.optimizer}) {
    for (auto& [name, tensor] : *tensors) {
      if (!tensor.device().runs_ahead()) continue;
      if (!host) host = make_device("cpu");
      tensor = tensor.detach().to(host);
    }
  }
  return parts;
}

std::vector<NamedView> views_of(const NamedTensors& tensors) {
  std::vector<NamedView> views;
  for (const auto& [name, tensor] : tensors) views.push_back({name, tensor.view()});
  return views;
}

}  // namespace dtrain
