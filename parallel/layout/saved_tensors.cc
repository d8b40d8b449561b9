#include "parallel/layout/saved_tensors.h"

#include <algorithm>

#include "parallel/layout/parameter_layout.h"

namespace dtrain {

NamedTensors load_tensors(const TensorFiles& files, const std::shared_ptr<Device>& device) {
  return read_state(files, {}, device, [](const std::string& saved) {
    return saved.starts_with(kSyncState) ? std::nullopt : std::optional(saved);
  });
}

NamedTensors named_for_saving(NamedTensors state) {
  for (auto& [name, tensor] : state) name.insert(0, kSyncState);
  return state;
}

std::optional<std::string> name_in_sync(const std::string& saved) {
  return saved.starts_with(kSyncState) ? std::optional(saved.substr(kSyncState.size())) : std::nullopt;
}

bool belongs_to(std::string_view name, std::string_view tensor) {
  return name.starts_with(tensor) && (name.size() == tensor.size() || name[tensor.size()] == '.');
}

bool belongs_to(std::string_view name, const NamedTensors& tensors) {
  return std::ranges::any_of(tensors,
                             [&](const NamedTensor& tensor) { return belongs_to(name, tensor.first); });
}

std::vector<NamedShard> whole(const NamedTensors& tensors) {
  std::vector<NamedShard> parts;
  for (const auto& [name, tensor] : tensors) parts.push_back({name, tensor});
  return parts;
}

RankState on_host(RankState parts) {
  std::shared_ptr<Device> host;
  for (std::vector<NamedShard>* tensors : {&parts.model, &parts.optimizer}) {
    for (NamedShard& saved : *tensors) {
      if (!saved.tensor.device().runs_ahead()) continue;
      if (!host) host = make_device("cpu");
      saved.tensor = saved.tensor.detach().to(host);
    }
  }
  return parts;
}

std::vector<NamedView> views_of(const std::vector<NamedShard>& parts) {
  std::vector<NamedView> views;
  for (const NamedShard& saved : parts) views.push_back({saved.name, saved.tensor.view(), saved.part});
  return views;
}

}  // namespace dtrain
