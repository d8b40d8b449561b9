#include "parallel/layout/parameter_layout.h"

#include <fmt/format.h>

#include <map>

#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

// Counts are integers, so that a parameter of one element has no count of its own shape.
bool goes_by_element(DType dtype, const Dims& shape, const Dims& parameter) {
  return is_floating(dtype) && shape == parameter;
}

/// The same for names of one parameter. Memory that comes and goes is nobody's address.
const void* identity(const Tensor& tensor) {
  const auto& storage = tensor.shared_storage();
  return storage->had_hook() ? static_cast<const void*>(storage.get()) : tensor.view().data;
}

/// Memory that lies densely, as the part that it holds.
View view_as(const Tensor& memory, const TensorShard& part) {
  View view = memory.view();
  view.shape = part.held_shape();
  view.strides = contiguous_strides(view.shape);
  return view;
}

}  // namespace

Dims ParameterLayout::held_shape() const {
  return range ? Dims{static_cast<std::int64_t>(range->count)} : whole.shape();
}

std::optional<TensorShard> ParameterLayout::part() const {
  if (!range) return slice;
  return slice.value_or(TensorShard::whole(whole.shape()))
      .range(static_cast<std::int64_t>(range->first), static_cast<std::int64_t>(range->count));
}

Tensor ParameterLayout::owned() const {
  if (own.defined()) return own.detach();
  if (!range) return whole.detach();
  void* const data = static_cast<std::byte*>(whole.view().data) + range->first * size_of(whole.dtype());
  return whole.detach().alias(data, held_shape(), {1});
}

// The state has parameters without their history: the record has the parameter itself.
std::vector<ParameterLayout> layouts_of(const Module& network) {
  const NamedTensors parameters = network.named_parameters();
  std::map<std::string, std::size_t> by_name;
  std::map<const void*, std::size_t> by_memory;
  for (const auto& [name, tensor] : parameters) {
    if (tensor.numel() > 0) by_memory.emplace(identity(tensor), by_name.size());
    by_name.emplace(name, by_name.size());
  }
  std::vector<ParameterLayout> layouts;
  for (const auto& [name, tensor] : network.state_dict()) {
    ParameterLayout& layout = layouts.emplace_back(ParameterLayout{.name = name, .whole = tensor});
    if (const auto found = by_name.find(name); found != by_name.end()) {
      layout.number = found->second;
    } else if (tensor.numel() > 0) {
      const auto same = by_memory.find(identity(tensor));
      if (same != by_memory.end()) layout.number = same->second;
    }
    if (layout.number) layout.whole = parameters[*layout.number].second;
  }
  return layouts;
}

const ParameterLayout* layout_of(const std::string& name, const std::vector<ParameterLayout>& parameters) {
  const std::string own = name_in_sync(name).value_or(name);
  const ParameterLayout* found = nullptr;
  for (const ParameterLayout& parameter : parameters) {
    const bool is_longer = found == nullptr || parameter.name.size() > found->name.size();
    if (is_longer && belongs_to(own, parameter.name)) found = &parameter;
  }
  return found;
}

std::optional<TensorShard> part_of(const std::string& name, const Tensor& values,
                                   const std::vector<ParameterLayout>& parameters) {
  const ParameterLayout* const owner = layout_of(name, parameters);
  if (owner == nullptr || !goes_by_element(values.dtype(), values.shape(), owner->held_shape()))
    return std::nullopt;
  return owner->part();
}

NamedTensors read_state(const TensorFiles& files, const std::vector<ParameterLayout>& parameters,
                        const std::shared_ptr<Device>& device, const NameHere& name_here) {
  const auto host = device->runs_ahead() ? make_device("cpu") : device;
  NamedTensors state;
  for (const SavedTensor& saved : files.tensors()) {
    const auto name = name_here(saved.name);
    if (!name) continue;
    const ParameterLayout* const owner = layout_of(*name, parameters);
    if (owner != nullptr && !owner->is_owned()) continue;
    const bool goes = owner != nullptr && goes_by_element(saved.dtype, saved.shape, owner->saved_shape());
    const std::optional<TensorShard> part = goes ? owner->part() : std::nullopt;
    const Tensor read = Tensor::empty(part ? owner->held_shape() : saved.shape, host, saved.dtype);
    if (part) {
      files.read(saved.name, *part, view_as(read, *part));
    } else {
      files.read(saved.name, read.view());
    }
    state.emplace_back(*name, host == device ? read : read.to(device));
  }
  return state;
}

void read_in_place(const TensorFiles& files, const std::vector<ParameterLayout>& parameters) {
  std::map<std::string, Dims> saved;
  for (const SavedTensor& tensor : files.tensors()) saved.emplace(tensor.name, tensor.shape);
  std::string wrong;
  for (const ParameterLayout& parameter : parameters) {
    const auto found = saved.find(parameter.name);
    if (found == saved.end()) {
      wrong += "; missing: " + parameter.name;
    } else if (found->second != parameter.saved_shape()) {
      wrong += fmt::format("; wrong shape: {} (expected {}, got {})", parameter.name,
                           parameter.saved_shape().to_string(), found->second.to_string());
    }
  }
  if (!wrong.empty()) throw UsageError("checkpoint: the state does not fit this module" + wrong);
  const NoGrad no_grad;
  for (const ParameterLayout& parameter : parameters) {
    if (!parameter.is_owned()) continue;
    const Tensor own = parameter.owned();
    const bool away = own.device().runs_ahead();
    const Tensor read = away ? Tensor::empty(own.shape(), make_device("cpu"), own.dtype()) : own;
    const TensorShard part = parameter.part().value_or(TensorShard::whole(own.shape()));
    files.read(parameter.name, part, view_as(read, part));
    if (away) Tensor(own).copy_from(read.to(own.shared_device()));
    own.mark_modified();
    if (parameter.own.defined()) parameter.whole.mark_modified();
  }
}

}  // namespace dtrain
