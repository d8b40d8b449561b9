// Serves answers over HTTP to this machine alone (libevent's HTTP server; decision 032).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "worker/report/live_pages.h"

namespace dtrain {

/// Single-threaded.
class LiveServer {
 public:
  /// Listens on 127.0.0.1 and `port` (0: a free one) from now on. SIGINT and SIGTERM end run() from now on.
  /// `answer` must not throw. Throws SystemError when the port is taken, naming who has it; UsageError when
  /// dtrain was built without libevent.
  LiveServer(std::uint16_t port, std::function<LiveAnswer(const LiveRequest&)> answer);
  ~LiveServer();
  LiveServer(const LiveServer&) = delete;
  LiveServer& operator=(const LiveServer&) = delete;

  std::uint16_t port() const noexcept;
  /// Answers until a signal comes; returns it.
  int run();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dtrain
