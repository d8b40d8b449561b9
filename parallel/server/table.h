// A parameter server's mind, without its sockets: the keys, who of the workers has pushed what, and whose
// requests have to wait. Requests go in, answers come out, in each worker's order.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "parallel/server/delays.h"
#include "parallel/server/protocol.h"
#include "parallel/server/server_rules.h"
#include "parallel/server/updater.h"
#include "runtime/device/device.h"

namespace dtrain::server {

class Table {
 public:
  /// Sends `answer` to worker `worker`, who is present.
  using Answer = std::function<void(int worker, Message answer)>;
  Table(const ServerRules& rules, std::unique_ptr<Updater> updater, Answer answer);

  /// Worker `worker`, perhaps one that was lost before, is present from now on; whether it may.
  bool join(int worker);
  void ask(int worker, Message request);
  /// Its connection is over.
  void lose(int worker);

  /// Worker `worker` has disconnected: after the answer to that its connection can be closed.
  bool has_left(int worker) const { return workers_[static_cast<std::size_t>(worker)].left; }
  /// Everybody who came is gone again.
  bool deserted() const noexcept { return !ever_.empty() && present_ == 0; }
  /// The work was done: somebody disconnected, and nothing went wrong that concerns all.
  bool parted_well() const noexcept { return over_.empty() && some_left_; }
  /// Why nothing is answered any more; empty: it is.
  const std::string& over() const noexcept { return over_; }
  const UpdateDelays& delays() const noexcept { return delays_; }

 private:
  struct Key {
    std::string name;
    Tensor value;
    std::int64_t version = 0;                     ///< updates so far
    std::vector<std::int64_t> pulled;             ///< by worker, the version it has
    std::vector<std::deque<Tensor>> contributed;  ///< sync: by worker, what waits for the others
  };
  struct Worker {
    bool present = false, finished = false, left = false;
    std::int64_t clock = 0;    ///< updates, counted from where it came in
    std::int64_t applied = 0;  ///< updates since the run's start
    std::int64_t ahead = 0;    ///< at its last pull
    std::deque<Message> waiting;
  };

  /// Answers what can be answered, of all workers, until nothing moves.
  void answer_all();
  /// Whether the worker's request was answered.
  bool serve_or_refuse(int worker, Message& request);
  bool serve(int worker, Message& request);
  bool init(int worker, Message& request);
  bool push(int worker, Message& request);
  bool pull(int worker, const Message& request);
  bool wait_get(int worker, const Message& request);
  void push_sync(int worker, std::vector<Tensor> gradients, const Message& request);
  void push_async(int worker, std::vector<Tensor> gradients, const Message& request);
  void apply(const std::vector<std::uint32_t>& keys, const std::vector<Tensor>& gradients, double rate);
  void give_state(int worker, const Message& request);
  void restore(int worker, const Message& request);
  std::vector<Tensor> gradients_of(const Message& request) const;
  void reply(int worker, const Message& request, Message answer);
  void accept(int worker, const Message& request) { reply(worker, request, {}); }
  void refuse(int worker, const Message& request, std::string why);
  /// The job cannot continue after this.
  void end(const std::string& why);
  void dismiss_all();
  bool may_go_on(const Worker& worker) const;
  std::int64_t slowest(const Worker& worker) const;
  Worker& at(int worker) { return workers_[static_cast<std::size_t>(worker)]; }
  NamedTensors all_values() const;

  ServerRules rules_;
  std::unique_ptr<Updater> updater_;
  Answer answer_;
  std::shared_ptr<Device> device_;
  std::vector<Worker> workers_;
  std::vector<Key> keys_;
  std::map<std::string, std::uint32_t> index_;
  std::map<std::int64_t, std::vector<std::byte>> said_;
  std::set<int> ever_;
  bool some_left_ = false;
  int present_ = 0;
  UpdateDelays delays_;
  std::string over_;
};

}  // namespace dtrain::server
