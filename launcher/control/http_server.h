// Answers HTTP on sockets of a launcher, in the launcher's own loop: nothing here blocks, and nobody who
// asks can hold anything up. One descriptor to poll stands for all of it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "launcher/control/http.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"

namespace dtrain::launcher {

/// Who may ask on a socket, and so for what.
enum class Audience {
  owner,     ///< processes of this user, or root's; looked at on each connection (SO_PEERCRED)
  everyone,  ///< anyone who can connect
};

class HttpServer {
 public:
  using Id = std::uint64_t;
  /// A request that waits for its answer().
  struct Asked {
    Id id = 0;
    HttpRequest request;
    Audience audience = Audience::everyone;
  };

  /// From then on a connection that has not sent a request, or not taken its answer, is closed.
  static constexpr Duration kPatience = std::chrono::seconds(10);
  /// Of each audience; more connections are closed at once.
  static constexpr int kMostConnections = 32;

  /// Throws SystemError.
  HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// Takes connections to `socket`, which listens and does not block.
  void listen(UniqueFd socket, Audience audience);
  bool listens() const noexcept { return !listeners_.empty(); }
  /// Readable when serve() has something to do.
  int fd() const noexcept { return epoll_.get(); }
  /// fd() is readable, too, when `other` is; to be polled by the caller itself.
  void watch(int other);
  void unwatch(int other);

  /// Moves bytes; returns what has been asked.
  std::vector<Asked> serve();
  /// Without effect where the connection is gone.
  void answer(Id id, const HttpAnswer& answer);

 private:
  struct Listening {
    UniqueFd socket;
    Audience audience;
    int connections = 0;
  };
  struct Connection {
    UniqueFd socket;
    std::size_t listener = 0;
    TimePoint until{};
    std::string in, out;
    std::size_t sent = 0;
    bool asked = false, head = false, answered = false;
  };

  void accept_all(std::size_t listener);
  void rest(std::size_t listener);
  void wake();
  void read(Id id, bool hung_up, std::vector<Asked>& asked);
  void write(Id id);
  void expect(Id id, std::uint32_t events);
  void close(Id id);
  void keep_time();

  UniqueFd epoll_, timer_;
  std::vector<Listening> listeners_;
  std::map<Id, Connection> connections_;
  Id next_ = 0;
  bool rests_ = false;
};

}  // namespace dtrain::launcher
