// A worker's connections to all servers: requests go out and answers come in on all of them while it waits
// for one. Internal to KeyValueStore.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parallel/server/key_value_store.h"
#include "parallel/server/message_link.h"

namespace dtrain::server {

/// Used by one thread.
class ServerChannels {
 public:
  /// Connects; throws PeerError naming the server that cannot be reached by `deadline`.
  ServerChannels(std::span<const std::string> addresses, const KeyValueStoreOptions& options,
                 const Deadline& deadline);
  ~ServerChannels();

  int size() const noexcept { return static_cast<int>(channels_.size()); }
  /// Queues a request; its answer comes after those of the ones before.
  void post(int server, Message request);
  /// The answer to the oldest request to `server` that was not asked for yet.
  Message answer(int server, const Deadline& deadline);
  /// The server may close its connection from now on.
  void part(int server) { channels_.at(static_cast<std::size_t>(server)).parted = true; }
  Message ask(int server, Message request, const Deadline& deadline) {
    post(server, std::move(request));
    return answer(server, deadline);
  }

 private:
  struct Channel {
    std::string name;  ///< "parameter server 0 on box (127.0.0.1:4711)"
    std::string host;
    MessageLink link;
    std::uint64_t next_id = 1, awaited = 1;
    std::deque<Message> answers;
    bool parted = false;
  };

  void connect(int server, const std::string& address, const KeyValueStoreOptions& options,
               const Deadline& deadline);
  void pump(Channel& channel);
  [[noreturn]] static void lose(const Channel& channel, const std::string& why);

  std::vector<Channel> channels_;
};

}  // namespace dtrain::server
