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

void ShardedParameters::own(Module& network, std::vector<ParameterLayout>& parameters,
                            const PassKinds& passes) {
  network_ = &network;
  if (shards_parameters()) {
    network.visit([this](Module& module) { fully_sharded_->shard(module); });
    fully_sharded_->name_as(network);
    fully_sharded_->reshard();
  }
  const NamedTensors whole = learning(network, passes);
  exchange_ = std::make_unique<ShardExchange>(groups_.shard_group, whole, options_, last_of_buckets(whole),
                                              firsts_of_sets(whole, passes));
  bool owns_any = false;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    cut(parameters, whole[i], exchange_->owned(i));
    owned_.emplace_back();
    if (!parameters_[i]->is_owned()) continue;
    owned_.back() = parameters_[i]->owned();
    owned_.back().set_requires_grad(true);
    owns_any = true;
  }
  const Communicator& ranks = groups_.shard_group;
  if (!owns_any) {
    throw UsageError(fmt::format(
        "sharded data parallel: expected a network with an element for each of {} ranks, got {} elements, of "
        "which rank {} owns none; use fewer workers",
        ranks.size(), network.parameter_count(), ranks.rank()));
  }
  used_.resize(owned_.size());
  for (const NamedTensor& frozen : frozen_parameters(network)) {
    const auto count = static_cast<std::size_t>(frozen.second.numel());
    if (count > 0) cut(parameters, frozen, owned_range(count, ranks.rank(), ranks.size(), ShardCut::equal));
  }
}

// Tied weights have a record for each of their names.
void ShardedParameters::cut(std::vector<ParameterLayout>& parameters, const NamedTensor& whole,
                            const ShardRange& range) {
  const ParameterLayout* first = nullptr;
  for (ParameterLayout& parameter : parameters) {
    if (!parameter.whole.shares_storage(whole.second)) continue;
    parameter.range = range;
    if (shards_parameters()) {
      const ParameterLayout& shard = fully_sharded_->parameters()[fully_sharded_of(whole.second)];
      parameter.range = shard.range;
      parameter.own = shard.own;
    }
    if (parameter.name == whole.first) first = &parameter;
  }
  parameters_.push_back(first);
}

std::size_t ShardedParameters::fully_sharded_of(const Tensor& whole) const {
  const auto& all = fully_sharded_->parameters();
  const auto found =
      std::ranges::find_if(all, [&](const ParameterLayout& one) { return one.whole.shares_storage(whole); });
  if (found != all.end()) return static_cast<std::size_t>(found - all.begin());
  throw UsageError("sharded data parallel: expected parameters with elements, got " + whole.describe());
}

// Gradients come last first. A large module's are not to stay until the next module's are there.
std::vector<std::size_t> ShardedParameters::last_of_buckets(const NamedTensors& whole) const {
  std::vector<std::size_t> last_of_bucket;
  if (!shards_parameters()) return last_of_bucket;
  std::size_t unit_before = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const std::size_t unit = fully_sharded_->unit_of(fully_sharded_of(whole[i].second));
    const bool large = fully_sharded_->unit_bytes(unit) > options_.bucket_bytes / 4;
    if (large && (i == 0 || unit != unit_before)) last_of_bucket.push_back(i);
    unit_before = unit;
  }
  return last_of_bucket;
}

NamedTensors ShardedParameters::owned() const {
  NamedTensors owned;
  for (std::size_t i = 0; i < owned_.size(); ++i) {
    if (owned_[i].defined()) owned.emplace_back(parameters_[i]->name, owned_[i]);
  }
  return owned;
}

NamedTensors ShardedParameters::shards_here() const {
  NamedTensors here;
  for (const ParameterLayout* parameter : parameters_) {
    if (parameter->is_owned()) here.emplace_back(parameter->name, parameter->owned());
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
    Tensor parameter = parameters_[i]->whole;
    parameter.on_grad_ready([this, i] {
      if (!parameters_[i]->whole.grad().defined()) return;
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
    if (parameters_[i]->is_owned())
      gradients.emplace_back(parameters_[i]->name, exchange_->owned_gradient(i));
  }
  average(gradients, *groups_.replicate_group, patience());
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
    const auto is_of = [&](const ParameterLayout* parameter) { return parameter->name == frozen.first; };
    if (std::ranges::none_of(parameters_, is_of)) tensors.push_back(std::move(frozen));
  }
  return tensors;
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
