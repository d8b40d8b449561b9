// Lists that people write, and what passes between both ends of an ssh.
#include "tests/fuzz/targets_hosts.h"

#include <set>
#include <string>

#include "launcher/hosts/host_list.h"
#include "launcher/hosts/launch_request.h"
#include "runtime/base/error.h"
#include "tests/fuzz/require.h"

namespace dtrain::fuzz {
namespace {

using namespace launcher;  // NOLINT: the parsers, by their names

void list(const std::string& text, const std::string& content) {
  try {
    std::set<std::string> names;
    for (const HostEntry& host :
         parse_hosts(text, [&](const std::string&) { return std::optional(content); })) {
      require(!host.name.empty() && host.name.front() != '-', "a host's name is no option");
      require(host.name.find_first_of(" \t\n'\"$`;&|<>()\\") == std::string::npos,
              "a host's name is one plain word");
      require(!host.workers || *host.workers >= 1, "a host has workers");
      require(names.insert(host.name).second, "a host is in the list once");
    }
    require(!names.empty(), "a list has hosts");
  } catch (const UsageError&) {
  }
}

void request(const std::string& line) {
  try {
    const LaunchRequest taken = parse_request(line);
    const std::string text = encode(taken);
    require(text.find('\n') == std::string::npos, "a request is one line");
    require(encode(parse_request(text)) == text, "a request comes back");
  } catch (const UsageError&) {
  }
}

}  // namespace

void hosts(std::string_view input) {
  const std::string text(input);
  list(text, "");
  list("@file", text);
  request(text);
  if (const auto line = parse_proxy_line("mark", input)) {
    const int said = (line->greeting ? 1 : 0) + (line->exit_code ? 1 : 0) + (line->killed_by ? 1 : 0) +
                     (line->failure ? 1 : 0);
    require(said == 1, "a proxy's line says one thing");
  }
}

}  // namespace dtrain::fuzz
