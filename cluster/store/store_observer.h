// A host's own voice in its store: sees what clients say under one prefix, answers, and publishes. Everything
// happens on the server's thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/clock.h"

namespace dtrain {

/// What an observer may do to the store from inside a call.
class StoreControl {
 public:
  /// Sets a key and wakes those who wait for it. At most kMaxValueBytes.
  virtual void publish(const std::string& key, std::string value) = 0;
  virtual void forget(const std::string& key) = 0;
  /// Closes a client's connection soon.
  virtual void expel(std::uint64_t client) = 0;

 protected:
  ~StoreControl() = default;
};

class StoreObserver {
 public:
  virtual ~StoreObserver() = default;

  /// Keys that begin so are the observer's: of clients' writes only sets are allowed, and they are not stored
  /// but handed to on_set().
  virtual std::string_view prefix() const noexcept = 0;
  /// A client set one of these keys. What is returned is the value of the answer it gets.
  virtual std::string on_set(StoreControl& store, std::uint64_t client, std::string_view key,
                             std::string_view value) = 0;
  /// A client's connection has ended; `closed` when its process closed it, in order or by dying, else the
  /// network failed. Called for every authenticated client.
  virtual void on_leave(StoreControl& store, std::uint64_t client, bool closed) = 0;
  /// After every turn of the loop; at the latest at the time it last returned.
  virtual TimePoint on_turn(StoreControl& store, TimePoint now) = 0;
};

}  // namespace dtrain
