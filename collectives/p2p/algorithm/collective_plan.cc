#include "collectives/p2p/algorithm/collective_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <vector>

namespace dtrain::p2p {
namespace {

// Up to this many bytes sent, giving everything to everyone in one step beats two steps of parts. Between two
// ranks both move the same bytes: the second step's latency is weighed against reducing twice as much.
constexpr std::size_t kOneStepBytes = 64 * 1024, kOneStepBytesOfTwo = 512 * 1024;
// More does not go through one rank of each host.
constexpr std::size_t kFirstRanksBytes = 64 * 1024;

double log2_of(int value) { return static_cast<double>(std::bit_width(static_cast<unsigned>(value - 1))); }

std::string short_size(std::size_t bytes) {
  if (bytes >= std::size_t{1} << 20) return fmt::format("{} MiB", bytes >> 20);
  return bytes >= 1024 ? fmt::format("{} KiB", bytes >> 10) : fmt::format("{} bytes", bytes);
}

}  // namespace

bool direct_in_one_step(int size, std::size_t bytes) noexcept {
  return bytes * static_cast<std::size_t>(size - 1) <= (size == 2 ? kOneStepBytesOfTwo : kOneStepBytes);
}

AllReduceAlgorithm algorithm_of(Route route) noexcept {
  switch (route) {
    case Route::direct:
      return AllReduceAlgorithm::direct;
    case Route::ring:
      return AllReduceAlgorithm::ring;
    case Route::tree:
      return AllReduceAlgorithm::tree;
    case Route::two_levels:
    case Route::first_ranks:
      break;
  }
  return AllReduceAlgorithm::hierarchical;
}

bool CollectivePlan::has_levels() const noexcept {
  const bool may = asked_ == AllReduceAlgorithm::automatic || asked_ == AllReduceAlgorithm::hierarchical;
  return may && topology_.is_mixed();
}

Route CollectivePlan::all_reduce_route(std::size_t bytes) const noexcept {
  if (topology_.size() < 2) return Route::direct;
  const auto may = [&](Route route) {
    const bool has_levels = algorithm_of(route) == AllReduceAlgorithm::hierarchical;
    if (has_levels && !topology_.is_mixed()) return false;
    if (route == Route::first_ranks && bytes > kFirstRanksBytes) return false;
    if (asked_ != AllReduceAlgorithm::automatic) return asked_ == algorithm_of(route);
    // Nothing is measured on a single host.
    return route == Route::direct || (route != Route::ring && topology_.hosts() > 1);
  };
  Route best = Route::direct;
  double least = -1;
  for (const Route route : kRoutes) {
    if (!may(route)) continue;
    const double time = predict(route, bytes);
    if (least >= 0 && time >= least) continue;
    best = route;
    least = time;
  }
  return best;
}

// Hockney's model, with a cost for each message that leaves at the same time, and one link a host for all of
// its ranks. Steps within a host hide behind those between hosts, or the other way round.
double CollectivePlan::predict(Route route, std::size_t bytes) const noexcept {
  const double m = static_cast<double>(bytes), n = topology_.size(), h = topology_.hosts(),
               r = topology_.most_members();
  const LinkCosts &within = costs_.within, &between = h > 1 ? costs_.between : costs_.within;
  const double sums = m * costs_.reduced_byte;
  // A host sends `messages` and `moved` bytes to others in one step.
  const auto step = [&](double messages, double moved) {
    return between.latency + messages * between.message + moved * between.byte;
  };
  const double leaving = h > 1 ? r * (n - r) : n - 1;  // messages of a host (here: a rank) to all other ranks
  switch (route) {
    case Route::direct:
      if (direct_in_one_step(topology_.size(), bytes)) return step(leaving, leaving * m) + n * sums;
      return 2 * step(leaving, leaving * m / n) + sums;
    case Route::ring:
      return 2 * (n - 1) * step(1, 1.5 * m / n) + sums;
    case Route::tree: {
      const double far = h > 1 ? log2_of(topology_.hosts()) : 0, near = log2_of(topology_.size()) - far;
      return 2 * far * step(1, m) + 2 * near * (within.latency + m * within.byte) + (far + near) * sums;
    }
    case Route::two_levels: {
      const double wire = 2 * step(n - r, (h - 1) / h * m);
      const double memory = 2 * (within.latency + (n - 1) * within.message + (r - 1) / r * m * within.byte);
      return std::max(wire, memory) + 0.2 * std::min(wire, memory) + sums;
    }
    case Route::first_ranks:
      return step(h - 1, (h - 1) * m) + 2 * (within.latency + (r - 1) * (within.message + m * within.byte)) +
             (r + h) * sums;
  }
  return 0;
}

std::string CollectivePlan::text() const {
  std::string text = fmt::format("{} on {}: ", name_of(asked_), topology_.text());
  AllReduceAlgorithm before = AllReduceAlgorithm::automatic;
  for (std::size_t bytes = 1024; bytes <= std::size_t{256} << 20; bytes *= 4) {
    const AllReduceAlgorithm now = algorithm_of(all_reduce_route(bytes));
    if (now == before) continue;
    if (before != AllReduceAlgorithm::automatic) text += fmt::format(", from {} ", short_size(bytes));
    text += name_of(now);
    before = now;
  }
  return text;
}

}  // namespace dtrain::p2p
