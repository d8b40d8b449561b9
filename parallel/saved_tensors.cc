#include "parallel/saved_tensors.h"

namespace dtrain {

namespace {

/// Those whose names begin with kExchangeState, or all others.
NamedTensors read_tensors(const TensorFiles& files, const std::shared_ptr<Device>& device,
                          bool of_an_exchange) {
  const auto host = device->runs_ahead() ? make_device("cpu") : device;
  NamedTensors tensors;
  for (const SavedTensor& saved : files.tensors()) {
    if (saved.name.starts_with(kExchangeState) != of_an_exchange) continue;
    const Tensor read = Tensor::empty(saved.shape, host, saved.dtype);
    files.read(saved.name, read.view());
    tensors.emplace_back(saved.name, host == device ? read : read.to(device));
  }
  return tensors;
}

}  // namespace

NamedTensors load_tensors(const TensorFiles& files, const std::shared_ptr<Device>& device) {
  return read_tensors(files, device, false);
}

NamedTensors load_exchange_state(const TensorFiles& files, const std::shared_ptr<Device>& device) {
  NamedTensors tensors = read_tensors(files, device, true);
  for (auto& [name, tensor] : tensors) name.erase(0, kExchangeState.size());
  return tensors;
}

std::vector<SavedPart> whole(const NamedTensors& tensors) {
  std::vector<SavedPart> parts;
  for (const auto& [name, tensor] : tensors) parts.push_back({name, tensor});
  return parts;
}

StateParts on_host(StateParts parts) {
  std::shared_ptr<Device> host;
  for (std::vector<SavedPart>* tensors : {&parts.model, &parts.optimizer}) {
    for (SavedPart& saved : *tensors) {
      if (!saved.tensor.device().runs_ahead()) continue;
      if (!host) host = make_device("cpu");
      saved.tensor = saved.tensor.detach().to(host);
    }
  }
  return parts;
}

std::vector<NamedView> views_of(const std::vector<SavedPart>& parts) {
  std::vector<NamedView> views;
  for (const SavedPart& saved : parts) views.push_back({saved.name, saved.tensor.view(), saved.part});
  return views;
}

}  // namespace dtrain
