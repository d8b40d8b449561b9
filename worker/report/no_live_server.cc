// In the place of live_server.cc where dtrain is built without libevent.
#include "runtime/base/error.h"
#include "worker/report/live_server.h"

namespace dtrain {

struct LiveServer::State {};

LiveServer::LiveServer(std::uint16_t, std::function<LiveAnswer(const LiveRequest&)>) {
  throw UsageError(
      "--watch: this dtrain was built without libevent, which it serves pages with; apt install libevent-dev "
      "and "
      "build it again, or leave --watch out and run dtrain report as often as you like");
}
LiveServer::~LiveServer() = default;
std::uint16_t LiveServer::port() const noexcept { return 0; }
int LiveServer::run() { return 0; }

}  // namespace dtrain
