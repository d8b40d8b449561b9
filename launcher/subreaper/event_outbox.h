// Events on their way to the launcher, in order. Sending never blocks: a launcher that stands still must not
// keep the subreaper from its work, and one that is gone is noticed by the next poll.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <deque>

#include "launcher/subreaper/protocol.h"
#include "launcher/system/forked.h"

namespace dtrain::launcher {

/// Used by one thread; `socket` is borrowed.
class EventOutbox {
 public:
  explicit EventOutbox(int socket) : socket_(socket) {}

  bool empty() const noexcept { return unsent_.empty(); }

  void send(const Event& event) {
    unsent_.push_back(event);
    flush();
  }

  /// As much as the launcher takes now.
  void flush() {
    while (!unsent_.empty()) {
      const ssize_t sent = ::send(socket_, &unsent_.front(), sizeof(Event), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno == EAGAIN) return;
      unsent_.pop_front();
    }
  }

  /// The last events, when nothing is left to be done but to wait for a launcher that reads them.
  void deliver() {
    while (!unsent_.empty() && !is_closed(socket_)) {
      pollfd wait{socket_, POLLOUT, 0};
      ::poll(&wait, 1, -1);
      flush();
    }
  }

 private:
  int socket_;
  std::deque<Event> unsent_;
};

}  // namespace dtrain::launcher
