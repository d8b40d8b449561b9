// One function for each family of messages; a message that has not come whole yet changes nothing.
#include "launcher/agent_store/torch_store.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

namespace dtrain::launcher {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

enum What : std::uint8_t {
  kValidate,
  kSet,
  kCompareSet,
  kGet,
  kAdd,
  kCheck,
  kWait,
  kCountKeys,
  kDelete,
  kAppend,
  kMultiGet,
  kMultiSet,
  kCancelWait,
  kPing,
  kPush,
  kPop,
  kQueueLength,
  kListKeys,
  kBarrier,
};

constexpr std::uint32_t kMagic = 0x3C85F7CE;  // with it a client begins
constexpr char kReady = 0, kNotReady = 1, kStopWaiting = 0, kWaitCanceled = 1;
constexpr std::size_t kEntryBytes = 128;  // of the tables themselves, about

std::string number(std::int64_t value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::string sized(std::string_view value) {
  return number(static_cast<std::int64_t>(value.size())).append(value);
}

}  // namespace

// Reads fields; what has not come yet, and what is too long, ends the reading.
class TorchStore::Message {
 public:
  Message(std::string_view bytes, const Limits& limits) : bytes_(bytes), limits_(limits) {}

  template <class T>
  T value() {
    T value{};
    if (const auto bytes = take(sizeof value); bytes.size() == sizeof value)
      std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::string key() { return text(limits_.key_bytes); }
  std::string payload() { return text(limits_.value_bytes); }
  std::size_t count() {
    const auto count = value<std::uint64_t>();
    if (count > limits_.keys) refused_ = true;
    return refused_ ? 0 : static_cast<std::size_t>(count);
  }
  std::vector<std::string> keys() {
    std::vector<std::string> keys;
    for (std::size_t left = count(); left > 0 && whole(); --left) keys.push_back(key());
    return keys;
  }
  void refuse() { refused_ = true; }

  bool whole() const { return !partial_ && !refused_; }
  bool refused() const { return refused_; }
  std::size_t length() const { return at_; }

 private:
  std::string text(std::size_t most) {
    const auto size = value<std::uint64_t>();
    if (size > most) refused_ = true;
    return refused_ ? std::string() : std::string(take(static_cast<std::size_t>(size)));
  }
  std::string_view take(std::size_t size) {
    if (partial_ || bytes_.size() - at_ < size) {
      partial_ = true;
      return {};
    }
    return bytes_.substr(std::exchange(at_, at_ + size), size);
  }

  std::string_view bytes_;
  const Limits& limits_;
  std::size_t at_ = 0;
  bool partial_ = false, refused_ = false;
};

void TorchStore::join(ClientId client) { clients_.try_emplace(client); }

void TorchStore::leave(ClientId id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  stop_waiting(id, found->second);
  buffered_ -= found->second.in.size() + found->second.out.size();
  clients_.erase(found);
  answered_.erase(id);
}

bool TorchStore::feed(ClientId id, std::string_view bytes) {
  Client& client = clients_.at(id);
  client.in.append(bytes);
  buffered_ += bytes.size();
  return buffered_ <= limits_.buffer_bytes && serve(id, client);
}

std::string_view TorchStore::replies(ClientId client) const { return clients_.at(client).out; }

bool TorchStore::took(ClientId id, std::size_t bytes) {
  Client& client = clients_.at(id);
  client.out.erase(0, bytes);
  buffered_ -= bytes;
  return serve(id, client);
}

bool TorchStore::is_full(ClientId client) const {
  return clients_.at(client).out.size() >= limits_.reply_bytes;
}

bool TorchStore::is_known(ClientId client) const { return clients_.at(client).known; }

std::vector<TorchStore::ClientId> TorchStore::take_answered() {
  const auto answered = std::exchange(answered_, {});
  return {answered.begin(), answered.end()};
}

void TorchStore::clear() {
  for (const auto& [key, value] : values_) kept_ -= key.size() + value.size() + kEntryBytes;
  for (const auto& [key, queue] : queues_) {
    for (const std::string& value : queue) kept_ -= value.size() + kEntryBytes;
  }
  values_.clear();
  queues_.clear();
}

// Answers all messages that have come whole, until the client has replies enough to take.
bool TorchStore::serve(ClientId id, Client& client) {
  std::size_t done = 0;
  bool good = true;
  while (good && done < client.in.size() && client.out.size() < limits_.reply_bytes) {
    Message message(std::string_view(client.in).substr(done), limits_);
    good = answer(id, client, message) && buffered_ <= limits_.buffer_bytes;
    if (!message.whole()) break;
    done += message.length();
  }
  client.in.erase(0, done);
  buffered_ -= done;
  return good && client.in.size() <= limits_.message_bytes;
}

// False: not the protocol. A message that is not whole has been left alone.
bool TorchStore::answer(ClientId id, Client& client, Message& message) {
  const auto what = message.value<std::uint8_t>();
  if (!client.known) {
    const auto magic = message.value<std::uint32_t>();
    if (what != kValidate) return false;
    if (message.whole()) client.known = magic == kMagic;
    return client.known || !message.whole();
  }
  switch (what) {
    case kPing:
      if (const auto nonce = number(message.value<std::uint32_t>()); message.whole())
        reply(id, client, std::string_view(nonce).substr(0, sizeof(std::uint32_t)));
      break;
    case kSet:
    case kCompareSet:
    case kGet:
    case kAdd:
    case kDelete:
    case kAppend:
      return answer_value(id, client, what, message);
    case kPush:
    case kPop:
    case kQueueLength:
      return answer_queue(id, client, what, message);
    case kBarrier:
      return enter_barrier(id, client, message);
    default:
      return answer_keys(id, client, what, message);
  }
  return !message.refused();
}

bool TorchStore::answer_value(ClientId id, Client& client, std::uint8_t what, Message& message) {
  const std::string key = message.key();
  const std::string expected = what == kCompareSet ? message.payload() : std::string();
  const bool brings = what == kSet || what == kCompareSet || what == kAppend;
  const std::string value = brings ? message.payload() : std::string();
  const std::int64_t more = what == kAdd ? message.value<std::int64_t>() : 0;
  if (!message.whole()) return !message.refused();
  const std::string* const old = find(key);
  if (what == kSet) {
    return set(key, value);
  } else if (what == kGet) {
    reply(id, client, sized(old != nullptr ? *old : ""));
  } else if (what == kAppend) {
    if (old != nullptr && old->size() + value.size() > limits_.message_bytes) return false;
    return set(key, old != nullptr ? *old + value : value);
  } else if (what == kCompareSet) {
    // As PyTorch has it: of a key that is not there the expected value comes back.
    const bool swaps = old != nullptr ? *old == expected : expected.empty();
    const std::string found = swaps ? value : old != nullptr ? *old : expected;
    if (swaps && !set(key, value)) return false;
    reply(id, client, sized(found));
  } else if (what == kAdd) {
    std::int64_t sum = 0;
    if (old != nullptr) {
      const auto [end, error] = std::from_chars(old->data(), old->data() + old->size(), sum);
      if (error != std::errc() || end != old->data() + old->size()) return false;
    }
    if (__builtin_add_overflow(sum, more, &sum)) return false;
    if (!set(key, std::to_string(sum))) return false;
    reply(id, client, number(sum));
  } else {
    if (old != nullptr) kept_ -= key.size() + old->size() + kEntryBytes;
    reply(id, client, number(static_cast<std::int64_t>(values_.erase(key))));
  }
  return true;
}

bool TorchStore::answer_keys(ClientId id, Client& client, std::uint8_t what, Message& message) {
  if (what == kMultiSet) return set_all(message);
  if (what == kCancelWait) {
    stop_waiting(id, client);
    reply(id, client, {&kWaitCanceled, 1});
  } else if (what == kCountKeys) {
    reply(id, client, number(static_cast<std::int64_t>(values_.size())));
  } else if (what == kListKeys) {
    std::string list = number(static_cast<std::int64_t>(values_.size()));
    for (const auto& [key, value] : values_) list += sized(key);
    reply(id, client, list);
  } else if (what == kCheck || what == kWait || what == kMultiGet) {
    const std::vector<std::string> keys = message.keys();
    if (!message.whole()) return !message.refused();
    if (what == kWait) {
      return wait(id, client, keys);
    } else if (what == kCheck) {
      const bool ready = std::all_of(keys.begin(), keys.end(), [this](const auto& key) { return has(key); });
      reply(id, client, {ready ? &kReady : &kNotReady, 1});
    } else {
      std::string values;
      for (const std::string& key : keys) {
        const std::string* const value = find(key);
        values += sized(value != nullptr ? *value : "");
        if (values.size() > limits_.message_bytes) return false;
      }
      reply(id, client, values);
    }
  } else {
    message.refuse();
  }
  return !message.refused();
}

bool TorchStore::answer_queue(ClientId id, Client& client, std::uint8_t what, Message& message) {
  const std::string key = message.key();
  std::string value = what == kPush ? message.payload() : std::string();
  if (!message.whole()) return !message.refused();
  if (what == kPush) return push(key, std::move(value));
  const auto found = queues_.find(key);
  std::string answer = number(found == queues_.end() ? 0 : static_cast<std::int64_t>(found->second.size()));
  if (what == kPop && found != queues_.end()) {
    answer += sized(found->second.front());
    kept_ -= found->second.front().size() + kEntryBytes;
    found->second.pop_front();
    if (found->second.empty()) queues_.erase(found);
  }
  reply(id, client, answer);
  return true;
}

bool TorchStore::set_all(Message& message) {
  std::vector<std::pair<std::string, std::string>> values;
  for (std::size_t left = message.count(); left > 0 && message.whole(); --left) {
    std::string key = message.key();
    values.emplace_back(std::move(key), message.payload());
  }
  if (!message.whole()) return !message.refused();
  return std::all_of(values.begin(), values.end(),
                     [this](auto& value) { return set(value.first, std::move(value.second)); });
}

// The last one who comes lets all go.
bool TorchStore::enter_barrier(ClientId id, Client& client, Message& message) {
  const std::string key = message.key();
  const auto size = message.value<std::int64_t>();
  if (!message.whole()) return !message.refused();
  if (key.empty() || !client.barrier.empty()) return false;
  if (!keeps(key.size() + kEntryBytes)) return false;
  auto& entered = barriers_[key];
  if (entered.empty()) kept_ += key.size() + kEntryBytes;
  entered.push_back(id);
  client.barrier = key;
  if (static_cast<std::int64_t>(entered.size()) < size) return true;
  for (const ClientId other : std::vector<ClientId>(entered)) {
    stop_waiting(other, clients_.at(other));
    reply(other, clients_.at(other), {&kStopWaiting, 1});
  }
  return true;
}

const std::string* TorchStore::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

bool TorchStore::has(const std::string& key) const { return values_.contains(key) || queues_.contains(key); }

// False: there is no room for it.
bool TorchStore::set(const std::string& key, std::string value) {
  if (!keeps(key.size() + value.size() + kEntryBytes)) return false;
  const auto [entry, is_new] = values_.try_emplace(key);
  kept_ += (is_new ? key.size() + kEntryBytes : 0) + value.size() - entry->second.size();
  entry->second = std::move(value);
  wake(key, true);
  return true;
}

bool TorchStore::push(const std::string& key, std::string value) {
  if (!keeps(key.size() + value.size() + kEntryBytes)) return false;
  kept_ += value.size() + kEntryBytes;
  queues_[key].push_back(std::move(value));
  wake(key, false);  // there is something for one
  return true;
}

bool TorchStore::wait(ClientId id, Client& client, const std::vector<std::string>& keys) {
  stop_waiting(id, client);
  for (const std::string& key : keys) {
    if (has(key) || client.awaited.contains(key)) continue;
    if (!keeps(key.size() + kEntryBytes)) return false;
    client.awaited.insert(key);
    waiting_[key].push_back(id);
    kept_ += key.size() + kEntryBytes;
  }
  if (client.awaited.empty()) reply(id, client, {&kStopWaiting, 1});
  return true;
}

// Those who wait for `key`, all or the first, wait for one key less.
void TorchStore::wake(const std::string& key, bool all) {
  const auto found = waiting_.find(key);
  if (found == waiting_.end()) return;
  auto& waiters = found->second;
  const std::size_t count = all ? waiters.size() : 1;
  const std::vector<ClientId> woken(waiters.begin(), waiters.begin() + static_cast<std::ptrdiff_t>(count));
  waiters.erase(waiters.begin(), waiters.begin() + static_cast<std::ptrdiff_t>(count));
  if (waiters.empty()) waiting_.erase(found);
  for (const ClientId id : woken) {
    Client& client = clients_.at(id);
    client.awaited.erase(key);
    kept_ -= key.size() + kEntryBytes;
    if (client.awaited.empty()) reply(id, client, {&kStopWaiting, 1});
  }
}

void TorchStore::stop_waiting(ClientId id, Client& client) {
  for (const std::string& key : client.awaited) {
    auto& waiters = waiting_.at(key);
    std::erase(waiters, id);
    if (waiters.empty()) waiting_.erase(key);
    kept_ -= key.size() + kEntryBytes;
  }
  client.awaited.clear();
  if (client.barrier.empty()) return;
  auto& entered = barriers_.at(client.barrier);
  std::erase(entered, id);
  if (entered.empty()) {
    kept_ -= client.barrier.size() + kEntryBytes;
    barriers_.erase(client.barrier);
  }
  client.barrier.clear();
}

void TorchStore::reply(ClientId id, Client& client, std::string_view bytes) {
  client.out.append(bytes);
  buffered_ += bytes.size();
  answered_.insert(id);
}

}  // namespace dtrain::launcher
