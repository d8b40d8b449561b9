#include "parallel/layout/saved_tensors.h"

#include <algorithm>

#include "parallel/layout/parameter_layout.h"

namespace dtrain {

NamedTensors load_tensors(const TensorFiles& files, const std::shared_ptr<Device>& device) {
  return read_state(files, {}, device, [](const std::string& saved) {
    return saved.starts_with(kExchangeState) ? std::nullopt : std::optional(saved);
  });
}

std::optional<std::string> name_in_exchange(const std::string& saved) {
  return saved.starts_with(kExchangeState) ? std::optional(saved.substr(kExchangeState.size()))
                                           : std::nullopt;
}

bool belongs_to(std::string_view name, const NamedTensors& tensors) {
  return std::ranges::any_of(tensors, [&](const NamedTensor& tensor) {
    return name.starts_with(tensor.first) &&
           (name.size() == tensor.first.size() || name[tensor.first.size()] == '.');
  });
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
