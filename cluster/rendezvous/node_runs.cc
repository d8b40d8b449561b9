// u32 runs, then for each: u32 node_rank | u32 count | u32 nproc | text prefix | u8 digits | u32 number.
// Host i of a run is the prefix and number + i with at least `digits` digits; 0 digits: the prefix alone.
#include "cluster/rendezvous/node_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "cluster/detect/nodelist.h"
#include "cluster/rendezvous/messages.h"
#include "cluster/store/fields.h"

namespace dtrain::rendezvous {
namespace {

constexpr std::size_t kMaxDigits = 9;

struct Run {
  int node_rank = 0;
  int count = 1;
  int nproc = 1;
  std::string_view prefix;
  std::size_t digits = 0;
  std::uint32_t number = 0;

  void split_host(std::string_view host) {
    prefix = host.substr(0, wire::kMaxHostBytes);
    while (digits < kMaxDigits && digits < prefix.size() && prefix[prefix.size() - 1 - digits] >= '0' &&
           prefix[prefix.size() - 1 - digits] <= '9')
      ++digits;
    for (const char digit : prefix.substr(prefix.size() - digits))
      number = number * 10 + static_cast<std::uint32_t>(digit - '0');
    prefix.remove_suffix(digits);
  }
  std::string host(int i) const {
    return digits == 0 ? std::string(prefix)
                       : fmt::format("{}{:0{}}", prefix, number + static_cast<std::uint32_t>(i), digits);
  }
  // Of `nodes` hosts none is longer than it may be, or has more digits than the first.
  bool well_formed(std::int64_t nodes) const {
    if (digits == 0) return number == 0;
    std::int64_t end = 1;
    for (std::size_t i = 0; i < std::min(digits, kMaxDigits); ++i) end *= 10;
    return digits <= kMaxDigits && prefix.size() + digits <= wire::kMaxHostBytes && number + nodes <= end;
  }
  bool continued_by(const Run& next) const {
    return next.node_rank == node_rank + count && next.nproc == nproc && next.prefix == prefix &&
           next.digits == digits &&
           next.number == (digits == 0 ? 0 : number + static_cast<std::uint32_t>(count));
  }
};

std::string put_runs(const std::vector<RoundNode>& nodes, bool with_hosts) {
  std::string body;
  wire::ByteWriter writer(body);
  std::uint32_t runs = 0;
  Run run;
  const auto flush = [&] {
    ++runs;
    writer.u32(static_cast<std::uint32_t>(run.node_rank));
    writer.u32(static_cast<std::uint32_t>(run.count));
    writer.u32(static_cast<std::uint32_t>(run.nproc));
    writer.text(run.prefix);
    writer.u8(static_cast<std::uint8_t>(run.digits));
    writer.u32(run.number);
  };
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    Run next{nodes[i].node_rank, 1, nodes[i].nproc, {}, 0, 0};
    if (with_hosts) next.split_host(nodes[i].host);
    if (i > 0 && run.continued_by(next)) {
      ++run.count;
      continue;
    }
    if (i > 0) flush();
    run = next;
  }
  if (!nodes.empty()) flush();
  std::string out;
  wire::ByteWriter(out).u32(runs);
  return out + body;
}

// Nothing when it is malformed or does not come after `next_node`.
std::optional<Run> take_run(wire::ByteReader& reader, std::int64_t next_node) {
  const std::int64_t node_rank = reader.u32(), count = reader.u32(), nproc = reader.u32();
  Run run;
  run.prefix = reader.text(wire::kMaxHostBytes);
  run.digits = reader.u8();
  run.number = reader.u32();
  if (!reader.good() || node_rank < next_node || count < 1 || nproc < 1 || nproc > kMaxTasksPerNode ||
      !run.well_formed(count) || node_rank + count > static_cast<std::int64_t>(kMaxNodes))
    return std::nullopt;
  run.node_rank = static_cast<int>(node_rank);
  run.count = static_cast<int>(count);
  run.nproc = static_cast<int>(nproc);
  return run;
}

}  // namespace

void put_nodes(std::string& out, const std::vector<RoundNode>& nodes) {
  std::string runs = put_runs(nodes, true);
  out += runs.size() <= kMaxNodesBytes ? runs : put_runs(nodes, false);
}

std::optional<std::vector<RoundNode>> take_nodes(wire::ByteReader& reader) {
  std::vector<RoundNode> nodes;
  const std::uint32_t runs = reader.u32();
  std::int64_t next_node = 0, next_rank = 0;
  for (std::uint32_t r = 0; r < runs && reader.good(); ++r) {
    const auto run = take_run(reader, next_node);
    if (!run || next_rank + std::int64_t{run->count} * run->nproc > std::numeric_limits<int>::max())
      return std::nullopt;
    for (int i = 0; i < run->count; ++i) {
      nodes.push_back({run->node_rank + i, run->host(i), run->nproc, static_cast<int>(next_rank)});
      next_rank += run->nproc;
    }
    next_node = std::int64_t{run->node_rank} + run->count;
  }
  if (!reader.good()) return std::nullopt;
  return nodes;
}

std::optional<int> find_node(wire::ByteReader& reader, int node_rank) {
  const std::uint32_t runs = reader.u32();
  int place = 0;
  std::int64_t next_node = 0;
  for (std::uint32_t r = 0; r < runs && reader.good(); ++r) {
    const auto run = take_run(reader, next_node);
    if (!run || node_rank < run->node_rank) return std::nullopt;
    if (node_rank < run->node_rank + run->count) return place + node_rank - run->node_rank;
    place += run->count;
    next_node = std::int64_t{run->node_rank} + run->count;
  }
  return std::nullopt;
}

}  // namespace dtrain::rendezvous
