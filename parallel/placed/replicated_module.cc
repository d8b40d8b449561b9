#include "parallel/placed/replicated_module.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/p2p/algorithm/tree.h"
#include "runtime/autograd/fork.h"
#include "runtime/autograd/node.h"
#include "runtime/base/error.h"
#include "runtime/device/between.h"
#include "runtime/nn/dropout.h"
#include "runtime/tensor/defaults.h"

namespace dtrain {
namespace {

std::uint64_t bytes_of(const Tensor& tensor) {
  return static_cast<std::uint64_t>(tensor.numel()) * size_of(tensor.dtype());
}

std::int64_t rows_of(const Tensor& x) {
  if (x.rank() > 0) return x.size(0);
  throw UsageError("replicas: expected a tensor with the rows of a batch as its first dimension, got " +
                   x.describe());
}

/// The places of all parts' rows, part after part, in the batch.
std::vector<std::int64_t> places_of(std::int64_t rows, std::int64_t parts) {
  std::vector<std::int64_t> places;
  for (std::int64_t part = 0; part < parts; ++part) {
    for (std::int64_t row = part; row < rows; row += parts) places.push_back(row);
  }
  return places;
}

/// A replica's gradient on its way to its parent's, at last to the parameter that learns: copied or added to
/// where it stays, with nothing in between where devices share memory.
void bring_home(const Tensor& grad, const std::shared_ptr<Device>& home, GradSink& sink) {
  if (sink.options().create_graph) return sink.deliver(0, grad.to(home));
  if (const auto total = sink.accumulator(0)) {
    const bool in_reach = share_memory(grad.device(), *home);
    Tensor(*total).add_in_place(in_reach ? Tensor::borrow(grad.view(), home, std::make_shared<Tensor>(grad))
                                         : grad.to(home));
    return sink.delivered_in_place(0);
  }
  Tensor target = sink.destination(0, home);
  target.copy_across(grad);
  sink.deliver(0, std::move(target));
}

/// Parameters and buffers without a dot in their names are the module's own.
bool is_own(const std::string& name) { return name.find('.') == std::string::npos; }

}  // namespace

Tensors scatter_rows(const Tensor& x, const std::vector<std::shared_ptr<Device>>& devices, RowSplit split) {
  const std::int64_t rows = rows_of(x);
  const auto count = static_cast<std::int64_t>(devices.size());
  Tensors parts;
  if (split == RowSplit::runs) {
    parts = chunk(x, count);
  } else {
    for (std::int64_t part = 0; part < std::min(rows, count); ++part)
      parts.push_back(x.slice(0, part, rows, count));
  }
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i] = parts[i].to(devices[i]).contiguous();
  return parts;
}

Tensor gather_rows(const Tensors& parts, const std::shared_ptr<Device>& device, RowSplit split) {
  Tensors here;
  bool even = true;
  for (const Tensor& part : parts) {
    even = even && rows_of(part) == rows_of(parts.front());
    here.push_back(part.to(device));
  }
  if (here.size() == 1) return here.front();
  if (split == RowSplit::runs) return cat(here);
  if (even) return stack(here, 1).flatten(0, 1);
  const Tensor all = cat(here);
  const auto places = places_of(all.size(0), static_cast<std::int64_t>(parts.size()));
  std::vector<std::int64_t> order(places.size());
  for (std::size_t i = 0; i < places.size(); ++i)
    order[static_cast<std::size_t>(places[i])] = static_cast<std::int64_t>(i);
  return all.index_select(0, Tensor::from_data(order, {all.size(0)}, device));
}

namespace {

std::vector<Replica> made_replicas(const std::shared_ptr<Module>& learning,
                                   const std::vector<std::shared_ptr<Device>>& devices,
                                   const std::function<std::shared_ptr<Module>()>& make) {
  if (devices.empty()) throw UsageError("replicas: expected at least one device, got none");
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (std::find(devices.begin(), devices.begin() + static_cast<std::ptrdiff_t>(i), devices[i]) !=
        devices.begin() + static_cast<std::ptrdiff_t>(i))
      throw UsageError("replicas: expected different devices, got " + devices[i]->name() + " twice");
  }
  learning->to(devices.front());
  std::vector<Replica> replicas{{devices.front(), learning}};
  const Generator generator = default_generator();
  for (std::size_t i = 1; i < devices.size(); ++i) {
    const DefaultDevice here(devices[i]);
    replicas.push_back({devices[i], make()});
    replicas.back().network->to(devices[i]);
    replicas.back().network->load_state_dict(learning->state_dict());
  }
  default_generator() = generator;
  return replicas;
}

}  // namespace

ReplicatedModule::ReplicatedModule(const std::shared_ptr<Module>& learning,
                                   const std::vector<std::shared_ptr<Device>>& devices,
                                   const std::function<std::shared_ptr<Module>()>& make, RowSplit split)
    : ReplicatedModule(learning, made_replicas(learning, devices, make), split) {}

ReplicatedModule::ReplicatedModule(std::shared_ptr<Module> learning, std::vector<Replica> replicas,
                                   RowSplit split)
    : learning_(std::move(learning)),
      replicas_(std::move(replicas)),
      split_(split),
      parameters_(learning_->named_parameters()),
      traffic_(std::make_shared<ReplicaTraffic>()) {
  if (replicas_.empty()) throw UsageError("replicas: expected at least one, got none");
  for (const Replica& replica : replicas_) {
    check_alike(replica);
    replica_state_.push_back(replica.network->named_parameters());
  }
  adopt();
}

// The children are the same modules under the same names, so names, dropout and batch norm are found below
// this module as they are below the network.
void ReplicatedModule::adopt() {
  for (const auto& [name, tensor] : parameters_) {
    if (!is_own(name)) continue;
    const bool learns = tensor.requires_grad();
    add_parameter(name, tensor).set_requires_grad(learns);
  }
  for (const auto& [name, tensor] : learning_->named_buffers()) {
    if (is_own(name)) add_buffer(name, tensor);
  }
  for (const auto& [name, child] : learning_->children()) add_module(name, child);
}

void ReplicatedModule::check_alike(const Replica& replica) const {
  const NamedTensors theirs = replica.network->named_parameters();
  for (std::size_t i = 0; i < std::max(parameters_.size(), theirs.size()); ++i) {
    const auto text = [i](const NamedTensors& tensors) {
      return i < tensors.size() ? tensors[i].first + " " + tensors[i].second.describe() : "none";
    };
    if (text(parameters_) == text(theirs)) continue;
    throw UsageError(fmt::format("replicas: expected the same parameters on all devices, got {} and on {} {}",
                                 text(parameters_), replica.device->name(), text(theirs)));
  }
}

std::vector<std::shared_ptr<Device>> ReplicatedModule::devices() const {
  std::vector<std::shared_ptr<Device>> devices;
  for (const Replica& replica : replicas_) devices.push_back(replica.device);
  return devices;
}

// A replica's parameters become the results of operations on those of its parent in the tree by which ranks
// add up, so its gradients are added to those there: the bits of data parallelism. Backward meets operations
// in reverse: a parent's are made before its children's, and those of the larger children first.
void ReplicatedModule::replicate(std::size_t used) {
  replicate_children(0, used);
  if (replicas_.front().network != learning_) replicate_from(parameters_, 0);
  for (std::size_t j = 0; j < used; ++j) {
    if (replicas_[j].network != learning_ && !copies_itself(j)) copy_parameters(j);
  }
}

// Replica 0 stands for the parameters that learn, wherever they are.
void ReplicatedModule::replicate_children(int parent, std::size_t used) {
  const auto place = p2p::tree_place(static_cast<int>(replicas_.size()), parent);
  for (auto child = place.children.rbegin(); child != place.children.rend(); ++child) {
    const auto replica = static_cast<std::size_t>(child->begin);
    if (replica >= used) continue;
    replicate_from(parent == 0 ? parameters_ : replica_state_[static_cast<std::size_t>(parent)], replica);
    replicate_children(child->begin, used);
  }
}

void ReplicatedModule::replicate_from(const NamedTensors& sources, std::size_t replica) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& source = sources[i].second;
    Tensor& copy = replica_state_[replica][i].second;
    traffic_->parameters += bytes_of(source);
    const Tensor recorded =
        record("replicate", copy.detach(), {source},
               [home = source.shared_device(), traffic = traffic_](const Tensor& grad, GradSink& sink) {
                 traffic->gradients += bytes_of(grad);
                 bring_home(grad, home, sink);
               });
    copy.attach(recorded.autograd_state());
  }
}

// Host memory may be read by any thread, a GPU's queue belongs to one.
bool ReplicatedModule::copies_itself(std::size_t replica) const {
  return replicas_[replica].network != learning_ && !parameters_.empty() &&
         share_memory(parameters_.front().second.device(), *replicas_[replica].device);
}

void ReplicatedModule::copy_parameters(std::size_t replica) {
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    replica_state_[replica][i].second.detach().copy_across(parameters_[i].second);
}

// Where replicas run at the same time, so do their copies.
Tensors ReplicatedModule::run(std::size_t replica, const Tensors& inputs) {
  if (copies_itself(replica)) copy_parameters(replica);
  return (*replicas_[replica].network)(inputs);
}

// Masks are keyed by samples: each replica's dropout is told which its rows are.
void ReplicatedModule::hand_on_masks(std::size_t used) {
  const auto keys = dropout_keys(*learning_);
  if (keys.empty() || !keys.front()->step().defined()) return;
  const auto step = static_cast<std::int64_t>(keys.front()->step().item());
  const Tensor rows = keys.front()->rows();
  const Tensors parts = rows.defined() ? scatter_rows(rows, devices(), split_) : Tensors(used);
  for (std::size_t j = 0; j < used; ++j) {
    for (const auto& key : dropout_keys(*replicas_[j].network)) {
      key->set_step(step);
      if (parts[j].defined()) key->set_rows(parts[j]);
    }
  }
}

void ReplicatedModule::keep_buffers() {
  if (replicas_.front().network == learning_) return;
  const NamedTensors theirs = replicas_.front().network->named_buffers(), own = learning_->named_buffers();
  for (std::size_t i = 0; i < own.size(); ++i) own[i].second.detach().copy_across(theirs[i].second);
}

// The network that learns alone, as in evaluation.
Tensors ReplicatedModule::forward_learning(const Tensors& inputs) {
  const std::shared_ptr<Device>& output_device = replicas_.front().device;
  const std::shared_ptr<Device> home =
      parameters_.empty() ? output_device : parameters_.front().second.shared_device();
  Tensors here;
  for (const Tensor& x : inputs) here.push_back(x.to(home));
  Tensors outputs = (*learning_)(here);
  for (Tensor& y : outputs) y = y.to(output_device);
  return outputs;
}

// By replica; fewer than there are where the batch has fewer rows.
std::vector<Tensors> ReplicatedModule::scatter(const Tensors& inputs) {
  const auto all_devices = devices();
  std::vector<Tensors> fed(replicas_.size());
  std::size_t used = replicas_.size();
  for (const Tensor& x : inputs) {
    const Tensors parts = scatter_rows(x, all_devices, split_);
    used = std::min(used, parts.size());
    for (std::size_t j = 0; j < parts.size(); ++j) {
      fed[j].push_back(parts[j]);
      if (all_devices[j] != x.shared_device()) traffic_->activations += bytes_of(parts[j]);
    }
  }
  fed.resize(used);
  return fed;
}

bool ReplicatedModule::is_parameter(const Tensor& output) const {
  return std::any_of(
      replica_state_.front().begin(), replica_state_.front().end(),
      [&output](const NamedTensor& named) { return named.second.view().data == output.view().data; });
}

Tensors ReplicatedModule::gather(const std::vector<Tensors>& results) {
  Tensors outputs;
  for (std::size_t i = 0; i < results.front().size(); ++i) {
    if (is_parameter(results.front()[i])) {  // the same everywhere: a head that is left to the loss
      outputs.push_back(results.front()[i]);
      continue;
    }
    Tensors parts;
    for (std::size_t j = 0; j < results.size(); ++j) {
      parts.push_back(results[j][i]);
      // There, and as a gradient back.
      if (j > 0) traffic_->activations += 2 * bytes_of(parts.back());
    }
    outputs.push_back(gather_rows(parts, replicas_.front().device, split_));
  }
  return outputs;
}

Tensors ReplicatedModule::forward_all(const Tensors& inputs) {
  learning_->train(is_training());
  if (!is_training()) return forward_learning(inputs);
  const std::vector<Tensors> fed = scatter(inputs);
  replicate(fed.size());
  const auto keys = dropout_keys(*learning_);
  const Tensor rows = keys.empty() ? Tensor() : keys.front()->rows();  // of the whole batch
  hand_on_masks(fed.size());

  std::vector<Fork> others;
  for (std::size_t j = 1; j < fed.size(); ++j) {
    replicas_[j].network->train();
    others.push_back(fork_all([this, j, &input = fed[j]] { return run(j, input); }));
  }
  replicas_.front().network->train();
  std::vector<Tensors> results{run(0, fed.front())};
  for (const Fork& other : others) results.push_back(other.wait_all());
  for (const auto& key : dropout_keys(*learning_)) key->set_rows(rows);
  keep_buffers();
  return gather(results);
}

}  // namespace dtrain
