// The rendezvous store as its users see it: a small authenticated key-value space that peers meet in. The TCP
// server and client are behind it; tests use an in-memory one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/clock.h"

namespace dtrain {

/// Keys are at most 256 bytes, values at most 1 MiB. Every call may be made from any thread; calls of one
/// client are served in order. Each throws PeerError when the store is lost or `deadline` passes, naming key
/// and address.
class Store {
 public:
  virtual ~Store() = default;

  virtual void set(std::string_view key, std::string_view value, const Deadline& deadline) = 0;
  /// Waits until the key exists.
  virtual std::string get(std::string_view key, const Deadline& deadline) = 0;
  /// The value if it exists now.
  virtual std::optional<std::string> try_get(std::string_view key, const Deadline& deadline) = 0;
  /// Waits until all keys exist.
  virtual void wait(const std::vector<std::string>& keys, const Deadline& deadline) = 0;
  /// Adds to a decimal counter (absent = 0) and returns the new value.
  virtual std::int64_t add(std::string_view key, std::int64_t delta, const Deadline& deadline) = 0;
  /// Sets `key` to `desired` if it holds `expected` (nullopt: does not exist); returns what it holds
  /// afterwards.
  virtual std::string compare_set(std::string_view key, std::optional<std::string_view> expected,
                                  std::string_view desired, const Deadline& deadline) = 0;
  /// Removes the key; true if it existed.
  virtual bool remove(std::string_view key, const Deadline& deadline) = 0;
};

}  // namespace dtrain
