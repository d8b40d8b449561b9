// The store's operations. A key that is only waited for has an entry without a value; it goes when its last
// wait does.
#include "cluster/store/store_table.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

namespace dtrain {
namespace {

using wire::Op;
using wire::Request;
using wire::Status;

// How many missing keys a cancelled wait lists.
constexpr std::size_t kMaxListed = 64;

std::optional<std::int64_t> parse_counter(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || code != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

void StoreTable::apply(std::uint64_t client, const Request& request) {
  switch (request.op) {
    case Op::set:
      return set(client, request);
    case Op::get:
      return get(client, request);
    case Op::try_get: {
      const std::string* value = find(request.keys.front());
      return value != nullptr ? respond(client, request.id, Status::ok, *value)
                              : respond(client, request.id, Status::absent);
    }
    case Op::wait:
      return wait(client, request);
    case Op::add:
      return add(client, request);
    case Op::compare_set:
      return compare_set(client, request);
    case Op::remove:
      return remove(client, request);
    case Op::cancel:
      return cancel(client, request.id);
  }
}

const std::string* StoreTable::find(const std::string& key) const {
  const auto entry = entries_.find(key);
  return entry == entries_.end() || !entry->second.value ? nullptr : &*entry->second.value;
}

// False, and the client told, when the limits forbid it.
bool StoreTable::store(std::uint64_t client, std::uint64_t request, const std::string& key,
                       std::string value) {
  const std::string* old = find(key);
  const std::size_t freed = old == nullptr ? 0 : key.size() + old->size();
  const std::size_t bytes = stored_bytes_ - freed + key.size() + value.size();
  if (bytes > limits_.max_bytes || (old == nullptr && value_count_ == limits_.max_keys)) {
    respond(client, request, Status::full,
            fmt::format("the store has {} keys and {} bytes; its limits are {} and {}", value_count_,
                        stored_bytes_, limits_.max_keys, limits_.max_bytes));
    return false;
  }
  stored_bytes_ = bytes;
  const auto [found, is_new] = entries_.try_emplace(key);
  if (old == nullptr) ++value_count_;
  if (old == nullptr && !is_new) awaited_bytes_ -= key.size();
  Entry& entry = found->second;
  entry.value = std::move(value);
  wake(entry, key);
  return true;
}

void StoreTable::set(std::uint64_t client, const Request& request) {
  if (store(client, request.id, request.keys.front(), request.value)) respond(client, request.id, Status::ok);
}

void StoreTable::get(std::uint64_t client, const Request& request) {
  const std::string& key = request.keys.front();
  if (const std::string* value = find(key)) return respond(client, request.id, Status::ok, *value);
  start_wait(client, request, {client, request.id, true, {key}});
}

void StoreTable::wait(std::uint64_t client, const Request& request) {
  Wait wait{client, request.id, false, {}};
  for (const std::string& key : request.keys) {
    if (find(key) == nullptr) wait.missing.insert(key);
  }
  if (wait.missing.empty()) return respond(client, request.id, Status::ok);
  start_wait(client, request, std::move(wait));
}

void StoreTable::add(std::uint64_t client, const Request& request) {
  const std::string& key = request.keys.front();
  const std::string* old = find(key);
  const std::optional<std::int64_t> before =
      old == nullptr ? std::optional<std::int64_t>(0) : parse_counter(*old);
  std::int64_t after = 0;
  if (!before || __builtin_add_overflow(*before, request.delta, &after))
    return respond(client, request.id, Status::misuse,
                   before
                       ? fmt::format("expected a sum that fits 64 bits, got {} + {}", *before, request.delta)
                       : "expected a decimal counter, got another value");
  if (store(client, request.id, key, std::to_string(after)))
    respond(client, request.id, Status::ok, std::to_string(after));
}

void StoreTable::compare_set(std::uint64_t client, const Request& request) {
  const std::string& key = request.keys.front();
  const std::string* held = find(key);
  const bool matches = held == nullptr ? !request.expected : request.expected && *request.expected == *held;
  if (!matches) return respond(client, request.id, Status::ok, held == nullptr ? std::string() : *held);
  if (store(client, request.id, key, request.value)) respond(client, request.id, Status::ok, request.value);
}

void StoreTable::remove(std::uint64_t client, const Request& request) {
  const std::string& key = request.keys.front();
  const auto entry = entries_.find(key);
  const bool existed = entry != entries_.end() && entry->second.value;
  if (existed) {
    stored_bytes_ -= key.size() + entry->second.value->size();
    --value_count_;
    entries_.erase(entry);  // a key with a value has no waits
  }
  respond(client, request.id, Status::ok, existed ? "1" : "0");
}

void StoreTable::start_wait(std::uint64_t client, const Request& request, Wait wait) {
  if (!may_wait(client, request, wait)) return;
  const WaitId id = next_wait_++;
  waits_of_client_[client].emplace(request.id, id);
  for (const std::string& key : wait.missing) {
    const auto [entry, is_new] = entries_.try_emplace(key);
    if (is_new) awaited_bytes_ += key.size();
    entry->second.waits.insert(id);
  }
  waits_.emplace(id, std::move(wait));
}

std::size_t StoreTable::awaited_by(std::uint64_t client) const {
  std::size_t keys = 0;
  const auto of_client = waits_of_client_.find(client);
  if (of_client == waits_of_client_.end()) return keys;
  for (const auto& [request, id] : of_client->second) keys += waits_.at(id).missing.size();
  return keys;
}

// False, and the client told, when the limits forbid it.
bool StoreTable::may_wait(std::uint64_t client, const Request& request, const Wait& wait) const {
  const auto of_client = waits_of_client_.find(client);
  const bool waits = of_client != waits_of_client_.end();
  const std::size_t awaited = awaited_by(client) + wait.missing.size();
  if ((waits && (of_client->second.size() >= limits_.max_waits_per_client ||
                 of_client->second.contains(request.id))) ||
      awaited > limits_.max_awaited_keys_per_client) {
    respond(client, request.id, Status::misuse,
            fmt::format("expected at most {} waits at a time, each with its own number, for at most {} keys "
                        "together; got one more, for {} keys together",
                        limits_.max_waits_per_client, limits_.max_awaited_keys_per_client, awaited));
    return false;
  }
  std::size_t keys = awaited_count(), bytes = awaited_bytes_;
  for (const std::string& key : wait.missing) {
    if (entries_.contains(key)) continue;
    ++keys;
    bytes += key.size();
  }
  if (keys <= limits_.max_keys && bytes <= limits_.max_bytes) return true;
  respond(client, request.id, Status::full,
          fmt::format("waits for {} keys of {} bytes that have no value yet; the store allows {} and {}",
                      keys, bytes, limits_.max_keys, limits_.max_bytes));
  return false;
}

void StoreTable::wake(Entry& entry, const std::string& key) {
  const std::unordered_set<WaitId> woken = std::exchange(entry.waits, {});
  for (const WaitId id : woken) {
    Wait& wait = waits_.at(id);
    wait.missing.erase(key);
    if (!wait.missing.empty()) continue;
    respond(wait.client, wait.request, Status::ok, wait.wants_value ? *entry.value : std::string());
    end_wait(id);
  }
}

void StoreTable::end_wait(WaitId id) {
  const auto wait = waits_.find(id);
  for (const std::string& key : wait->second.missing) {
    const auto entry = entries_.find(key);
    entry->second.waits.erase(id);
    if (!entry->second.waits.empty() || entry->second.value) continue;
    awaited_bytes_ -= key.size();
    entries_.erase(entry);
  }
  const auto of_client = waits_of_client_.find(wait->second.client);
  of_client->second.erase(wait->second.request);
  if (of_client->second.empty()) waits_of_client_.erase(of_client);
  waits_.erase(wait);
}

void StoreTable::cancel(std::uint64_t client, std::uint64_t request) {
  const auto of_client = waits_of_client_.find(client);
  if (of_client == waits_of_client_.end()) return;  // it was answered meanwhile
  const auto id = of_client->second.find(request);
  if (id == of_client->second.end()) return;
  const Wait& wait = waits_.at(id->second);
  std::string missing;
  std::size_t listed = 0;
  for (const std::string& key : wait.missing) {
    if (listed++ == kMaxListed) break;
    missing += key + '\n';
  }
  respond(client, request, Status::cancelled, std::move(missing));
  end_wait(id->second);
}

void StoreTable::drop_client(std::uint64_t client) {
  while (true) {
    const auto of_client = waits_of_client_.find(client);
    if (of_client == waits_of_client_.end()) return;
    end_wait(of_client->second.begin()->second);
  }
}

}  // namespace dtrain
