// One end of the channel between a launcher and its node agent: whole messages over a socket pair. Neither
// end ever waits for the other to read.
#pragma once

#include <deque>
#include <string>
#include <string_view>

#include "runtime/base/fd.h"

namespace dtrain::launcher {

class IpcChannel {
 public:
  /// `socket`: one of a pair of seqpacket sockets.
  explicit IpcChannel(UniqueFd socket) : socket_(std::move(socket)) {}

  /// To poll for POLLIN, and for POLLOUT while there is something unsent.
  int fd() const noexcept { return socket_.get(); }
  /// Queues a message and sends what goes.
  void send(std::string_view message);
  /// Sends more of what waits; false when the other end is gone.
  bool flush();
  bool unsent() const noexcept { return !packets_.empty(); }
  /// The other end has not read all that was sent.
  bool unread() const;

  enum class Received { message, nothing, gone };
  /// The next whole message, if one is there.
  Received receive(std::string& message);
  void close() { socket_.reset(); }

 private:
  UniqueFd socket_;
  std::deque<std::string> packets_;
  std::string partial_;  // of a long message
};

}  // namespace dtrain::launcher
