#include "tests/support/memory_store.h"

#include <charconv>

#include "runtime/base/error.h"

namespace dtrain::test {
namespace {

constexpr std::size_t kMaxKeyBytes = 256;
constexpr std::size_t kMaxValueBytes = 1U << 20;

PeerError failure(std::string_view operation, std::string_view key, std::string_view why) {
  std::string text = "store memory: ";
  text.append(operation).append(" '").append(key).append("': ").append(why);
  return {text, {.host = "memory", .operation = "store " + std::string(operation), .tensor = {}}};
}

void check_value(std::string_view value) {
  if (value.size() > kMaxValueBytes) throw UsageError("store memory: expected a value of at most 1 MiB");
}

}  // namespace

MemoryStore::Lock MemoryStore::enter(std::string_view operation, std::string_view key) {
  if (key.empty() || key.size() > kMaxKeyBytes)
    throw UsageError("store memory: expected a key of 1 to 256 bytes");
  Lock lock(mutex_);
  if (dead_) throw failure(operation, key, "the store is lost");
  return lock;
}

void MemoryStore::wait_for(Lock& lock, std::string_view operation, const std::string& key,
                           const Deadline& deadline) {
  while (!values_.contains(key)) {
    if (dead_) throw failure(operation, key, "the store is lost");
    if (deadline.expired()) throw failure(operation, key, "the deadline passed: nobody has set it");
    if (deadline.is_never())
      changed_.wait(lock);
    else
      changed_.wait_for(lock, deadline.remaining());
  }
}

void MemoryStore::set(std::string_view key, std::string_view value, const Deadline&) {
  check_value(value);
  const Lock lock = enter("set", key);
  values_[std::string(key)] = value;
  changed_.notify_all();
}

std::string MemoryStore::get(std::string_view key, const Deadline& deadline) {
  Lock lock = enter("get", key);
  wait_for(lock, "get", std::string(key), deadline);
  return values_.find(key)->second;
}

std::optional<std::string> MemoryStore::try_get(std::string_view key, const Deadline&) {
  const Lock lock = enter("try_get", key);
  const auto entry = values_.find(key);
  if (entry == values_.end()) return std::nullopt;
  return entry->second;
}

void MemoryStore::wait(const std::vector<std::string>& keys, const Deadline& deadline) {
  for (const std::string& key : keys) {
    Lock lock = enter("wait", key);
    wait_for(lock, "wait", key, deadline);
  }
}

std::int64_t MemoryStore::add(std::string_view key, std::int64_t delta, const Deadline&) {
  const Lock lock = enter("add", key);
  std::string& text = values_.try_emplace(std::string(key), "0").first->second;
  std::int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size())
    throw UsageError("store memory: add: expected a decimal counter, got another value");
  text = std::to_string(value + delta);
  changed_.notify_all();
  return value + delta;
}

std::string MemoryStore::compare_set(std::string_view key, std::optional<std::string_view> expected,
                                     std::string_view desired, const Deadline&) {
  check_value(desired);
  const Lock lock = enter("compare_set", key);
  const auto entry = values_.find(key);
  const bool exists = entry != values_.end();
  const bool matches = exists ? expected && *expected == entry->second : !expected;
  if (!matches) return exists ? entry->second : std::string();
  values_[std::string(key)] = desired;
  changed_.notify_all();
  return std::string(desired);
}

bool MemoryStore::remove(std::string_view key, const Deadline&) {
  const Lock lock = enter("remove", key);
  return values_.erase(std::string(key)) != 0;
}

void MemoryStore::kill() {
  const std::lock_guard lock(mutex_);
  dead_ = true;
  changed_.notify_all();
}

}  // namespace dtrain::test
