// `dtrain bench predict`: what communication will take on more nodes than there are, by the cost model.
#include <fmt/format.h>

#include <algorithm>

#include "worker/benchmark/byte_sizes.h"
#include "worker/benchmark/link_fit.h"
#include "worker/commands.h"

namespace dtrain {
namespace {

// clang-format off
constexpr OptionSpec kOptions[] = {
    {"nodes", "Job", "N", "16", "predict for 1, 2, 4, ... and N nodes"},
    {"nproc-per-node", "Job", "R", "1", "workers on each node"},
    {"gradients", "Job", "SIZE", "100M", "bytes of all gradients, such as 100M or 1G: 4 for each parameter in fp32"},
    {"step-ms", "Job", "X", "", "milliseconds of a step without communication; adds the efficiency of the job"},
    {"costs", "Links", "FILE,...", "", "files that --fit of `dtrain bench allreduce` wrote, between hosts, within a host or both; unset: 40 us and 1.1 GB/s between hosts, 1 us and 6 GB/s within one"},
    {"help", "Links", "", "", "print this text"},
};
// clang-format on

p2p::GroupCosts costs_of(const Options& options) {
  p2p::GroupCosts costs;
  if (!options.has("costs")) return costs;
  const std::string& list = options.text("costs");
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    read_link(list.substr(begin, end - begin), costs);
    begin = end + 1;
  }
  return costs;
}

std::string described(std::string_view links, const p2p::LinkCosts& costs) {
  return fmt::format("{}: {:.3g} us, {:.3g} GB/s", links, costs.latency * 1e6, 1e-9 / costs.byte);
}

/// 1, 2, 4, … and `most`.
std::vector<int> node_counts(int most) {
  std::vector<int> counts;
  for (int count = 1; count < most; count *= 2) counts.push_back(count);
  counts.push_back(most);
  return counts;
}

/// The efficiency when nothing is hidden behind computing, and when all that fits is.
std::string efficiency(double step_seconds, double seconds) {
  return fmt::format(" {:>12.0f}% {:>10.0f}%", 100 * step_seconds / (step_seconds + seconds),
                     100 * step_seconds / std::max(step_seconds, seconds));
}

}  // namespace

ExitCode run_bench_predict(const Invocation& invocation) {
  const Options options =
      resolve_options("dtrain bench predict", kOptions, invocation.arguments, invocation.environment);
  if (const auto help = asked_help(options,
                                   "usage: dtrain bench predict [options]\n\nExamples:\n  dtrain bench "
                                   "predict --costs within.json,between.json --gradients 500M",
                                   kOptions)) {
    fmt::print("{}", *help);
    return ExitCode::ok;
  }
  const int nodes = static_cast<int>(options.integer("nodes", 1, 131'072)),
            workers_per_node = static_cast<int>(options.integer("nproc-per-node", 1, 4096));
  const auto bytes = parse_bytes(options.text("gradients"));
  if (!bytes) options.refuse("gradients", "a size like 100M or 1G");
  const double step = options.has("step-ms") ? options.real("step-ms", 1e-3, 1e9) * 1e-3 : 0;
  const p2p::GroupCosts costs = costs_of(options);
  fmt::print("# all_reduce of {} bytes, {} worker{} on each node; {}; {}\n", *bytes, workers_per_node,
             workers_per_node == 1 ? "" : "s", described("between hosts", costs.between),
             described("within a host", costs.within));
  fmt::print("{:>8} {:>8} {:>13} {:>10} {:>8}{}\n", "nodes", "workers", "algorithm", "ms", "GB/s",
             step > 0 ? "  nothing hidden  all hidden" : "");
  for (const int count : node_counts(nodes)) {
    const auto [n, workers, algorithm, seconds] = predict_all_reduce(count, workers_per_node, *bytes, costs);
    fmt::print("{:>8} {:>8} {:>13} {:>10.3f} {:>8}{}\n", n, workers,
               workers > 1 ? name_of(algorithm) : "none", seconds * 1e3,
               workers > 1 ? fmt::format("{:.2f}", static_cast<double>(*bytes) / seconds * 1e-9) : "-",
               step > 0 ? efficiency(step, seconds) : "");
  }
  return ExitCode::ok;
}

}  // namespace dtrain
