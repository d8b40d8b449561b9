// The store's keys and the waits for them: the server's logic without sockets, clocks or threads. Every
// operation costs what it touches: setting a key wakes its waiters only, a client that leaves pays for its
// own waits only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "cluster/store/store_limits.h"
#include "cluster/store/store_wire.h"

namespace dtrain {

/// Not thread-safe. Clients are numbers chosen by the caller.
class StoreTable {
 public:
  /// Receives every response, for the asking client or, when a key comes into being, for those that waited.
  /// Must not call back into the table.
  using Respond = std::function<void(std::uint64_t client, wire::Response response)>;

  StoreTable(const StoreTableLimits& limits, Respond respond)
      : limits_(limits), respond_(std::move(respond)) {}

  /// Serves one request. A wait ends when each of its keys has existed at some moment since it was asked.
  void apply(std::uint64_t client, const wire::Request& request);
  /// Forgets the client's waits; its keys stay.
  void drop_client(std::uint64_t client);

  std::size_t key_count() const noexcept { return value_count_; }
  std::size_t wait_count() const noexcept { return waits_.size(); }
  std::size_t stored_bytes() const noexcept { return stored_bytes_; }
  /// Keys without a value, which somebody waits for.
  std::size_t awaited_count() const noexcept { return entries_.size() - value_count_; }

 private:
  using WaitId = std::uint64_t;
  struct Entry {
    std::optional<std::string> value;
    std::unordered_set<WaitId> waits;  // empty once there is a value
  };
  struct Wait {
    std::uint64_t client = 0;
    std::uint64_t request = 0;
    bool wants_value = false;
    std::unordered_set<std::string> missing;
  };

  void set(std::uint64_t client, const wire::Request& request);
  void get(std::uint64_t client, const wire::Request& request);
  void wait(std::uint64_t client, const wire::Request& request);
  void add(std::uint64_t client, const wire::Request& request);
  void compare_set(std::uint64_t client, const wire::Request& request);
  void remove(std::uint64_t client, const wire::Request& request);
  void cancel(std::uint64_t client, std::uint64_t request);

  const std::string* find(const std::string& key) const;
  bool store(std::uint64_t client, std::uint64_t request, const std::string& key, std::string value);
  void start_wait(std::uint64_t client, const wire::Request& request, Wait wait);
  bool may_wait(std::uint64_t client, const wire::Request& request, const Wait& wait) const;
  std::size_t awaited_by(std::uint64_t client) const;
  void wake(Entry& entry, const std::string& key);
  void end_wait(WaitId id);
  void respond(std::uint64_t client, std::uint64_t request, wire::Status status,
               std::string value = {}) const {
    respond_(client, {request, status, std::move(value)});
  }

  StoreTableLimits limits_;
  Respond respond_;
  std::unordered_map<std::string, Entry> entries_;
  std::unordered_map<WaitId, Wait> waits_;
  std::unordered_map<std::uint64_t, std::unordered_map<std::uint64_t, WaitId>>
      waits_of_client_;  // by request
  WaitId next_wait_ = 0;
  std::size_t value_count_ = 0;
  std::size_t stored_bytes_ = 0;
  std::size_t awaited_bytes_ = 0;  // of keys without a value
};

}  // namespace dtrain
