#include "parallel/tensor/tensor_parallel_strategy.h"

#include <fmt/format.h>

#include <algorithm>

#include "parallel/span_of.h"
#include "parallel/sync/hooks/gradient_exchange.h"
#include "parallel/sync/sharded/shard_state.h"
#include "parallel/tensor/split_module.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/joining.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

/// How a rank holds what is saved under a name.
struct Held {
  Dims local;                       ///< of the parameter that it belongs to
  std::optional<TensorPart> slice;  ///< nothing: whole
};

/// By parameter. Also for state that is named after one, as "fc1.weight.exp_avg".
class HeldParameters {
 public:
  HeldParameters(const Module& network, const RankGroup& group) {
    const auto slices = slices_of(network, group);
    for (const auto& [name, tensor] : network.state_dict()) {
      const auto slice = slices.find(name);
      held_[name] = {tensor.shape(), slice == slices.end() ? std::nullopt : std::optional(slice->second)};
    }
  }

  /// Whether this rank holds it, whole or a slice of it.
  bool contains(const std::string& name) const { return find(name) != nullptr; }
  /// Whether it belongs to a slice.
  bool is_cut(const std::string& name) const {
    const Held* const held = find(name);
    return held != nullptr && held->slice;
  }
  /// The part of the whole tensor that `local`, saved as `name`, is; nothing where it is all of it.
  std::optional<TensorPart> part(const std::string& name, DType dtype, const Dims& local) const {
    const Held* const held = find(name);
    const bool is_slice = held != nullptr && is_floating(dtype) && local == held->local;
    return is_slice ? held->slice : std::nullopt;
  }
  /// The same where only the shape of the whole tensor is known.
  std::optional<TensorPart> part_of_whole(const std::string& name, DType dtype, const Dims& whole) const {
    const Held* const held = find(name);
    const bool is_cut = held != nullptr && held->slice && is_floating(dtype) && held->slice->shape == whole;
    return is_cut ? held->slice : std::nullopt;
  }

 private:
  const Held* find(const std::string& name) const {
    for (std::size_t end = name.size(); end != std::string::npos && end > 0; end = name.rfind('.', end - 1)) {
      const auto found = held_.find(name.substr(0, end));
      if (found != held_.end()) return &found->second;
    }
    return nullptr;
  }

  std::map<std::string, Held> held_;
};

/// The name under which a slice's own is saved that is no part of something undivided:
/// "fc.weight.basis.1of2".
std::string name_of_slice(const std::string& name, const RankGroup& group) {
  return fmt::format("{}.{}of{}", name, group.communicator.rank() + 1, group.communicator.size());
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

/// What the first rank of a group alone saves: all but slices.
bool is_alike(const SavedPart& saved) { return !saved.part || saved.part->extent == saved.part->shape; }

/// Those of `files` that have a name here, of divided ones this rank's slices.
NamedTensors read_own(const TensorFiles& files, const HeldParameters& held, const NameHere& name_here,
                      const std::shared_ptr<Device>& device) {
  const auto host = device->runs_ahead() ? make_device("cpu") : device;
  NamedTensors own;
  for (const SavedTensor& saved : files.tensors()) {
    const auto name = name_here(saved.name);
    if (!name) continue;
    const auto part = held.part_of_whole(*name, saved.dtype, saved.shape);
    const Tensor read = Tensor::empty(part ? part->held_shape() : saved.shape, host, saved.dtype);
    if (part) {
      files.read(saved.name, *part, read.view());
    } else {
      files.read(saved.name, read.view());
    }
    own.emplace_back(*name, host == device ? read : read.to(device));
  }
  return own;
}

}  // namespace

TensorParallelStrategy::TensorParallelStrategy(const StrategyContext& context, const RankGroup& group,
                                               std::unique_ptr<Strategy> inner,
                                               std::optional<OtherParts> others)
    : context_(context), group_(group), inner_(std::move(inner)), others_(others) {}

void TensorParallelStrategy::prepare(const TrainingParts& parts, const Deadline& deadline) {
  limits_ = parts.limits;
  TrainingParts own = parts;
  own.limits = {};  // a norm is of all slices together
  own.before_update = [this, guard = parts.update_guard()] { before_update(guard); };
  own.slices = [this](const Module& network) { return slices_of(network, group_); };
  own.make_optimizer = [&](const NamedTensors& parameters) {
    updated_ = parameters;
    return parts.make_optimizer(parameters);
  };
  inner_->prepare(own, deadline);
  if (!others_) order_ = ParameterOrder(module());
}

void TensorParallelStrategy::before_update(const UpdateGuard* guard) {
  // Stages agree by themselves, over all ranks.
  if (guard != nullptr && !others_) agree_on_overflow(*guard, context_.communicator, patience());
  limit();
}

// Slices are of different elements on each rank; what is whole is equal on all of them and counts once. Added
// up by parameter, so that the sum does not depend on which stage has which. Ranges are of different elements
// again.
void TensorParallelStrategy::limit() {
  const NoGrad no_grad;
  Communicator* const ranges = inner_->ranges();
  const NamedTensors parameters = ranges != nullptr ? updated_ : module().named_parameters();
  std::vector<Tensor> gradients;
  for (const auto& [name, tensor] : parameters) gradients.push_back(tensor.grad());
  if (limits_.value) clip_grad_value(gradients, *limits_.value);
  if (!limits_.norm) return;
  const ParameterOrder& order = others_ ? others_->order : order_;
  const auto split = split_parameters(module());
  Tensors squares(order.size(), Tensor::zeros({}, context_.device));
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.grad().defined() || (others_ && others_->ties.is_copy(name))) continue;
    if (split.contains(name) || group_.communicator.rank() == 0)
      squares[order.at(name)] = square(gradient_norm(tensor.grad()));
  }
  const Tensor all = stack(squares);
  if (ranges != nullptr) add_up(all, *ranges);
  add_up(all, group_.communicator);
  if (others_) add_up(all, others_->stages);
  scale_to_norm(gradients, norm_of_norms(sqrt(all)), *limits_.norm);
}

void TensorParallelStrategy::add_up(const Tensor& numbers, Communicator& ranks) {
  ranks.all_reduce(span_of(numbers), ReduceOp::sum, "norms of the gradients")->wait(patience());
  numbers.mark_modified();
}

Tensors TensorParallelStrategy::evaluate(const Tensors& inputs) {
  Tensors outputs = inner_->evaluate(inputs);
  return holds_outputs() ? outputs : Tensors();
}

void TensorParallelStrategy::load(const SavedState& state, const Deadline& deadline) {
  if (inner_->ranges() != nullptr) return inner_->load(state, deadline);
  check_values_together(*state.model, context_.communicator, deadline);
  check_values_together(*state.optimizer, context_.communicator, deadline);
  const HeldParameters held(module(), group_);
  module().load_state_dict(read_own(
      *state.model, held,
      [&](const std::string& saved) {
        return !others_ || held.contains(saved) ? std::optional(saved) : std::nullopt;
      },
      context_.device));
  const auto name_here = [&](const std::string& saved) {
    auto name = others_ ? others_->ties.copy_of(saved).value_or(saved) : saved;
    if (name_in_exchange(saved)) return std::optional<std::string>();
    const bool all_here = !others_ && !deals();
    return all_here || belongs_to(name, updated_) ? std::optional(std::move(name)) : std::nullopt;
  };
  optimizer()->load_state(read_own(*state.optimizer, held, name_here, context_.device));
  if (inner_->remembers() != nullptr) load_remembered(*state.optimizer);
}

// What was lost of a slice's gradients is a slice of what was lost. Other slices have no use for a basis.
void TensorParallelStrategy::load_remembered(const TensorFiles& files) {
  const HeldParameters held(module(), group_);
  const std::string own = name_of_slice("", group_);
  const auto name_here = [&](const std::string& saved) -> std::optional<std::string> {
    auto name = name_in_exchange(saved);
    if (!name || (name->find('.') != std::string::npos && !held.contains(*name))) return std::nullopt;
    if (name->ends_with(own)) return name->substr(0, name->size() - own.size());
    return is_of_slice(*name) ? std::nullopt : name;
  };
  inner_->remembers()->load(read_own(files, held, name_here, context_.device));
}

std::vector<SavedPart> TensorParallelStrategy::remembered_here() {
  const HeldParameters held(module(), group_);
  std::vector<SavedPart> parts;
  for (auto& [saved, tensor] : saved_state(inner_->remembers())) {
    const std::string name = *name_in_exchange(saved);
    const auto part = held.part(name, tensor.dtype(), tensor.shape());
    if (part || held.is_cut(name)) {
      parts.push_back({part ? saved : name_of_slice(saved, group_), tensor, part});
      continue;
    }
    const bool is_first = held.contains(name) || !others_ || others_->stages.rank() == 0;
    if (is_first && group_.communicator.rank() == 0) parts.push_back({saved, tensor});
  }
  return parts;
}

bool TensorParallelStrategy::deals() { return updated_.size() < module().named_parameters().size(); }

// Of the ranks that hold the same, each writes some: the n-th tensor is that one's who has the n-th share.
// State that is dealt out one of them alone has.
StateParts TensorParallelStrategy::save() {
  if (inner_->ranges() != nullptr) return save_ranges();
  const HeldParameters held(module(), group_);
  const DataShare copies = inner_->share();
  StateParts parts;
  const auto add_own = [&](std::vector<SavedPart>& to, const NamedTensors& tensors, bool is_held_once) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (!is_held_once && !copies.has(static_cast<int>(i % static_cast<std::size_t>(copies.size)))) continue;
      const auto& [name, tensor] = tensors[i];
      const auto part = held.part(name, tensor.dtype(), tensor.shape());
      if (part || group_.communicator.rank() == 0) to.push_back({name, tensor, part});
    }
  };
  add_own(parts.model, module().state_dict(), false);
  NamedTensors state = optimizer()->named_state();
  if (others_)
    std::erase_if(state, [&](const NamedTensor& named) { return others_->ties.is_copy(named.first); });
  add_own(parts.optimizer, state, deals());
  std::vector<SavedPart> remembered = remembered_here();
  for (std::size_t i = 0; i < remembered.size(); ++i) {
    if (copies.has(static_cast<int>(i % static_cast<std::size_t>(copies.size))))
      parts.optimizer.push_back(std::move(remembered[i]));
  }
  return parts;
}

// The inner strategy shares out among the ranks that hold the same.
StateParts TensorParallelStrategy::save_ranges() {
  StateParts parts = inner_->save();
  if (group_.communicator.rank() == 0) return parts;
  std::erase_if(parts.model, is_alike);
  std::erase_if(parts.optimizer, is_alike);
  return parts;
}

}  // namespace dtrain
