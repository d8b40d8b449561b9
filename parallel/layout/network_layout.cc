#include "parallel/layout/network_layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "parallel/span_of.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/joining.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

/// The name under which a slice's own is saved that is no part of something unsplit:
/// "fc.weight.basis.1of2".
std::string name_of_slice(const std::string& name, const Communicator& slices) {
  return fmt::format("{}.{}of{}", name, slices.rank() + 1, slices.size());
}

/// Whether `name` is such a name, of any slice.
bool is_of_slice(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('.') + 1);
  const std::size_t number = last.find("of");
  const auto is_number = [](std::string_view text) {
    return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  };
  return number != std::string_view::npos && is_number(last.substr(0, number)) &&
         is_number(last.substr(number + 2));
}

/// What the first rank of those with other slices alone saves: all but slices.
bool is_alike(const NamedShard& saved) { return !saved.part || saved.part->extent == saved.part->shape; }

void add_up(const Tensor& numbers, Communicator& ranks, const Deadline& deadline) {
  ranks.all_reduce(span_of(numbers), ReduceOp::sum, "norms of the gradients")->wait(deadline);
  numbers.mark_modified();
}

}  // namespace

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

NetworkLayout::NetworkLayout(const LayoutGroups& groups, const Module& network, StageLayout* stage,
                             const std::map<std::string, TensorShard>& slices)
    : groups_(groups),
      parameters_(stage != nullptr ? std::move(stage->parameters) : layouts_of(network)),
      count_(stage != nullptr ? stage->count : network.named_parameters().size()) {
  for (ParameterLayout& parameter : parameters_) {
    if (const auto slice = slices.find(parameter.name); slice != slices.end())
      parameter.slice = slice->second;
  }
}

bool NetworkLayout::is_slice(const std::string& name) const {
  const ParameterLayout* const owner = layout_of(name, parameters_);
  return owner != nullptr && owner->slice;
}

NamedTensors NetworkLayout::read_model(const TensorFiles& files,
                                       const std::shared_ptr<Device>& device) const {
  return read_state(files, parameters_, device, [&](const std::string& saved) {
    const bool is_here = groups_.stages == nullptr || layout_of(saved, parameters_) != nullptr;
    return is_here ? std::optional(saved) : std::nullopt;
  });
}

void NetworkLayout::read_ranges(const TensorFiles& files) const {
  std::vector<ParameterLayout> here = parameters_;
  for (ParameterLayout& parameter : here) {
    if (!parameter.own.defined()) parameter.range.reset();  // all of it is here
  }
  read_in_place(files, here);
}

NamedTensors NetworkLayout::read_optimizer(const TensorFiles& files, const NamedTensors& updated,
                                           const std::shared_ptr<Device>& device) const {
  return read_state(files, parameters_, device,
                    [&](const std::string& saved) { return state_here(saved, updated); });
}

bool NetworkLayout::is_copy(const std::string& name) const {
  const ParameterLayout* const parameter = layout_of(name, parameters_);
  return parameter != nullptr && parameter->tie && parameter->tie->is_copy;
}

// What was saved of parameters that are frozen now has no use here.
bool NetworkLayout::is_frozen_range(const std::string& name) const {
  const ParameterLayout* const parameter = layout_of(name, parameters_);
  return parameter != nullptr && parameter->range && !parameter->whole.requires_grad();
}

std::string NetworkLayout::name_of_copy(const std::string& saved) const {
  for (const ParameterLayout& parameter : parameters_) {
    const auto& tie = parameter.tie;
    if (tie && tie->is_copy && belongs_to(saved, tie->first))
      return parameter.name + saved.substr(tie->first.size());
  }
  return saved;
}

std::optional<std::string> NetworkLayout::state_here(const std::string& saved,
                                                     const NamedTensors& updated) const {
  if (saved.starts_with(kSyncState)) return std::nullopt;
  std::string name = name_of_copy(saved);
  if (is_frozen_range(name)) return std::nullopt;
  const bool all_here = groups_.stages == nullptr && !groups_.is_state_partitioned;
  return all_here || belongs_to(name, updated) ? std::optional(std::move(name)) : std::nullopt;
}

// What was lost of a slice's gradients is a slice of what was lost. Other slices have no use for a basis.
NamedTensors NetworkLayout::read_sync_state(const TensorFiles& files,
                                            const std::shared_ptr<Device>& device) const {
  const std::string own = groups_.tp_group != nullptr ? name_of_slice("", *groups_.tp_group) : "";
  return read_state(files, parameters_, device, [&](const std::string& saved) -> std::optional<std::string> {
    auto name = name_in_sync(saved);
    const bool is_everyones = name && name->find('.') == std::string::npos;
    if (!name || (!is_everyones && layout_of(*name, parameters_) == nullptr)) return std::nullopt;
    if (is_frozen_range(*name)) return std::nullopt;
    if (groups_.tp_group == nullptr) return name;
    if (name->ends_with(own)) return name->substr(0, name->size() - own.size());
    return is_of_slice(*name) ? std::nullopt : name;
  });
}

// Of whole networks rank 0's is saved, which others need not have seen; parts are written side by side.
bool NetworkLayout::is_written_here(std::size_t index) const noexcept {
  const int writer =
      is_whole() ? 0 : static_cast<int>(index % static_cast<std::size_t>(groups_.dp_group.size()));
  return groups_.dp_group.rank() == writer;
}

std::vector<NamedShard> NetworkLayout::written(const NamedTensors& tensors, bool is_partitioned) const {
  std::vector<NamedShard> parts;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!is_partitioned && !is_written_here(i)) continue;
    const auto& [name, tensor] = tensors[i];
    const auto part = part_of(name, tensor, parameters_);
    if (part || is_first_slice()) parts.push_back({name, tensor, part});
  }
  return parts;
}

NamedTensors NetworkLayout::counted_here(NamedTensors state) const {
  if (groups_.stages == nullptr) return state;
  std::erase_if(state, [&](const NamedTensor& named) { return is_copy(named.first); });
  return state;
}

std::vector<NamedShard> NetworkLayout::written_state(NamedTensors state) const {
  return written(counted_here(std::move(state)), groups_.is_state_partitioned);
}

// Copies of tied weights lose something each, which they keep under their own names. What belongs to no
// parameter the first stage saves.
std::vector<NamedShard> NetworkLayout::written_sync_state(const NamedTensors& state) const {
  std::vector<NamedShard> here;
  for (const auto& [saved, tensor] : state) {
    const std::string name = *name_in_sync(saved);
    const auto part = part_of(name, tensor, parameters_);
    if (is_slice(name)) {
      here.push_back({part ? saved : name_of_slice(saved, *groups_.tp_group), tensor, part});
      continue;
    }
    const bool is_first_stage = groups_.stages == nullptr || groups_.stages->rank() == 0;
    const bool is_here = is_first_stage || layout_of(name, parameters_) != nullptr;
    if (is_here && is_first_slice()) here.push_back({saved, tensor});
  }
  std::vector<NamedShard> parts;
  for (std::size_t i = 0; i < here.size(); ++i) {
    if (is_written_here(i)) parts.push_back(std::move(here[i]));
  }
  return parts;
}

// Of a parameter's state, what has its shape is cut like it; the rest (a count of steps) is written by the
// rank that owns the first element; what belongs to no parameter, by the first rank.
RankState NetworkLayout::written_ranges(NamedTensors state) const {
  if (groups_.replicate_group != nullptr && groups_.replicate_group->rank() > 0) return {};
  const bool is_first = groups_.shard_group->rank() == 0;
  RankState here;
  for (const ParameterLayout& parameter : parameters_) {
    if (!parameter.range || !parameter.is_owned()) continue;
    const auto part = parameter.part();
    here.model.push_back({parameter.name, parameter.owned().reshape(part->held_shape()), part});
  }
  for (const ParameterLayout& parameter : parameters_) {
    if (!parameter.range && is_first) here.model.push_back({parameter.name, parameter.whole});
  }
  for (const auto& [name, tensor] : state) {
    const ParameterLayout* const owner = layout_of(name, parameters_);
    if (const auto part = part_of(name, tensor, parameters_)) {
      here.optimizer.push_back({name, tensor.detach().reshape(part->held_shape()), part});
    } else if (owner != nullptr && owner->range ? owner->range->first == 0 : is_first) {
      here.optimizer.push_back({name, tensor});
    }
  }
  if (is_first_slice()) return here;
  std::erase_if(here.model, is_alike);
  std::erase_if(here.optimizer, is_alike);
  return here;
}

void NetworkLayout::limit(const NamedTensors& parameters, const GradientLimits& limits,
                          const Deadline& deadline) const {
  std::vector<Tensor> gradients;
  for (const auto& [name, tensor] : parameters) gradients.push_back(tensor.grad());
  if (is_whole() && groups_.shard_group == nullptr) return limit_gradients(gradients, limits);
  const NoGrad no_grad;
  if (limits.value) clip_grad_value(gradients, *limits.value);
  if (!limits.norm) return;
  Tensor norms = this->norms(parameters);
  if (groups_.shard_group != nullptr || groups_.tp_group != nullptr) {
    const Tensor squares = square(norms);
    if (groups_.shard_group != nullptr) add_up(squares, *groups_.shard_group, deadline);
    if (groups_.tp_group != nullptr) add_up(squares, *groups_.tp_group, deadline);
    norms = sqrt(squares);
  }
  if (groups_.stages != nullptr) add_up(norms, *groups_.stages, deadline);
  scale_to_norm(gradients, is_whole() ? norms : norm_of_norms(norms), *limits.norm);
}

// By parameter, so that their sum does not depend on which stage has which, 0 for those of others: of copies
// of tied weights, and of what all slices have alike, one rank counts it. Of a whole network one number.
Tensor NetworkLayout::norms(const NamedTensors& parameters) const {
  const auto& device = parameters.front().second.shared_device();
  if (is_whole()) {
    std::vector<Tensor> gradients;
    for (const auto& [name, tensor] : parameters) gradients.push_back(tensor.grad());
    const bool has_any = std::ranges::any_of(gradients, &Tensor::defined);
    return has_any ? total_norm(gradients) : Tensor::zeros({}, device);
  }
  Tensors norms(count_, Tensor::zeros({}, device));
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.grad().defined() || is_copy(name)) continue;
    if (is_first_slice() || is_slice(name))
      norms[layout_of(name, parameters_)->number.value()] = gradient_norm(tensor.grad());
  }
  return stack(norms);
}

}  // namespace dtrain
