#include "parallel/server/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "collectives/p2p/reduce.h"
#include "runtime/base/error.h"

namespace dtrain::server {
namespace {

Message refusal(Status status, std::string why) {
  Message message;
  message.head.kind = static_cast<std::uint8_t>(status);
  message.text = std::move(why);
  return message;
}

/// Of all workers, each divided before they are added up in the workers' order: the bits of data parallelism.
/// Who did not use the key counts as zero; undefined where nobody did.
Tensor average_of(const std::vector<Tensor>& terms) {
  std::vector<p2p::Operand> operands;
  Tensor sum, zeros;
  for (const Tensor& term : terms) {
    if (!term.defined()) continue;
    if (!sum.defined()) sum = term;
    if (terms.size() > 1)
      term.device().kernels().affine(term.view(), 1.0 / static_cast<double>(terms.size()), 0.0, term.view());
  }
  if (!sum.defined()) return sum;
  for (const Tensor& term : terms) {
    if (!term.defined() && !zeros.defined()) zeros = Tensor::zeros_like(sum);
    operands.push_back({(term.defined() ? term : zeros).view().data});
  }
  p2p::reduce(sum.dtype(), ReduceOp::sum, sum.view().data, operands, static_cast<std::size_t>(sum.numel()));
  return sum;
}

}  // namespace

Table::Table(const ServerRules& rules, std::unique_ptr<Updater> updater, Answer answer)
    : rules_(rules),
      updater_(std::move(updater)),
      answer_(std::move(answer)),
      device_(make_device("cpu")),
      workers_(static_cast<std::size_t>(rules.workers)) {}

// A worker that reconnects continues with the others: they do not wait until it has caught up.
bool Table::join(int worker) {
  if (worker < 0 || worker >= rules_.workers || at(worker).present) return false;
  Worker& joined = at(worker);
  joined.waiting.clear();
  joined.finished = joined.left = false;
  joined.ahead = 0;
  std::optional<std::int64_t> slowest;
  for (const Worker& other : workers_) {
    if (other.present && !other.finished) slowest = std::min(slowest.value_or(other.clock), other.clock);
  }
  joined.clock = slowest.value_or(joined.clock);
  joined.present = true;
  ever_.insert(worker);
  ++present_;
  return true;
}

void Table::lose(int worker) {
  Worker& lost = at(worker);
  if (!lost.present) return;
  lost.present = false;
  lost.waiting.clear();
  --present_;
  if (!lost.left) {
    if (worker == rules_.recorder)
      end(fmt::format("worker {}, which writes the run's records, is gone", worker));
    else if (rules_.update == ServerUpdate::sync)
      end(fmt::format("worker {} is gone, and a synchronous update needs all {} workers", worker,
                      rules_.workers));
  }
  answer_all();
}

void Table::ask(int worker, Message request) {
  if (!over_.empty()) return reply(worker, request, refusal(Status::over, over_));
  at(worker).waiting.push_back(std::move(request));
  answer_all();
}

void Table::answer_all() {
  for (bool moved = true; moved && over_.empty();) {
    moved = false;
    for (int worker = 0; worker < rules_.workers && over_.empty(); ++worker) {
      auto& waiting = at(worker).waiting;
      while (over_.empty() && !waiting.empty()) {
        Message request = std::move(waiting.front());
        waiting.pop_front();
        if (!serve_or_refuse(worker, request)) {
          waiting.push_front(std::move(request));
          break;
        }
        moved = true;
      }
    }
  }
  if (!over_.empty()) dismiss_all();
}

bool Table::serve_or_refuse(int worker, Message& request) {
  try {
    return serve(worker, request);
  } catch (const Error& error) {
    refuse(worker, request, error.what());
    return true;
  }
}

bool Table::serve(int worker, Message& request) {
  Worker& asking = at(worker);
  switch (request.op()) {
    case Op::init:
      return init(worker, request);
    case Op::push:
      return push(worker, request);
    case Op::pull:
      return pull(worker, request);
    case Op::put:
      said_[request.head.number] = std::move(request.payload);
      accept(worker, request);
      return true;
    case Op::wait_get:
      return wait_get(worker, request);
    case Op::state:
      give_state(worker, request);
      return true;
    case Op::restore:
      restore(worker, request);
      return true;
    case Op::report: {
      Message answer;
      answer.text = delays_.text();
      reply(worker, request, std::move(answer));
      return true;
    }
    case Op::finish:
      asking.finished = true;
      accept(worker, request);
      return true;
    case Op::wait_for_others: {
      const auto busy = [&](const Worker& other) {
        return &other != &asking && other.present && !other.finished && !other.left;
      };
      if (std::any_of(workers_.begin(), workers_.end(), busy)) return false;
      accept(worker, request);
      return true;
    }
    case Op::disconnect:
      asking.finished = asking.left = some_left_ = true;
      accept(worker, request);
      return true;
  }
  return true;
}

bool Table::init(int worker, Message& request) {
  const auto meta = tensor_meta(request.text);
  if (!meta) {
    refuse(worker, request, "init: expected the description of a tensor, got '" + request.text + "'");
    return true;
  }
  const auto dtype = static_cast<DType>(meta->dtype);
  if (dtype != DType::f32 && dtype != DType::f64 && dtype != DType::bf16) {
    refuse(worker, request,
           fmt::format("init: key '{}': expected float32, float64 or bfloat16, got {}", meta->name,
                       name_of(dtype)));
    return true;
  }
  auto known = index_.find(meta->name);
  if (known == index_.end()) {
    if (request.payload.empty() && bytes_of(*meta) > 0) return false;  // somebody else brings the values
    if (request.payload.size() != bytes_of(*meta)) {
      refuse(worker, request,
             fmt::format("init: key '{}': expected {} bytes, got {}", meta->name, bytes_of(*meta),
                         request.payload.size()));
      return true;
    }
    Key key;
    key.name = meta->name;
    key.value = Tensor::empty(Dims(meta->shape), device_, dtype);
    std::size_t offset = 0;
    take_values(request.payload, offset, key.value);
    key.value.set_requires_grad(true);
    key.pulled.resize(workers_.size());
    key.contributed.resize(workers_.size());
    known = index_.emplace(meta->name, static_cast<std::uint32_t>(keys_.size())).first;
    keys_.push_back(std::move(key));
  }
  const Key& key = keys_[known->second];
  if (key.value.dtype() != dtype || key.value.shape() != Dims(meta->shape)) {
    refuse(worker, request,
           fmt::format("init: key '{}' is {} here, and {} of worker {}", meta->name, key.value.describe(),
                       request.text, worker));
    return true;
  }
  Message answer;
  answer.head.number = known->second;
  answer.head.ahead = at(worker).applied;
  reply(worker, request, std::move(answer));
  return true;
}

// Empty where the request does not fit the keys it names.
std::vector<Tensor> Table::gradients_of(const Message& request) const {
  std::vector<Tensor> gradients;
  std::size_t offset = 0;
  for (const std::uint32_t key : request.keys) {
    const std::uint32_t index = key & ~kNoGradient;
    if (index >= keys_.size()) return {};
    const Tensor& value = keys_[index].value;
    if ((key & kNoGradient) != 0) {
      gradients.emplace_back();
      continue;
    }
    if (request.payload.size() - offset < bytes_of(value)) return {};
    gradients.push_back(Tensor::empty(value.shape(), device_, value.dtype()));
    take_values(request.payload, offset, gradients.back());
  }
  if (offset != request.payload.size()) return {};
  return gradients;
}

bool Table::push(int worker, Message& request) {
  if (!may_go_on(at(worker))) return false;
  std::vector<Tensor> gradients = gradients_of(request);
  if (gradients.empty()) {
    refuse(worker, request,
           fmt::format("push: expected the bytes of {} known keys, got {}", request.keys.size(),
                       request.payload.size()));
    return true;
  }
  request.payload = {};
  for (std::uint32_t& key : request.keys) key &= ~kNoGradient;
  rules_.update == ServerUpdate::sync ? push_sync(worker, std::move(gradients), request)
                                      : push_async(worker, std::move(gradients), request);
  return true;
}

void Table::push_sync(int worker, std::vector<Tensor> gradients, const Message& request) {
  std::vector<std::uint32_t> complete;
  for (std::size_t i = 0; i < request.keys.size(); ++i) {
    auto& contributed = keys_[request.keys[i]].contributed;
    contributed[static_cast<std::size_t>(worker)].push_back(std::move(gradients[i]));
    if (std::none_of(contributed.begin(), contributed.end(), [](const auto& queue) { return queue.empty(); }))
      complete.push_back(request.keys[i]);
  }
  ++at(worker).applied;
  ++delays_.pushes[worker];
  accept(worker, request);
  if (complete.empty()) return;
  std::vector<Tensor> averages;
  for (const std::uint32_t index : complete) {
    std::vector<Tensor> terms;
    for (auto& queue : keys_[index].contributed) {
      terms.push_back(std::move(queue.front()));
      queue.pop_front();
    }
    averages.push_back(average_of(terms));
  }
  apply(complete, averages, request.head.rate);
}

void Table::push_async(int worker, std::vector<Tensor> gradients, const Message& request) {
  Worker& pushing = at(worker);
  const Key& first = keys_[request.keys.front()];
  Message answer;
  answer.head.number = first.version - first.pulled[static_cast<std::size_t>(worker)];
  answer.head.ahead = std::max(pushing.ahead, pushing.clock - slowest(pushing));
  ++delays_.behind[answer.head.number];
  ++delays_.ahead[answer.head.ahead];
  ++delays_.pushes[worker];
  apply(request.keys, gradients, request.head.rate);
  if (!over_.empty()) return reply(worker, request, refusal(Status::over, over_));
  ++pushing.clock;
  ++pushing.applied;
  pushing.ahead = 0;
  reply(worker, request, std::move(answer));
}

void Table::apply(const std::vector<std::uint32_t>& keys, const std::vector<Tensor>& gradients, double rate) {
  std::vector<KeyUpdate> updates;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    Key& key = keys_[keys[i]];
    updates.push_back({key.name, gradients[i], key.value});
    ++key.version;
  }
  try {
    updater_->update(updates, all_values(), rate);
  } catch (const std::exception& error) {
    end(fmt::format("an update failed: {}", error.what()));
  }
}

bool Table::pull(int worker, const Message& request) {
  Worker& pulling = at(worker);
  for (const std::uint32_t index : request.keys) {
    if (index >= keys_.size()) {
      refuse(worker, request, fmt::format("pull: expected a key below {}, got {}", keys_.size(), index));
      return true;
    }
    if (rules_.update == ServerUpdate::async || keys_[index].version >= request.head.number) continue;
    const auto left = std::find_if(workers_.begin(), workers_.end(), [](const Worker& w) { return w.left; });
    if (left == workers_.end()) return false;
    refuse(worker, request,
           fmt::format("pull: worker {} has left, and an update needs all {} workers",
                       left - workers_.begin(), rules_.workers));
    return true;
  }
  if (!may_go_on(pulling)) return false;
  pulling.ahead = pulling.clock - slowest(pulling);
  Message answer;
  for (const std::uint32_t index : request.keys) {
    Key& key = keys_[index];
    key.pulled[static_cast<std::size_t>(worker)] = key.version;
    const auto* bytes = static_cast<const std::byte*>(key.value.view().data);
    answer.payload.insert(answer.payload.end(), bytes, bytes + bytes_of(key.value));
  }
  if (!request.keys.empty()) answer.head.number = keys_[request.keys.front()].version;
  reply(worker, request, std::move(answer));
  return true;
}

bool Table::wait_get(int worker, const Message& request) {
  const auto said = said_.find(request.head.number);
  if (said == said_.end()) return false;
  Message answer;
  answer.payload = said->second;
  reply(worker, request, std::move(answer));
  return true;
}

void Table::give_state(int worker, const Message& request) {
  NamedTensors tensors = all_values();
  StateMeta meta;
  meta.keys = static_cast<std::int64_t>(tensors.size());
  for (auto& tensor : updater_->state()) tensors.push_back(std::move(tensor));
  Message answer;
  for (const auto& [name, tensor] : tensors) {
    const Tensor dense = tensor.detach().contiguous();
    const Dims& shape = dense.shape();
    meta.tensors.push_back({name, static_cast<int>(dense.dtype()), {shape.begin(), shape.end()}});
    const auto* bytes = static_cast<const std::byte*>(dense.view().data);
    answer.payload.insert(answer.payload.end(), bytes, bytes + bytes_of(dense));
  }
  for (const Worker& each : workers_) meta.applied.push_back(each.applied);
  answer.text = to_text(meta);
  reply(worker, request, std::move(answer));
}

void Table::restore(int worker, const Message& request) {
  const auto meta = state_meta(request.text);
  std::size_t expected = 0;
  if (meta) {
    for (const TensorMeta& tensor : meta->tensors) expected += bytes_of(tensor);
  }
  if (!meta || meta->keys != 0 || expected != request.payload.size())
    return refuse(worker, request, "restore: expected state and as many bytes as it describes");
  NamedTensors state;
  std::size_t offset = 0;
  for (const TensorMeta& tensor : meta->tensors) {
    state.emplace_back(tensor.name,
                       Tensor::empty(Dims(tensor.shape), device_, static_cast<DType>(tensor.dtype)));
    take_values(request.payload, offset, state.back().second);
  }
  try {
    updater_->load_state(std::move(state));
  } catch (const Error& error) {
    return refuse(worker, request, error.what());
  }
  for (std::size_t i = 0; i < std::min(workers_.size(), meta->applied.size()); ++i)
    workers_[i].applied = meta->applied[i];
  accept(worker, request);
}

void Table::reply(int worker, const Message& request, Message answer) {
  if (answer.head.kind == 0) answer.head.kind = static_cast<std::uint8_t>(Status::ok);
  answer.head.id = request.head.id;
  answer_(worker, std::move(answer));
}

void Table::refuse(int worker, const Message& request, std::string why) {
  reply(worker, request, refusal(Status::refused, std::move(why)));
}

void Table::end(const std::string& why) {
  if (over_.empty()) over_ = why;
}

// Everybody hears it at once, also those who wait for others.
void Table::dismiss_all() {
  for (int worker = 0; worker < rules_.workers; ++worker) {
    for (const Message& request : std::exchange(at(worker).waiting, {})) {
      if (at(worker).present) reply(worker, request, refusal(Status::over, over_));
    }
  }
}

std::int64_t Table::slowest(const Worker& worker) const {
  std::int64_t least = worker.clock;
  for (const Worker& other : workers_) {
    if (other.present && !other.finished) least = std::min(least, other.clock);
  }
  return least;
}

bool Table::may_go_on(const Worker& worker) const {
  return rules_.update == ServerUpdate::sync || !rules_.max_staleness ||
         worker.clock - slowest(worker) <= *rules_.max_staleness;
}

NamedTensors Table::all_values() const {
  NamedTensors values;
  for (const Key& key : keys_) values.emplace_back(key.name, key.value);
  return values;
}

}  // namespace dtrain::server
