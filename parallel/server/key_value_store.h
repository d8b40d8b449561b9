// A worker's side of parameter servers: keys with values that live on the servers, init, push, pull.
//
//     KeyValueStore store(addresses, {.worker = 0, .token = token}, deadline);
//     store.init("w", w, deadline);                       // the first worker brings the values
//     while (…) {
//       store.push({{"w", gradient}}, 0.1, deadline);     // the server updates by it
//       store.pull({{"w", w}}, deadline);                 // what came of it
//     }
//     store.disconnect(deadline);
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cluster/net/protection.h"
#include "cluster/net/token.h"
#include "parallel/server/delays.h"
#include "runtime/base/clock.h"
#include "runtime/tensor/named_tensors.h"

namespace dtrain {

/// Who a worker of parameter servers is.
struct KeyValueStoreOptions {
  int worker = 0;                                    ///< its number among the workers
  std::optional<Token> token = {};                   ///< the job's secret, as the servers have it
  Protection protection = Protection::authenticate;  ///< of messages; the same on all processes
};

/// What a server holds, between two of its updates.
struct ServerState {
  NamedTensors values;                ///< its keys, on the CPU
  NamedTensors state;                 ///< its updater's
  std::vector<std::int64_t> applied;  ///< updates by worker
};

/// One worker's. Used by one thread at a time. Every call takes a deadline and throws PeerError when a server
/// is lost (named, at once), or has no answer by then: the store is dead then; UsageError for what a server
/// refuses.
class KeyValueStore {
 public:
  /// Connects to all servers; `addresses` are theirs (ParameterServer::address) in the order of their
  /// numbers.
  KeyValueStore(std::span<const std::string> addresses, const KeyValueStoreOptions& options,
                const Deadline& deadline);
  ~KeyValueStore();
  KeyValueStore(const KeyValueStore&) = delete;
  KeyValueStore& operator=(const KeyValueStore&) = delete;

  int servers() const noexcept;
  /// Where a key is that was not put on a server by its number: by its name, the same for all workers.
  int server_of(const std::string& key) const noexcept;

  /// `key` exists from now on, with the values of the worker that comes first. `server`: its place; unset:
  /// server_of(). Returns how many updates the server has applied of this worker.
  std::int64_t init(const std::string& key, const Tensor& value, const Deadline& deadline,
                    std::optional<int> server = std::nullopt);
  /// Waits until another worker has brought `key`, which is like `value`.
  std::int64_t expect(const std::string& key, const Tensor& value, const Deadline& deadline,
                      std::optional<int> server = std::nullopt);

  /// Gives gradients of keys to the servers, in one push to each server concerned; undefined where this
  /// worker did not use a key. Synchronous servers update when all workers have pushed, by the average over
  /// the workers. The largest delay of the servers.
  PushDelay push(const NamedTensors& gradients, double rate, const Deadline& deadline);
  /// Fills dense `values`, which may be on any device: where updates are synchronous, as they are after all
  /// pushes of this worker; asynchronous, as they are, once this worker is not too far ahead.
  void pull(const NamedTensors& values, const Deadline& deadline);
  /// Both in one, for one wait.
  PushDelay exchange(const NamedTensors& gradients, double rate, const NamedTensors& values,
                     const Deadline& deadline);

  /// A small text that others can read, kept by server 0.
  void put(std::int64_t number, std::span<const std::byte> text, const Deadline& deadline);
  /// Waits for put() of `number`.
  std::vector<std::byte> wait_get(std::int64_t number, const Deadline& deadline);

  ServerState state(int server, const Deadline& deadline);
  /// What `server`'s updates resume from: state() of a server with the same keys. Before the first push.
  void restore(int server, const NamedTensors& state, std::span<const std::int64_t> applied,
               const Deadline& deadline);
  /// Of all pushes to server 0 so far.
  UpdateDelays delays(const Deadline& deadline);

  /// No more pushes come from here: the servers no longer wait for this worker.
  void finish(const Deadline& deadline);
  /// Waits until all other workers have finished or gone.
  void wait_for_others(const Deadline& deadline);
  /// Disconnects from the servers, which end when all workers have. Without it they take this worker for
  /// lost.
  void disconnect(const Deadline& deadline);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtrain
