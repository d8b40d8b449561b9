#include "parallel/sync/sharded/shard_state.h"

#include <fmt/format.h>

#include <map>

#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

/// "fc1.weight.exp_avg" belongs to "fc1.weight"; null where no parameter's name is in front.
const OwnedParameter* owner_of(const std::string& state, const std::vector<OwnedParameter>& parameters) {
  const OwnedParameter* found = nullptr;
  for (const OwnedParameter& parameter : parameters) {
    const bool fits = state.size() > parameter.name.size() + 1 && state.starts_with(parameter.name) &&
                      state[parameter.name.size()] == '.';
    if (fits && (found == nullptr || parameter.name.size() > found->name.size())) found = &parameter;
  }
  return found;
}

// Counts are integers, so that a parameter of one element has no count of its own shape.
bool goes_by_element(DType dtype, const Dims& shape, const Dims& parameter) {
  return is_floating(dtype) && shape == parameter;
}

}  // namespace

TensorPart OwnedParameter::part() const {
  return slice.value_or(TensorPart::whole(whole.shape()))
      .range(static_cast<std::int64_t>(range.first), static_cast<std::int64_t>(range.count));
}

Tensor OwnedParameter::owned() const {
  if (own.defined()) return own.detach();
  void* const data = static_cast<std::byte*>(whole.view().data) + range.first * size_of(whole.dtype());
  return whole.detach().alias(data, {static_cast<std::int64_t>(range.count)}, {1});
}

StateParts sharded_parts(const std::vector<OwnedParameter>& parameters, const NamedTensors& buffers,
                         const NamedTensors& state, int rank) {
  StateParts parts;
  const auto add = [](std::vector<SavedPart>& to, const std::string& name, const Tensor& values,
                      const TensorPart& part) {
    to.push_back({name, values.detach().reshape(part.held_shape()), part});
  };
  for (const OwnedParameter& parameter : parameters) {
    if (parameter.is_owned()) add(parts.model, parameter.name, parameter.owned(), parameter.part());
  }
  if (rank == 0) {
    for (SavedPart& buffer : whole(buffers)) parts.model.push_back(std::move(buffer));
  }
  for (const auto& [name, tensor] : state) {
    const OwnedParameter* const owner = owner_of(name, parameters);
    const Dims held = {static_cast<std::int64_t>(owner != nullptr ? owner->range.count : 0)};
    if (owner != nullptr && goes_by_element(tensor.dtype(), tensor.shape(), held)) {
      add(parts.optimizer, name, tensor, owner->part());
    } else if (owner != nullptr ? owner->range.first == 0 : rank == 0) {
      parts.optimizer.push_back({name, tensor});
    }
  }
  return parts;
}

void check_values_together(const TensorFiles& files, Communicator& communicator, const Deadline& deadline) {
  std::exception_ptr failure;
  try {
    files.check_values(communicator.rank(), communicator.size());
  } catch (const Error&) {
    failure = std::current_exception();
  }
  std::int32_t failed = failure ? communicator.rank() + 1 : 0;
  communicator.all_reduce({&failed, 1, DType::i32}, ReduceOp::max, "checkpoint's values")->wait(deadline);
  if (failure) std::rethrow_exception(failure);
  if (failed > 0)
    throw Error(
        fmt::format("checkpoint: rank {} could not read its share of it, or found it damaged", failed - 1));
}

void read_owned(const TensorFiles& files, const std::vector<OwnedParameter>& parameters) {
  std::map<std::string, Dims> saved;
  for (const SavedTensor& tensor : files.tensors()) saved.emplace(tensor.name, tensor.shape);
  std::string wrong;
  for (const OwnedParameter& parameter : parameters) {
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
  for (const OwnedParameter& parameter : parameters) {
    if (!parameter.is_owned()) continue;
    const Tensor own = parameter.owned();
    const bool away = own.device().runs_ahead();
    const Tensor read = away ? Tensor::empty(own.shape(), make_device("cpu"), own.dtype()) : own;
    View target = read.view();
    target.shape = parameter.part().held_shape();
    target.strides = contiguous_strides(target.shape);
    files.read(parameter.name, parameter.part(), target);
    if (away) Tensor(own).copy_from(read.to(own.shared_device()));
    own.mark_modified();
  }
}

NamedTensors owned_state(const TensorFiles& files, const std::vector<OwnedParameter>& parameters,
                         const std::shared_ptr<Device>& device, const NameHere& name_here) {
  const auto host = device->runs_ahead() ? make_device("cpu") : device;
  NamedTensors state;
  for (const SavedTensor& saved : files.tensors()) {
    const auto name = name_here(saved.name);
    if (!name || saved.name.starts_with(kExchangeState)) continue;
    const OwnedParameter* const owner = owner_of(*name, parameters);
    if (owner != nullptr && !owner->is_owned()) continue;
    Tensor read;
    if (owner != nullptr && goes_by_element(saved.dtype, saved.shape, owner->saved_shape())) {
      read = Tensor::empty({static_cast<std::int64_t>(owner->range.count)}, host, saved.dtype);
      View target = read.view();
      target.shape = owner->part().held_shape();
      target.strides = contiguous_strides(target.shape);
      files.read(saved.name, owner->part(), target);
    } else {
      read = Tensor::empty(saved.shape, host, saved.dtype);
      files.read(saved.name, read.view());
    }
    state.emplace_back(*name, host == device ? read : read.to(device));
  }
  return state;
}

}  // namespace dtrain
