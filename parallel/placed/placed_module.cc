#include "parallel/placed/placed_module.h"

#include <fmt/format.h>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

Tensors brought(const Tensors& tensors, const std::shared_ptr<Device>& device) {
  Tensors here;
  for (const Tensor& tensor : tensors) here.push_back(tensor.defined() ? tensor.to(device) : tensor);
  return here;
}

class PlacedModule final : public Module {
 public:
  PlacedModule(std::shared_ptr<Module> module, std::shared_ptr<Device> device)
      : module_(std::move(module)), device_(std::move(device)) {
    const auto is_own = [](const NamedTensor& named) { return named.first.find('.') == std::string::npos; };
    for (const NamedTensor& parameter : module_->named_parameters()) {
      const bool learns = parameter.second.requires_grad();
      if (is_own(parameter)) add_parameter(parameter.first, parameter.second).set_requires_grad(learns);
    }
    for (const NamedTensor& buffer : module_->named_buffers()) {
      if (is_own(buffer)) add_buffer(buffer.first, buffer.second);
    }
    for (const auto& [name, child] : module_->children()) add_module(name, child);
  }
  Tensor forward(const Tensor& x) override { return forward_all({x}).front(); }
  Tensors forward_all(const Tensors& inputs) override {
    const Tensors here = brought(inputs, device_);
    module_->train(is_training());
    return here.size() == 1 ? Tensors{(*module_)(here.front())} : (*module_)(here);
  }

 private:
  std::shared_ptr<Module> module_;
  std::shared_ptr<Device> device_;
};

}  // namespace

std::shared_ptr<Module> place(std::shared_ptr<Module> module, const std::shared_ptr<Device>& device) {
  if (module == nullptr || device == nullptr)
    throw UsageError("place: expected a module and a device, got null");
  for (const auto& [name, tensor] : module->state_dict()) {
    if (tensor.shared_device() == device) continue;
    throw UsageError(fmt::format("place: expected all of the module on {}, got {} on {}; make it there",
                                 device->name(), name, tensor.device().name()));
  }
  return std::make_shared<PlacedModule>(std::move(module), device);
}

LayerUnit place(LayerUnit part, const std::shared_ptr<Device>& device) {
  part.forward = [forward = std::move(part.forward), device](const Tensor& x, const Tensors& beside) {
    return forward(x.to(device), brought(beside, device));
  };
  return part;
}

LayerUnit brought_to(LayerUnit part, const std::shared_ptr<Device>& device) {
  part.forward = [forward = std::move(part.forward), device](const Tensor& x, const Tensors& beside) {
    return forward(x, beside).to(device);
  };
  return part;
}

}  // namespace dtrain
