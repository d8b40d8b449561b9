// One end of a connection between a store's client and its server: messages of up to wire::kMaxPayloadBytes
// over a secure stream. Internal to both ends. Used by one thread at a time; never blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cluster/net/secure_stream.h"
#include "cluster/store/store_client.h"

namespace dtrain {

class StoreConnection {
 public:
  explicit StoreConnection(net::SecureStream stream) noexcept : stream_(std::move(stream)) {}

  int fd() const noexcept { return stream_.fd(); }
  bool is_open() const noexcept { return stream_.is_open(); }
  void close() noexcept { stream_.close(); }
  /// Whether, and why, it is over; what has come before can still be taken.
  net::SecureStream::End end() const noexcept { return stream_.end(); }
  bool over() const noexcept { return end() != net::SecureStream::End::none; }
  /// In words, of "it"; empty while it is not over.
  const std::string& why() const noexcept { return stream_.why(); }
  /// The process at the other end has closed it or is gone; else, when it is over, the network failed, or it
  /// broke the rules.
  bool closed_by_peer() const noexcept {
    return end() == net::SecureStream::End::closed || end() == net::SecureStream::End::reset;
  }

  /// Queues one message.
  void append(std::string_view payload);
  std::size_t unsent_bytes() const noexcept { return out_.size() - sent_; }
  /// Sends what the socket takes; false when the connection is over.
  bool flush();

  /// Reads once what the socket has; true when there may be more in it.
  bool receive();
  /// The next message that has come whole; valid until the next call. Call until there is none.
  std::optional<std::string_view> next();

 private:
  net::SecureStream stream_;
  std::string out_;  // sealed frames
  std::size_t sent_ = 0;
  std::string message_;  // of several frames, as far as it has come
  std::uint64_t missing_ = 0;
};

/// Connects to `server` and authenticates, again and again until `deadline`. Throws as StoreClient's
/// constructor.
StoreConnection connect_to_store(const Endpoint& server, const StoreClientOptions& options,
                                 const Deadline& deadline);

}  // namespace dtrain
