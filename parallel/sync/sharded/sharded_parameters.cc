#include "parallel/sync/sharded/sharded_parameters.h"

#include <fmt/format.h>

#include <algorithm>

#include "parallel/sync/average.h"
#include "parallel/sync/equal_start.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"
#include "runtime/nn/trainable.h"

namespace dtrain {
namespace {

/// Parameters that learn, set by set.
NamedTensors learning(const Module& network, const PassKinds& passes) {
  NamedTensors parameters = trainable_parameters(network);
  if (parameters.empty())
    throw UsageError("sharded data parallel: the module has no parameter that requires a gradient");
  const auto set_of = [&](const NamedTensor& parameter) { return passes.of(parameter.first); };
  if (passes.count > 1) std::ranges::stable_sort(parameters, {}, set_of);
  return parameters;
}

/// Where sets begin among `parameters`.
std::vector<std::size_t> firsts_of_sets(const NamedTensors& parameters, const PassKinds& passes) {
  std::vector<std::size_t> firsts(passes.count, 0);
  for (std::size_t set = 1; set < passes.count; ++set) {
    firsts[set] = static_cast<std::size_t>(std::ranges::count_if(
        parameters, [&](const NamedTensor& parameter) { return passes.of(parameter.first) < set; }));
  }
  return firsts;
}

/// Copies what `files` have of `tensors` into them. Throws UsageError for one that is not there.
void load_whole(const TensorFiles& files, const NamedTensors& tensors) {
  const NoGrad no_grad;
  for (const auto& [name, tensor] : tensors) {
    const auto saved = std::ranges::find(files.tensors(), name, &SavedTensor::name);
    if (saved == files.tensors().end() || saved->shape != tensor.shape())
      throw UsageError(fmt::format("checkpoint: expected a tensor '{}' ({}), got {}", name, tensor.describe(),
                                   saved == files.tensors().end() ? "none" : saved->shape.to_string()));
    const auto& device = tensor.shared_device();
    const auto host = device->runs_ahead() ? make_device("cpu") : device;
    const Tensor read = Tensor::empty(saved->shape, host, saved->dtype);
    files.read(name, read.view());
    Tensor(tensor).copy_from(read.to(device));
  }
}

}  // namespace

ShardedParameters::ShardedParameters(const ShardGroups& groups, const ShardOptions& options)
    : groups_(groups), options_(options) {
  if (shards_parameters())
    fully_sharded_ = std::make_unique<FullyShardedParameters>(groups_.shard_group, options_.patience);
}

std::unique_ptr<Module> ShardedParameters::build(const std::function<std::unique_ptr<Module>()>& make) {
  if (!shards_parameters()) return make();
  const ModuleWatch watch([this](Module& module) { fully_sharded_->shard(module); });
  return make();
}

void ShardedParameters::own(Module& network, const std::map<std::string, TensorShard>& slices,
                            const PassKinds& passes) {
  network_ = &network;
  is_sliced_ = !slices.empty();
  if (shards_parameters()) {
    network.visit([this](Module& module) { fully_sharded_->shard(module); });
    fully_sharded_->name_as(network);
    fully_sharded_->reshard();
  }
  const NamedTensors whole = learning(network, passes);
  const std::vector<std::size_t> firsts = firsts_of_sets(whole, passes);
  std::vector<std::size_t> last_of_bucket;
  if (shards_parameters()) own_fully_sharded(whole, last_of_bucket);
  exchange_ = std::make_unique<ShardExchange>(groups_.shard_group, whole, options_, last_of_bucket, firsts);
  bool owns_any = false;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (!shards_parameters())
      parameters_.push_back({.name = whole[i].first, .whole = whole[i].second, .range = exchange_->owned(i)});
    ParameterLayout& parameter = parameters_[i];
    if (const auto slice = slices.find(parameter.name); slice != slices.end())
      parameter.slice = slice->second;
    owned_.emplace_back();
    if (!parameter.is_owned()) continue;
    owned_.back() = parameter.owned();
    owned_.back().set_requires_grad(true);
    owns_any = true;
  }
  if (!owns_any) {
    throw UsageError(fmt::format(
        "sharded data parallel: expected a network with an element for each of {} ranks, got {} elements, of "
        "which rank {} owns none; use fewer workers",
        shard_group().size(), network.parameter_count(), shard_group().rank()));
  }
  used_.resize(owned_.size());
  own_frozen(slices);
}

void ShardedParameters::own_frozen(const std::map<std::string, TensorShard>& slices) {
  for (const auto& [name, whole] : frozen_parameters(*network_)) {
    if (whole.numel() == 0) continue;
    ParameterLayout parameter{
        .name = name,
        .whole = whole,
        .range = owned_range(static_cast<std::size_t>(whole.numel()), shard_group().rank(),
                             shard_group().size(), ShardCut::equal)};
    if (shards_parameters()) parameter.own = fully_sharded_->parameters()[fully_sharded_of(whole)].own;
    if (const auto slice = slices.find(name); slice != slices.end()) parameter.slice = slice->second;
    parameters_.push_back(std::move(parameter));
  }
}

std::size_t ShardedParameters::fully_sharded_of(const Tensor& whole) const {
  const auto& all = fully_sharded_->parameters();
  const auto found =
      std::ranges::find_if(all, [&](const ParameterLayout& one) { return one.whole.shares_storage(whole); });
  if (found != all.end()) return static_cast<std::size_t>(found - all.begin());
  throw UsageError("sharded data parallel: expected parameters with elements, got " + whole.describe());
}

// Gradients come last first. A large module's are not to stay until the next module's are there.
void ShardedParameters::own_fully_sharded(const NamedTensors& whole,
                                          std::vector<std::size_t>& last_of_bucket) {
  std::size_t unit_before = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const std::size_t found = fully_sharded_of(whole[i].second);
    parameters_.push_back(fully_sharded_->parameters()[found]);
    parameters_.back().name = whole[i].first;
    const std::size_t unit = fully_sharded_->unit_of(found);
    const bool large = fully_sharded_->unit_bytes(unit) > options_.bucket_bytes / 4;
    if (large && (i == 0 || unit != unit_before)) last_of_bucket.push_back(i);
    unit_before = unit;
  }
}

NamedTensors ShardedParameters::owned() const {
  NamedTensors owned;
  for (std::size_t i = 0; i < owned_.size(); ++i) {
    if (owned_[i].defined()) owned.emplace_back(parameters_[i].name, owned_[i]);
  }
  return owned;
}

NamedTensors ShardedParameters::shards_here() const {
  NamedTensors here;
  for (const ParameterLayout& parameter : parameters_) {
    if (parameter.is_owned()) here.emplace_back(parameter.name, parameter.owned());
  }
  return here;
}

void ShardedParameters::begin(Communicator& all, const Deadline& deadline) {
  const NamedTensors state = network_->state_dict();
  check_same_model(all, state, deadline);
  copy_from_first_rank(all, shards_parameters() ? whole_tensors() : state, deadline);
  if (shards_parameters() && has_replicas())
    copy_from_first_rank(*groups_.replicate_group, shards_here(), deadline);
  for (std::size_t i = 0; i < owned_.size(); ++i) {
    Tensor& parameter = parameters_[i].whole;
    parameter.on_grad_ready([this, i] {
      if (!parameters_[i].whole.grad().defined()) return;
      used_[i] = true;
      exchange_->mark_ready(i);
    });
  }
}

void ShardedParameters::begin_step() {
  network_->zero_grad();
  used_.assign(used_.size(), false);
  exchange_->begin_step();
}

void ShardedParameters::begin_use(ParameterUse use) {
  if (fully_sharded_) fully_sharded_->begin(use);
}

void ShardedParameters::begin_pass(bool exchange, std::size_t pass) { exchange_->begin_pass(exchange, pass); }

void ShardedParameters::finish_pass() { exchange_->finish_pass(); }

void ShardedParameters::finish_step() {
  if (fully_sharded_) fully_sharded_->reshard();
  if (has_replicas() && options_.averages_replicas) average_replicas();
  const UsedParameters used = used_by_any();
  for (std::size_t i = 0; i < owned_.size(); ++i) {
    if (owned_[i].defined() && used[i]) owned_[i].set_grad(exchange_->owned_gradient(i));
  }
}

UsedParameters ShardedParameters::used_by_any() const {
  const UsedParameters used = used_anywhere(used_, groups_.shard_group, patience());
  return has_replicas() ? used_anywhere(used, *groups_.replicate_group, patience()) : used;
}

void ShardedParameters::take_update() {
  for (Tensor& owned : owned_) {
    if (owned.defined()) owned.zero_grad();
  }
  network_->zero_grad();
  fully_sharded_ ? fully_sharded_->mark_modified() : exchange_->gather_parameters();
}

void ShardedParameters::drop_step() {
  if (fully_sharded_) fully_sharded_->reshard();
  network_->zero_grad();
}

// What a group of ranks with a part each added up goes once more between the groups: 1/parts of the bytes.
void ShardedParameters::average_replicas() {
  NamedTensors gradients;
  for (std::size_t i = 0; i < owned_.size(); ++i) {
    if (parameters_[i].is_owned()) gradients.emplace_back(parameters_[i].name, exchange_->owned_gradient(i));
  }
  average(gradients, *groups_.replicate_group, patience());
}

// What is whole everywhere is read whole; of the rest each rank reads what it has.
void ShardedParameters::load_model(const TensorFiles& files) {
  std::vector<ParameterLayout> here = with_other_names();
  for (ParameterLayout& parameter : here) {
    if (!shards_parameters()) parameter.range.reset();
  }
  read_in_place(files, here);
  load_whole(files, whole_tensors());
  if (fully_sharded_) fully_sharded_->mark_modified();
}

// What was saved of parameters that are frozen now has no use here.
NamedTensors ShardedParameters::load_state(const TensorFiles& files, const NameHere& name_here) const {
  const NamedTensors frozen = frozen_parameters(*network_);
  return read_state(files, parameters_, parameters_.front().whole.shared_device(),
                    [&](const std::string& saved) {
                      const auto name = name_here(saved);
                      return name && belongs_to(*name, frozen) ? std::nullopt : name;
                    });
}

// Of a parameter's state, what has its shape is cut like it; the rest (a count of steps) is written by the
// rank that owns the first element; what belongs to no parameter, by the first rank.
RankState ShardedParameters::save(const NamedTensors& state) const {
  if (has_replicas() && groups_.replicate_group->rank() > 0) return {};
  const bool is_first = shard_group().rank() == 0;
  RankState saved;
  for (const ParameterLayout& parameter : with_other_names()) {
    if (!parameter.is_owned()) continue;
    const auto part = parameter.part();
    saved.model.push_back({parameter.name, parameter.owned().reshape(part->held_shape()), part});
  }
  if (is_first) {
    for (NamedShard& tensor : whole(whole_tensors())) saved.model.push_back(std::move(tensor));
  }
  for (const auto& [name, tensor] : state) {
    const ParameterLayout* const owner = layout_of(name, parameters_);
    if (const auto part = part_of(name, tensor, parameters_)) {
      saved.optimizer.push_back({name, tensor.detach().reshape(part->held_shape()), part});
    } else if (owner != nullptr ? owner->range->first == 0 : is_first) {
      saved.optimizer.push_back({name, tensor});
    }
  }
  return saved;
}

Replicas ShardedParameters::replicas(Communicator& all) const {
  const bool drift = !options_.averages_replicas;
  if (!shards_parameters()) return {drift ? &groups_.shard_group : &all, network_->named_parameters()};
  if (!has_replicas() || drift) return {};
  return {groups_.replicate_group, owned()};
}

// Buffers, and frozen parameters without elements: nobody owns a part of them.
NamedTensors ShardedParameters::whole_tensors() const {
  NamedTensors tensors = network_->named_buffers();
  for (NamedTensor& frozen : frozen_parameters(*network_)) {
    const auto is_of = [&](const ParameterLayout& parameter) { return parameter.name == frozen.first; };
    if (std::ranges::none_of(parameters_, is_of)) tensors.push_back(std::move(frozen));
  }
  return tensors;
}

// Parameters once for each name that they have: tied weights have several.
std::vector<ParameterLayout> ShardedParameters::with_other_names() const {
  std::vector<ParameterLayout> all = parameters_;
  for (const auto& [name, tensor] : network_->state_dict()) {
    for (const ParameterLayout& parameter : parameters_) {
      if (!parameter.whole.shares_storage(tensor) || parameter.name == name) continue;
      ParameterLayout other = parameter;
      other.name = name;
      all.push_back(std::move(other));
    }
  }
  return all;
}

std::string ShardedParameters::describe_stats(std::size_t peak_bytes, std::int64_t steps) const {
  const auto mib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  const auto count = static_cast<double>(std::max<std::int64_t>(steps, 1));
  const std::uint64_t gathered =
      fully_sharded_ ? fully_sharded_->stats().gathered_bytes : stats().gathered_bytes;
  const std::string text =
      fmt::format("held at most {:.1f} MiB; in a step: {:.2f} MiB of gradients, {:.2f} of parameters",
                  mib(peak_bytes), mib(stats().reduced_bytes) / count, mib(gathered) / count);
  if (!fully_sharded_) return text;
  const GatherStats& gathers = fully_sharded_->stats();
  return text + fmt::format(
                    "\nwhole at the same time: at most {:.2f} MiB of parameters; {} of {} modules came ahead",
                    mib(gathers.peak_bytes), gathers.prefetched, gathers.gathers);
}

}  // namespace dtrain
