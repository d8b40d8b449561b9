// What passes between the launcher that a user has started with --hosts and the proxy on each host: a
// greeting, the request with everything that the host's launcher needs, and how it ended. See
// docs/decisions/081-hosts-by-ssh.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/environment.h"

namespace dtrain::launcher {

/// A proxy's first word, in a line of its stderr.
struct ProxyGreeting {
  std::string version;       ///< of its dtrain
  std::string reached_at;    ///< its own address on the way it was reached; empty where that is not known
  std::string reached_from;  ///< the address of who has reached it, as seen there
};

/// What the host's launcher is started with. Travels over the proxy's stdin, since a command line is visible
/// to every user of a machine.
struct LaunchRequest {
  std::string folder;                  ///< to work in
  std::vector<std::string> arguments;  ///< of dtrain-launch
  Environment environment;             ///< on top of the host's own; the secret is in here
};

/// One line of JSON without its end.
std::string encode(const LaunchRequest& request);
/// Throws UsageError when `line` is none.
LaunchRequest parse_request(const std::string& line);

/// How a proxy tells its own lines from those of the launcher whose stderr it shares: they begin with `mark`,
/// which is made anew for each job and which no worker knows.
std::string greeting_line(const std::string& mark, const ProxyGreeting& greeting);
std::string exit_line(const std::string& mark, int exit_code);
std::string killed_line(const std::string& mark, int signal);
std::string failure_line(const std::string& mark, const std::string& why);

struct ProxyLine {
  std::string_view before;                ///< of somebody else's unfinished line
  std::optional<ProxyGreeting> greeting;  ///< one of these four
  std::optional<int> exit_code;
  std::optional<int> killed_by;        ///< the signal that has ended the launcher
  std::optional<std::string> failure;  ///< the launcher could not be started
};
/// Nothing when `line` is not a proxy's.
std::optional<ProxyLine> parse_proxy_line(const std::string& mark, std::string_view line);

/// `text` as one word of a POSIX shell.
std::string shell_quoted(std::string_view text);

}  // namespace dtrain::launcher
