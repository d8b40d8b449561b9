#include "parallel/sync/sharded/fully_sharded_parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "parallel/span_of.h"
#include "parallel/sync/buckets.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"
#include "runtime/tensor/tracking.h"

namespace dtrain {
namespace {

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

/// What this rank sends of a parameter: its own elements, and behind them as many as others may have more.
Tensor padded(const ParameterLayout& parameter, int ranks) {
  const auto count = static_cast<std::size_t>(parameter.whole.numel());
  return parameter.own.alias(parameter.own.view().data,
                             {static_cast<std::int64_t>(equal_length(count, ranks))}, {1});
}

}  // namespace

/// Stands between the parameters' memory, which may outlive everything here, and the unit that they are of.
class FullyShardedParameters::UnshardHook final : public StorageHook {
 public:
  UnshardHook(FullyShardedParameters& owner, std::size_t unit) : owner_(&owner), unit_(unit) {}
  void materialize(Storage& /*storage*/) override {
    if (owner_ != nullptr) owner_->use(unit_);
  }
  void leave() noexcept { owner_ = nullptr; }

 private:
  FullyShardedParameters* owner_;
  std::size_t unit_;
};

FullyShardedParameters::FullyShardedParameters(Communicator& communicator, Duration patience)
    : communicator_(communicator), patience_(patience) {}

FullyShardedParameters::~FullyShardedParameters() {
  for (const auto& hook : hooks_) hook->leave();
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

void FullyShardedParameters::shard(Module& module) {
  Unit unit;
  unit.first = parameters_.size();
  auto hook = std::make_shared<UnshardHook>(*this, units_.size());
  const NoGrad no_grad;
  for (const auto& [name, whole] : module.own_parameters()) {
    const auto& storage = whole.shared_storage();
    if (whole.numel() == 0 || storage->had_hook()) continue;
    const auto count = static_cast<std::size_t>(whole.numel());
    if (!whole.is_contiguous() || storage->bytes() != bytes_of(count, whole)) {
      throw UsageError(
          fmt::format("sharded parameters: expected parameters in row-major order with their own memory, "
                      "got '{}' ({})",
                      name, whole.describe()));
    }
    const std::size_t length = equal_length(count, communicator_.size());
    const ShardRange range = owned_range(count, communicator_.rank(), communicator_.size(), ShardCut::equal);
    const Tensor memory =
        Tensor::zeros({static_cast<std::int64_t>(length)}, whole.shared_device(), whole.dtype());
    const Tensor own = memory.alias(memory.view().data, {static_cast<std::int64_t>(range.count)}, {1});
    if (range.count > 0)
      whole.device().kernels().copy(stretch(storage->data(), whole.dtype(), range), own.view());
    unit.bytes += bytes_of(length * static_cast<std::size_t>(communicator_.size()), whole);
    storage->set_hook(hook);
    storage->free();
    parameters_.push_back({.name = name, .whole = whole, .range = range, .own = own});
  }
  unit.count = parameters_.size() - unit.first;
  if (unit.count == 0) return;
  units_.push_back(std::move(unit));
  hooks_.push_back(std::move(hook));
  std::vector<std::size_t> sizes;
  for (const Unit& one : units_) sizes.push_back(one.bytes);
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  budget_ = sizes[0] + (sizes.size() > 1 ? sizes[1] : 0);
}

void FullyShardedParameters::name_as(const Module& network) {
  for (const auto& [name, tensor] : network.named_parameters()) {
    for (ParameterLayout& parameter : parameters_) {
      if (parameter.whole.shares_storage(tensor)) parameter.name = name;
    }
  }
}

std::size_t FullyShardedParameters::unit_of(std::size_t index) const {
  const auto behind = std::ranges::upper_bound(units_, index, {}, &Unit::first);
  return static_cast<std::size_t>(behind - units_.begin()) - 1;
}

void FullyShardedParameters::begin(ParameterUse use) {
  if ((use == ParameterUse::evaluation) != (use_ == ParameterUse::evaluation)) reshard();
  use_ = use;
}

void FullyShardedParameters::reshard() {
  for (Unit& unit : units_) reshard(unit);
  last_.reset();
}

// Whole parameters that nobody wrote to hold the old values, which must not come back as if written.
void FullyShardedParameters::mark_modified() {
  reshard();
  for (const ParameterLayout& parameter : parameters_) parameter.whole.mark_modified();
}

void FullyShardedParameters::use(std::size_t index) {
  if (units_[index].state != State::whole) unshard(index);
  units_[index].used_at = operations_ended();
}

void FullyShardedParameters::unshard(std::size_t index) {
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
  if (unit.state == State::sharded) start(unit);
  wait_for(unit);
  prefetch_next(index);
}

// Frees what nothing uses any more, unless it is what comes next. One operation may look at the parameters of
// several modules: these stay.
void FullyShardedParameters::make_room_for(std::size_t index) {
  for (std::size_t i = 0; i < units_.size(); ++i) {
    Unit& unit = units_[i];
    const bool used = unit.state == State::whole && unit.used_at == operations_ended();
    if (i == index || used || (unit.state == State::whole && next_of(index) == i)) continue;
    reshard(unit);
  }
}

void FullyShardedParameters::prefetch_next(std::size_t index) {
  const auto next = next_of(index);
  if (!next || units_[*next].state != State::sharded) return;
  Unit& unit = units_[*next];
  // Where the module is used backward, its gradients take as much again until they have gone to their owners.
  const std::size_t needed = use_ == ParameterUse::backward ? 2 * unit.bytes : unit.bytes;
  if (whole_bytes() + needed > budget_) return;
  start(unit);
  ++stats_.prefetched;
}

std::size_t FullyShardedParameters::whole_bytes() const {
  std::size_t bytes = 0;
  for (const Unit& unit : units_) bytes += unit.state == State::sharded ? 0 : unit.bytes;
  return bytes;
}

void FullyShardedParameters::start(Unit& unit) {
  const auto ranks = static_cast<std::size_t>(communicator_.size());
  unit.state = State::gathering;
  for (std::size_t i = unit.first; i < unit.first + unit.count; ++i) {
    const ParameterLayout& parameter = parameters_[i];
    const Tensor shard = padded(parameter, communicator_.size());
    const std::size_t count = static_cast<std::size_t>(shard.numel()) * ranks;
    Storage& storage = *parameter.whole.shared_storage();
    storage.resize(bytes_of(count, shard));
    const MemorySpan all{
        .data = storage.data(), .count = count, .dtype = shard.dtype(), .device = &shard.device()};
    unit.works.push_back(communicator_.all_gather(span_of(shard), all, "shards of " + parameter.name));
  }
  ++stats_.gathers;
  stats_.gathered_bytes += unit.bytes;
  stats_.peak_bytes = std::max(stats_.peak_bytes, whole_bytes());
}

void FullyShardedParameters::wait_for(Unit& unit) {
  for (auto& work : std::exchange(unit.works, {})) work->wait(Deadline::after(patience_));
  unit.state = State::whole;
  unit.versions.clear();
  for (std::size_t i = unit.first; i < unit.first + unit.count; ++i)
    unit.versions.push_back(parameters_[i].whole.version());
}

void FullyShardedParameters::reshard(Unit& unit) {
  if (unit.state == State::sharded) return;
  if (unit.state == State::gathering) wait_for(unit);  // what was expected did not happen
  for (std::size_t i = 0; i < unit.count; ++i) {
    const ParameterLayout& parameter = parameters_[unit.first + i];
    const Tensor& own = parameter.own;
    Storage& storage = *parameter.whole.shared_storage();
    if (storage.version() != unit.versions[i] && parameter.is_owned()) {
      own.device().kernels().copy(stretch(storage.data(), own.dtype(), *parameter.range), own.view());
      own.mark_modified();
    }
    storage.free();
  }
  unit.state = State::sharded;
}

}  // namespace dtrain
