#include "parallel/server/key_value_store.h"

#include <algorithm>
#include <map>

#include "parallel/server/protocol.h"
#include "parallel/server/server_channels.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

using server::append_values;
using server::bytes_of;
using server::meta_of;
using server::Op;

server::Message request(Op op) {
  server::Message message;
  message.head.kind = static_cast<std::uint8_t>(op);
  return message;
}

/// Where a key is, and how often it was pushed from here.
struct Place {
  int server = 0;
  std::uint32_t index = 0;
  std::int64_t pushes = 0;
};

/// What of one request goes to each server, by the tensors' place in it.
using Shares = std::map<int, std::vector<std::size_t>>;

}  // namespace

struct KeyValueStore::Impl {
  Impl(std::span<const std::string> addresses, const KeyValueStoreOptions& options, const Deadline& deadline)
      : channels(addresses, options, deadline) {}

  Place& place(const std::string& key) {
    const auto found = places.find(key);
    if (found == places.end())
      throw UsageError("parameter servers: key '" + key + "' was not initialised here");
    return found->second;
  }

  Shares shares_of(const NamedTensors& tensors) {
    Shares shares;
    for (std::size_t i = 0; i < tensors.size(); ++i) shares[place(tensors[i].first).server].push_back(i);
    return shares;
  }

  void post_push(int server, const std::vector<std::size_t>& share, const NamedTensors& gradients,
                 double rate) {
    server::Message message = request(Op::push);
    message.head.rate = rate;
    for (const std::size_t i : share) {
      Place& at = place(gradients[i].first);
      const bool has_gradient = gradients[i].second.defined();
      message.keys.push_back(has_gradient ? at.index : at.index | server::kNoGradient);
      ++at.pushes;
      if (has_gradient) append_values(gradients[i].second, message.payload);
    }
    channels.post(server, std::move(message));
  }

  void post_pull(int server, const std::vector<std::size_t>& share, const NamedTensors& values) {
    server::Message message = request(Op::pull);
    for (const std::size_t i : share) {
      const Place& at = place(values[i].first);
      message.keys.push_back(at.index);
      message.head.number = std::max(message.head.number, at.pushes);
    }
    channels.post(server, std::move(message));
  }

  void fill(const std::vector<std::size_t>& share, const NamedTensors& values,
            const server::Message& answer) {
    std::size_t offset = 0;
    for (const std::size_t i : share) {
      Tensor value = values[i].second.detach();
      const bool here = value.device().type() == DeviceType::cpu;
      const Tensor host = Tensor::empty(value.shape(), here ? value.shared_device() : cpu, value.dtype());
      if (!server::take_values(answer.payload, offset, host))
        throw PeerError("parameter server: a pull returned too few bytes",
                        PeerFailure{-1, "", "pull", 0, ""});
      value.copy_from(here ? host : host.to(value.shared_device()));
      values[i].second.mark_modified();
    }
  }

  PushDelay take_push(int server, const Deadline& deadline) {
    const server::Message answer = channels.answer(server, deadline);
    return {answer.head.number, answer.head.ahead};
  }

  std::int64_t introduce(const std::string& key, const Tensor& value, bool brings, int server,
                         const Deadline& deadline) {
    server::Message message = request(Op::init);
    message.text = to_text(meta_of(key, value));
    if (brings) append_values(value, message.payload);
    const server::Message answer = channels.ask(server, std::move(message), deadline);
    places[key] = {server, static_cast<std::uint32_t>(answer.head.number), 0};
    return answer.head.ahead;
  }

  void tell_all(Op op, const Deadline& deadline) {
    for (int server = 0; server < channels.size(); ++server) channels.post(server, request(op));
    for (int server = 0; server < channels.size(); ++server) channels.answer(server, deadline);
  }

  server::ServerChannels channels;
  std::map<std::string, Place> places;
  std::shared_ptr<Device> cpu = make_device("cpu");
};

KeyValueStore::KeyValueStore(std::span<const std::string> addresses, const KeyValueStoreOptions& options,
                             const Deadline& deadline)
    : impl_(std::make_unique<Impl>(addresses, options, deadline)) {}

KeyValueStore::~KeyValueStore() = default;

int KeyValueStore::servers() const noexcept { return impl_->channels.size(); }

int KeyValueStore::server_of(const std::string& key) const noexcept {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return static_cast<int>(hash % static_cast<std::uint64_t>(servers()));
}

std::int64_t KeyValueStore::init(const std::string& key, const Tensor& value, const Deadline& deadline,
                                 std::optional<int> server) {
  return impl_->introduce(key, value, true, server.value_or(server_of(key)), deadline);
}

std::int64_t KeyValueStore::expect(const std::string& key, const Tensor& value, const Deadline& deadline,
                                   std::optional<int> server) {
  return impl_->introduce(key, value, false, server.value_or(server_of(key)), deadline);
}

PushDelay KeyValueStore::push(const NamedTensors& gradients, double rate, const Deadline& deadline) {
  return exchange(gradients, rate, {}, deadline);
}

void KeyValueStore::pull(const NamedTensors& values, const Deadline& deadline) {
  exchange({}, 0, values, deadline);
}

PushDelay KeyValueStore::exchange(const NamedTensors& gradients, double rate, const NamedTensors& values,
                                  const Deadline& deadline) {
  const Shares pushes = impl_->shares_of(gradients), pulls = impl_->shares_of(values);
  for (const auto& [server, share] : pushes) impl_->post_push(server, share, gradients, rate);
  for (const auto& [server, share] : pulls) impl_->post_pull(server, share, values);
  PushDelay delay;
  for (const auto& [server, share] : pushes) {
    const PushDelay of_server = impl_->take_push(server, deadline);
    delay = {std::max(delay.behind, of_server.behind), std::max(delay.ahead, of_server.ahead)};
  }
  for (const auto& [server, share] : pulls)
    impl_->fill(share, values, impl_->channels.answer(server, deadline));
  return delay;
}

void KeyValueStore::put(std::int64_t number, std::span<const std::byte> text, const Deadline& deadline) {
  server::Message message = request(Op::put);
  message.head.number = number;
  message.payload.assign(text.begin(), text.end());
  impl_->channels.ask(0, std::move(message), deadline);
}

std::vector<std::byte> KeyValueStore::wait_get(std::int64_t number, const Deadline& deadline) {
  server::Message message = request(Op::wait_get);
  message.head.number = number;
  return impl_->channels.ask(0, std::move(message), deadline).payload;
}

ServerState KeyValueStore::state(int server, const Deadline& deadline) {
  const server::Message answer = impl_->channels.ask(server, request(Op::state), deadline);
  const auto meta = server::state_meta(answer.text);
  if (!meta) throw PeerError("parameter server: its state is not valid", PeerFailure{-1, "", "state", 0, ""});
  ServerState state;
  state.applied = meta->applied;
  std::size_t offset = 0;
  for (std::size_t i = 0; i < meta->tensors.size(); ++i) {
    const server::TensorMeta& item = meta->tensors[i];
    if (answer.payload.size() - offset < bytes_of(item))
      throw PeerError("parameter server: its state is truncated", PeerFailure{-1, "", "state", 0, ""});
    const Tensor tensor = Tensor::empty(Dims(item.shape), impl_->cpu, static_cast<DType>(item.dtype));
    server::take_values(answer.payload, offset, tensor);
    (static_cast<std::int64_t>(i) < meta->keys ? state.values : state.state).emplace_back(item.name, tensor);
  }
  return state;
}

void KeyValueStore::restore(int server, const NamedTensors& state, std::span<const std::int64_t> applied,
                            const Deadline& deadline) {
  server::Message message = request(Op::restore);
  server::StateMeta meta;
  for (const auto& [name, tensor] : state) {
    meta.tensors.push_back(meta_of(name, tensor));
    append_values(tensor, message.payload);
  }
  meta.applied.assign(applied.begin(), applied.end());
  message.text = to_text(meta);
  impl_->channels.ask(server, std::move(message), deadline);
}

UpdateDelays KeyValueStore::delays(const Deadline& deadline) {
  const auto delays = UpdateDelays::parse(impl_->channels.ask(0, request(Op::report), deadline).text);
  if (!delays)
    throw PeerError("parameter server 0: its report is not valid", PeerFailure{-1, "", "report", 0, ""});
  return *delays;
}

void KeyValueStore::finish(const Deadline& deadline) { impl_->tell_all(Op::finish, deadline); }
void KeyValueStore::wait_for_others(const Deadline& deadline) {
  impl_->tell_all(Op::wait_for_others, deadline);
}
void KeyValueStore::disconnect(const Deadline& deadline) {
  for (int server = 0; server < servers(); ++server) impl_->channels.post(server, request(Op::disconnect));
  for (int server = 0; server < servers(); ++server) {
    impl_->channels.answer(server, deadline);
    impl_->channels.part(server);
  }
}

}  // namespace dtrain
