#include "parallel/sync/sharded/fully_sharded_parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "parallel/span_of.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"
#include "runtime/tensor/tracking.h"

namespace dtrain {
namespace {

constexpr std::chrono::seconds kDestructionWait{5};

std::size_t bytes_of(std::size_t elements, const Tensor& tensor) {
  return elements * size_of(tensor.dtype());
}

/// The elements of `range`, [count], of row-major memory at `data`.
View stretch(void* data, DType dtype, const ShardRange& range) {
  return {static_cast<std::byte*>(data) + range.first * size_of(dtype),
          dtype,
          {static_cast<std::int64_t>(range.count)},
          {1}};
}

View own_view(const DividedParameter& parameter) {
  return stretch(parameter.part.view().data, parameter.part.dtype(), {0, parameter.range.count});
}

}  // namespace

Tensor DividedParameter::own() const {
  return part.alias(part.view().data, {static_cast<std::int64_t>(range.count)}, {1});
}

/// Stands between the parameters' memory, which may outlive everything here, and the unit that they are of.
class DividedParameters::Keeper final : public StorageHook {
 public:
  Keeper(DividedParameters& owner, std::size_t unit) : owner_(&owner), unit_(unit) {}
  void materialize(Storage& /*storage*/) override {
    if (owner_ != nullptr) owner_->attend(unit_);
  }
  void leave() noexcept { owner_ = nullptr; }

 private:
  DividedParameters* owner_;
  std::size_t unit_;
};

DividedParameters::DividedParameters(Communicator& communicator, Duration patience)
    : communicator_(communicator), patience_(patience) {}

DividedParameters::~DividedParameters() {
  for (const auto& keeper : keepers_) keeper->leave();
  for (Unit& unit : units_) {
    for (const auto& work : unit.works) {
      try {
        work->wait(Deadline::after(kDestructionWait));
      } catch (const std::exception&) {
        // Failed is finished: nothing touches the memory any more.
      }
    }
  }
}

void DividedParameters::divide(Module& module) {
  Unit unit;
  unit.first = parameters_.size();
  auto keeper = std::make_shared<Keeper>(*this, units_.size());
  const NoGrad no_grad;
  for (const auto& [name, whole] : module.own_parameters()) {
    const auto& storage = whole.shared_storage();
    if (whole.numel() == 0 || storage->had_hook()) continue;
    const auto count = static_cast<std::size_t>(whole.numel());
    if (!whole.is_contiguous() || storage->bytes() != bytes_of(count, whole)) {
      throw UsageError(
          fmt::format("sharded parameters: expected parameters in row-major order with memory of their own, "
                      "got '{}' ({})",
                      name, whole.describe()));
    }
    const std::size_t length = equal_length(count, communicator_.size());
    DividedParameter divided{
        .whole = whole,
        .part = Tensor::zeros({static_cast<std::int64_t>(length)}, whole.shared_device(), whole.dtype()),
        .range = owned_range(count, communicator_.rank(), communicator_.size(), ShardCut::equal),
        .unit = units_.size(),
        .name = name};
    if (divided.range.count > 0) {
      whole.device().kernels().copy(stretch(storage->data(), whole.dtype(), divided.range),
                                    own_view(divided));
    }
    unit.bytes += bytes_of(length * static_cast<std::size_t>(communicator_.size()), whole);
    storage->set_hook(keeper);
    storage->free();
    parameters_.push_back(std::move(divided));
  }
  unit.count = parameters_.size() - unit.first;
  if (unit.count == 0) return;
  units_.push_back(std::move(unit));
  keepers_.push_back(std::move(keeper));
  std::vector<std::size_t> sizes;
  for (const Unit& one : units_) sizes.push_back(one.bytes);
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  budget_ = sizes[0] + (sizes.size() > 1 ? sizes[1] : 0);
}

void DividedParameters::name_as(const Module& network) {
  for (const auto& [name, tensor] : network.named_parameters()) {
    for (DividedParameter& parameter : parameters_) {
      if (parameter.whole.shares_storage(tensor)) parameter.name = name;
    }
  }
}

void DividedParameters::begin(ParameterUse use) {
  if ((use == ParameterUse::evaluation) != (use_ == ParameterUse::evaluation)) let_go();
  use_ = use;
}

void DividedParameters::let_go() {
  for (Unit& unit : units_) put_away(unit);
  last_.reset();
}

void DividedParameters::mark_modified() {
  for (const DividedParameter& parameter : parameters_) parameter.whole.mark_modified();
}

void DividedParameters::attend(std::size_t index) {
  if (units_[index].state != State::here) bring(index);
  units_[index].used_at = operations_ended();
}

void DividedParameters::bring(std::size_t index) {
  if (std::this_thread::get_id() != thread_) {
    throw UsageError(fmt::format(
        "sharded parameters: expected one thread to compute with them, got a second one at a parameter {}; "
        "keep parameters whole in networks that fork()",
        parameters_[units_[index].first].whole.describe()));
  }
  if (last_) next_of(*last_) = index;
  last_ = index;
  Unit& unit = units_[index];
  make_room_for(index);
  if (unit.state == State::away) start(unit);
  arrive(unit);
  begin_next(index);
}

// Frees what nothing uses any more, unless it is what comes next. One operation may look at the parameters of
// several modules: these stay.
void DividedParameters::make_room_for(std::size_t index) {
  for (std::size_t i = 0; i < units_.size(); ++i) {
    Unit& unit = units_[i];
    const bool used = unit.state == State::here && unit.used_at == operations_ended();
    if (i == index || used || (unit.state == State::here && next_of(index) == i)) continue;
    put_away(unit);
  }
}

void DividedParameters::begin_next(std::size_t index) {
  const auto next = next_of(index);
  if (!next || units_[*next].state != State::away) return;
  Unit& unit = units_[*next];
  // Where the module is used backward, its gradients take as much again until they have gone to their owners.
  const std::size_t needed = use_ == ParameterUse::backward ? 2 * unit.bytes : unit.bytes;
  if (bytes_there() + needed > budget_) return;
  start(unit);
  ++stats_.begun_ahead;
}

std::size_t DividedParameters::bytes_there() const {
  std::size_t bytes = 0;
  for (const Unit& unit : units_) bytes += unit.state == State::away ? 0 : unit.bytes;
  return bytes;
}

void DividedParameters::start(Unit& unit) {
  const auto ranks = static_cast<std::size_t>(communicator_.size());
  unit.state = State::coming;
  for (std::size_t i = unit.first; i < unit.first + unit.count; ++i) {
    const DividedParameter& parameter = parameters_[i];
    const auto length = static_cast<std::size_t>(parameter.part.numel());
    Storage& storage = *parameter.whole.shared_storage();
    storage.resize(bytes_of(length * ranks, parameter.part));
    const MemorySpan all{.data = storage.data(),
                         .count = length * ranks,
                         .dtype = parameter.part.dtype(),
                         .device = &parameter.part.device()};
    unit.works.push_back(
        communicator_.all_gather(span_of(parameter.part), all, "shards of " + parameter.name));
  }
  ++stats_.gathers;
  stats_.gathered_bytes += unit.bytes;
  stats_.most_bytes = std::max(stats_.most_bytes, bytes_there());
}

void DividedParameters::arrive(Unit& unit) {
  for (auto& work : std::exchange(unit.works, {})) work->wait(Deadline::after(patience_));
  unit.state = State::here;
  unit.versions.clear();
  for (std::size_t i = unit.first; i < unit.first + unit.count; ++i)
    unit.versions.push_back(parameters_[i].whole.version());
}

void DividedParameters::put_away(Unit& unit) {
  if (unit.state == State::away) return;
  if (unit.state == State::coming) arrive(unit);  // what was expected did not happen
  for (std::size_t i = 0; i < unit.count; ++i) {
    const DividedParameter& parameter = parameters_[unit.first + i];
    Storage& storage = *parameter.whole.shared_storage();
    if (storage.version() != unit.versions[i] && parameter.range.count > 0) {
      parameter.part.device().kernels().copy(stretch(storage.data(), parameter.part.dtype(), parameter.range),
                                             own_view(parameter));
      parameter.part.mark_modified();
    }
    storage.free();
  }
  unit.state = State::away;
}

}  // namespace dtrain
