// One client as the server sees it: first a stranger in a handshake, then frames both ways. Internal to the
// server.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cluster/store/store_handshake.h"
#include "cluster/store/store_wire.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"

namespace dtrain {

class StoreConnection {
 public:
  StoreConnection(UniqueFd fd, std::uint64_t id, TimePoint expires, std::string_view secret)
      : fd_(std::move(fd)),
        id_(id),
        expires_(expires),
        handshake_(std::in_place, secret, wire::make_nonce()) {}

  int fd() const noexcept { return fd_.get(); }
  std::uint64_t id() const noexcept { return id_; }
  /// When a stranger must have authenticated.
  TimePoint expires() const noexcept { return expires_; }
  bool authenticated() const noexcept { return reader_.has_value(); }
  const wire::Identity& identity() const noexcept { return identity_; }

  /// Runs the handshake over `bytes`; what follows it is fed to the frame reader. Returns false when the
  /// stranger is refused (see reason()).
  bool shake_hands(std::string_view bytes);
  wire::FrameReader& reader() noexcept { return *reader_; }
  std::string_view reason() const noexcept { return reason_; }

  /// Queues one frame.
  void append(std::string_view payload) { writer_->append(out_, payload); }
  std::size_t unsent_bytes() const noexcept { return out_.size() - sent_; }
  /// Sends what the socket takes; false when the peer is gone.
  bool flush() noexcept;

  /// What epoll is asked to watch for this connection, kept here so that it is only changed when it must be.
  std::uint32_t watched = 0;
  /// Is on the server's list of connections to flush.
  bool dirty = false;
  /// Is not served until it has taken what it asked for.
  bool stalled = false;
  /// Is closed when the event at hand has been served.
  bool doomed = false;
  /// The other process has closed its end or died; else, when the connection ends, the network failed.
  bool closed_by_peer = false;
  /// Takes note of a failed send or receive.
  void note_error(int error) noexcept;

 private:
  UniqueFd fd_;
  std::uint64_t id_;
  TimePoint expires_;
  std::optional<wire::ServerHandshake> handshake_;  // until authenticated
  std::optional<wire::FrameReader> reader_;
  std::optional<wire::FrameWriter> writer_;
  wire::Identity identity_;
  std::string_view reason_;
  std::string out_;
  std::size_t sent_ = 0;
};

}  // namespace dtrain
