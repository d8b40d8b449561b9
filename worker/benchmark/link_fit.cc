#include "worker/benchmark/link_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

using nlohmann::json;
using p2p::CollectivePlan, p2p::GroupCosts, p2p::LinkCosts, p2p::Topology;

constexpr std::size_t kSegmentBytes = std::size_t{1} << 20;
constexpr const char *kWithin = "within a host", *kBetween = "between hosts";

/// The model's time of a direct all_reduce among ranks on hosts of their own.
double direct(int ranks, std::size_t bytes, const LinkCosts& link, double reduced_byte) {
  const CollectivePlan plan(Topology(ranks), AllReduceAlgorithm::direct, {link, link, reduced_byte},
                            kSegmentBytes);
  return plan.predict(p2p::Route::direct, bytes);
}

Topology blocks(int nodes, int workers_per_node) {
  std::vector<std::uint64_t> hosts;
  for (int rank = 0; rank < nodes * workers_per_node; ++rank)
    hosts.push_back(static_cast<std::uint64_t>(rank / workers_per_node));
  return Topology(hosts);
}

}  // namespace

// The model is a straight line in both: least squares of the relative errors.
LinkFit fit_link(int ranks, std::span<const TimedReduction> measured) {
  if (ranks < 2 || measured.size() < 2) {
    throw UsageError(fmt::format("fit of a link: expected at least 2 ranks and 2 sizes, got {} and {}", ranks,
                                 measured.size()));
  }
  const GroupCosts model;
  double aa = 0, ab = 0, bb = 0, at = 0, bt = 0;
  for (const auto& [bytes, seconds] : measured) {
    const double fixed = direct(ranks, bytes, {0, model.between.message, 0}, model.reduced_byte);
    const double a = direct(ranks, bytes, {1, 0, 0}, 0) / seconds,
                 b = direct(ranks, bytes, {0, 0, 1}, 0) / seconds, t = 1 - fixed / seconds;
    aa += a * a, ab += a * b, bb += b * b, at += a * t, bt += b * t;
  }
  const double determinant = aa * bb - ab * ab;
  LinkFit fit{.costs = {0, model.between.message, 0}};
  fit.costs.latency = std::max(0.0, (at * bb - bt * ab) / determinant);
  fit.costs.byte = std::max(0.0, (bt * aa - at * ab) / determinant);
  for (const auto& [bytes, seconds] : measured) {
    const double predicted = direct(ranks, bytes, fit.costs, model.reduced_byte);
    fit.error = std::max(fit.error, std::abs(predicted / seconds - 1));
  }
  return fit;
}

std::string link_json(LinkKind kind, int ranks, const LinkFit& fit) {
  const nlohmann::ordered_json made = {{"link", kind == LinkKind::within ? kWithin : kBetween},
                                       {"ranks", ranks},
                                       {"latency_seconds", fit.costs.latency},
                                       {"seconds_per_message", fit.costs.message},
                                       {"seconds_per_byte", fit.costs.byte},
                                       {"largest_error", fit.error}};
  return made.dump(2) + "\n";
}

void read_link(const std::filesystem::path& path, GroupCosts& costs) {
  std::ifstream in(path);
  if (!in)
    throw UsageError(fmt::format("{}: expected a file that --fit wrote, there is none", path.string()));
  std::stringstream text;
  text << in.rdbuf();
  const json file = json::parse(text.str(), nullptr, false);
  const auto refuse = [&](const std::string& expected, const std::string& found) {
    throw DataError(path.string(), -1, expected, found);
  };
  if (!file.is_object()) refuse("a JSON object that --fit of dtrain bench allreduce wrote", "something else");
  const auto number = [&](const char* name) {
    const auto found = file.find(name);
    if (found == file.end() || !found->is_number() || found->get<double>() < 0)
      refuse(fmt::format("{}: a number of 0 or more", name), found == file.end() ? "nothing" : found->dump());
    return found->get<double>();
  };
  const std::string link = file.value("link", json()).is_string() ? file["link"].get<std::string>() : "";
  if (link != kWithin && link != kBetween)
    refuse(fmt::format("link: \"{}\" or \"{}\"", kWithin, kBetween), file.value("link", json()).dump());
  (link == kWithin ? costs.within : costs.between) = {
      number("latency_seconds"), number("seconds_per_message"), number("seconds_per_byte")};
}

PredictedReduction predict_all_reduce(int nodes, int workers_per_node, std::size_t bytes,
                                      const GroupCosts& costs) {
  const CollectivePlan plan(blocks(nodes, workers_per_node), AllReduceAlgorithm::automatic, costs,
                            kSegmentBytes);
  const p2p::Route route = plan.all_reduce_route(bytes);
  const int workers = nodes * workers_per_node;
  return {nodes, workers, p2p::algorithm_of(route), workers > 1 ? plan.predict(route, bytes) : 0};
}

}  // namespace dtrain
