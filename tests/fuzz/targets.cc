// The store and the lists of hosts.
#include "tests/fuzz/targets.h"

#include <string>
#include <vector>

#include "cluster/detect/nodelist.h"
#include "cluster/store/store_wire.h"
#include "runtime/base/error.h"
#include "tests/fuzz/require.h"

namespace dtrain::fuzz {

void nodelist(std::string_view input) {
  try {
    const auto hosts = expand_nodelist(input, "input");
    require(!hosts.empty() && hosts.size() <= kMaxNodes, "1 to kMaxNodes hosts");
    for (const std::string& host : hosts)
      require(!host.empty() && host.size() <= 253, "hosts of 1 to 253 bytes");
  } catch (const UsageError&) {
  }
}

void tasks_per_node(std::string_view input) {
  try {
    const auto tasks = expand_tasks_per_node(input, "input");
    require(!tasks.empty() && tasks.size() <= kMaxNodes, "1 to kMaxNodes nodes");
    for (const int count : tasks) require(count >= 1 && count <= kMaxTasksPerNode, "tasks in bounds");
  } catch (const UsageError&) {
  }
}

void store_messages(std::string_view input) {
  if (const auto request = wire::decode_request(input))
    require(wire::encode(*request) == input, "one encoding of a request");
  if (const auto response = wire::decode_response(input))
    require(wire::encode(*response) == input, "one encoding of a response");
}

}  // namespace dtrain::fuzz
