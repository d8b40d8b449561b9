// What a live report answers, apart from how requests come: who may ask, and the page and the data of runs
// that grow.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/metrics/report/run_follower.h"

namespace dtrain {

struct LiveRequest {
  std::string host;   ///< the Host header: "127.0.0.1:6007"
  std::string path;   ///< "/data.json"
  std::string token;  ///< of the query
  std::string after;  ///< of the query: the version of the data that the page has
};

struct LiveAnswer {
  int status = 200;
  std::string type;  ///< of the body
  std::string body;
  std::string version;  ///< of the data; empty: it has none
};

/// Whether a browser that sends this Host header meant this machine by its own address: a name of somebody
/// else's that leads here (DNS rebinding) would bring that somebody's scripts with it.
bool is_loopback_host(std::string_view host);

/// Whether both are the same, in a time that does not say how many characters are.
bool same_secret(std::string_view expected, std::string_view given);

class LivePages {
 public:
  /// `token`: requests without it are rejected.
  LivePages(const std::vector<std::filesystem::path>& runs, std::string token);

  /// The page at "/", its data at "/data.json" (204: nothing new after `request.after`), 404 elsewhere; 403
  /// for a Host that is not this machine's own, and without the token. Never throws: what cannot be read is a
  /// 500 with the reason.
  LiveAnswer answer(const LiveRequest& request);

 private:
  LiveAnswer known(const LiveRequest& request);
  /// Reads what is new.
  void poll();

  std::vector<RunFollower> runs_;
  std::string token_, start_;  ///< start_: tells this server's versions from those of one before
  std::uint64_t changes_ = 0;
};

}  // namespace dtrain
