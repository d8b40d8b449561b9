// What PyTorch's TCPStore keeps and answers, without the network: bytes of clients in, bytes for them out.
// The protocol is that of PyTorch 2's default (libuv) backend, from 2.0 to 2.15. Numbers are little-endian; a
// message is one byte that says what, then its fields; texts and values are a u64 length and bytes; lists
// begin with a u64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace dtrain::launcher {

class TorchStore {
 public:
  using ClientId = std::uint64_t;

  struct Limits {
    std::size_t key_bytes = std::size_t{8} << 10;    ///< as PyTorch's
    std::size_t value_bytes = std::size_t{8} << 20;  ///< as PyTorch's
    std::size_t keys = std::size_t{128} << 10;       ///< of one message; as PyTorch's
    std::size_t message_bytes = std::size_t{64} << 20;
    std::size_t reply_bytes = std::size_t{1} << 20;     ///< untaken ones: a client with more is not served
    std::size_t kept_bytes = std::size_t{512} << 20;    ///< values, queues and what is waited for
    std::size_t buffer_bytes = std::size_t{512} << 20;  ///< unfinished messages and untaken replies of all
  };

  TorchStore() = default;
  explicit TorchStore(const Limits& limits) : limits_(limits) {}

  /// A connection has been made.
  void join(ClientId client);
  /// It has ended.
  void leave(ClientId client);
  /// Takes what the client sent. False: it speaks something else, or asks for too much, and is to be cut off.
  bool feed(ClientId client, std::string_view bytes);
  /// What waits to be sent to the client; the caller removes what it has sent with took().
  std::string_view replies(ClientId client) const;
  /// `bytes` of the replies have been sent. False as of feed(), whose messages are served now if they had to
  /// wait.
  bool took(ClientId client, std::size_t bytes);
  /// The client has replies to take before more of what it sends should be read.
  bool is_full(ClientId client) const;
  /// The client has shown that it speaks the protocol.
  bool is_known(ClientId client) const;
  /// Clients that have got replies since the last call, through their own messages or another's.
  std::vector<ClientId> take_answered();

  /// Forgets all values. Clients and what they wait for stay.
  void clear();
  std::size_t bytes() const noexcept { return kept_ + buffered_; }

 private:
  struct Client {
    std::string in, out;
    bool known = false;
    std::unordered_set<std::string> awaited;  ///< keys that are not there yet
    std::string barrier;                      ///< where it waits; empty: nowhere
  };
  class Message;

  bool serve(ClientId id, Client& client);
  bool answer(ClientId id, Client& client, Message& message);
  bool answer_value(ClientId id, Client& client, std::uint8_t what, Message& message);
  bool answer_keys(ClientId id, Client& client, std::uint8_t what, Message& message);
  bool answer_queue(ClientId id, Client& client, std::uint8_t what, Message& message);
  bool set_all(Message& message);
  bool enter_barrier(ClientId id, Client& client, Message& message);
  bool set(const std::string& key, std::string value);
  bool push(const std::string& key, std::string value);
  bool has(const std::string& key) const;
  const std::string* find(const std::string& key) const;
  bool wait(ClientId id, Client& client, const std::vector<std::string>& keys);
  void wake(const std::string& key, bool all);
  void stop_waiting(ClientId id, Client& client);
  void reply(ClientId id, Client& client, std::string_view bytes);
  bool keeps(std::size_t more) const noexcept { return kept_ + more <= limits_.kept_bytes; }

  const Limits limits_{};
  std::unordered_map<ClientId, Client> clients_;
  std::map<std::string, std::string> values_;
  std::unordered_map<std::string, std::deque<std::string>> queues_;
  std::unordered_map<std::string, std::vector<ClientId>>
      waiting_;  ///< by key, in the order in which they came
  std::unordered_map<std::string, std::vector<ClientId>> barriers_;
  std::unordered_set<ClientId> answered_;
  std::size_t kept_ = 0, buffered_ = 0;
};

}  // namespace dtrain::launcher
