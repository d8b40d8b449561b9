// rendezvous_bench scale [LAUNCHERS…]: how long thousands of launchers take to meet. More than 20,000 need
// root, for as many descriptors. BENCH_ROUNDS: runs of each number (default 3).
// rendezvous_bench work [LAUNCHERS…]: the same without sockets, for as many as a job can have.
// rendezvous_bench hostile: what strangers on the port cost those who belong there.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "tests/bench/rendezvous/measure.h"
#include "tests/bench/rendezvous/server_process.h"
#include "tests/bench/rendezvous/without_sockets.h"

namespace {

using namespace dtrain::bench;  // NOLINT

// The aims: seconds for so many launchers, and the server's memory.
double aim_s(int launchers) { return launchers <= 1250 ? 2.0 : 10.0; }
constexpr double kAimMib = 1024;
constexpr std::size_t kOtherFiles = 64;  // of the server and of the launchers' process

int rounds_asked() {
  const char* text = std::getenv("BENCH_ROUNDS");
  return text == nullptr ? 3 : std::max(1, std::atoi(text));
}

double n_log_n(int n) { return n * std::log2(static_cast<double>(n)); }

int scale(std::vector<int> sizes, std::size_t open_files) {
  if (sizes.empty()) sizes = {1250, 2500, 5000, 10000};
  constexpr int kThreads = 4;
  const int rounds = rounds_asked();
  fmt::print(
      "All launchers come at once; the median of {} runs. Seconds from the first packet of the first.\n\n",
      rounds);
  fmt::print(
      "| launchers | connected s | joined s | after the last came s | aim s | growth / n log n | "
      "server's CPU s | failure known ms | beats, share of a core | server MiB "
      "|\n|---|---|---|---|---|---|---|---|---|---|\n");
  bool good = true;
  double first_cost = 0;
  for (const int launchers : sizes) {
    if (static_cast<std::size_t>(launchers) + kOtherFiles > open_files) {
      fmt::print("| {} | left out: needs as many descriptors, and a process may have {} (ulimit -n) |\n",
                 launchers, open_files);
      good = false;
      continue;
    }
    std::vector<ScaleResult> runs;
    for (int i = 0; i < rounds; ++i) {
      runs.push_back(measure_scale(launchers, kThreads, 3));
      if (!runs.back().trouble.empty()) {
        fmt::print("| {} | failed: {} |\n", launchers, runs.back().trouble);
        return 1;
      }
    }
    std::sort(runs.begin(), runs.end(), [](const auto& a, const auto& b) { return a.joined_s < b.joined_s; });
    const ScaleResult& result = runs[static_cast<std::size_t>(rounds / 2)];
    const double cost = result.joined_s / n_log_n(launchers);
    if (first_cost == 0) first_cost = cost;
    fmt::print("| {} | {:.2f} | {:.2f} | {:.3f} | {} | {:.2f} | {:.2f} | {:.0f} | {:.0f} % | {:.0f} |\n",
               launchers, result.connected_s, result.joined_s, result.after_last_s, aim_s(launchers),
               cost / first_cost, result.server_s, result.failure_ms, 100 * result.beat_cpu,
               result.server_mib);
    good = good && result.joined_s <= aim_s(launchers) && cost <= 1.5 * first_cost &&
           result.server_mib <= kAimMib;
  }
  fmt::print("\n{}\n", good ? "within the aims" : "MISSED: an aim, or growth beyond n log n");
  return good ? 0 : 1;
}

// Each number in a process of its own, which prints a line and says by its exit code whether the aims are
// met.
int work(std::vector<int> sizes) {
  if (sizes.empty()) sizes = {1250, 10'000, 40'000, 100'000};
  fmt::print(
      "Sessions, store and leader in one process, nothing sent.\n\n"
      "| launchers | joined s | aim s | joined / n log n, ns | a failure known to all after s | MiB of all "
      "|\n|---|---|---|---|---|---|\n");
  std::fflush(stdout);
  bool good = true;
  for (const int launchers : sizes) {
    const pid_t child = ::fork();
    if (child == 0) {
      const WorkResult result = measure_without_sockets(launchers);
      fmt::print("| {} | {:.3f} | {} | {:.0f} | {:.3f} | {:.0f} | {}\n", launchers, result.joined_s,
                 aim_s(launchers), 1e9 * result.joined_s / n_log_n(launchers), result.failure_s, result.mib,
                 result.trouble);
      std::fflush(stdout);
      ::_exit(result.trouble.empty() && result.joined_s <= aim_s(launchers) && result.mib <= kAimMib ? 0 : 1);
    }
    int status = 1;
    ::waitpid(child, &status, 0);
    good = good && status == 0;
  }
  fmt::print("\n{}\n", good ? "within the aims" : "MISSED: an aim");
  return good ? 0 : 1;
}

int hostile() {
  const AttackPlan plan;
  constexpr int kPairs = 20;
  constexpr double kPhaseS = 1;
  const HostileResult result = measure_hostile(plan, kPairs, kPhaseS);
  fmt::print(
      "One client calls without pause, {} members beat; {} pairs of {:.0f} s without and with the "
      "attack.\n\n",
      result.members, kPairs, kPhaseS);
  fmt::print("| pair | calls/s quiet | calls/s attacked | loss % |\n|---|---|---|---|\n");
  for (std::size_t i = 0; i < result.quiet_calls.size(); ++i)
    fmt::print("| {} | {:.0f} | {:.0f} | {:.1f} |\n", i + 1, result.quiet_calls[i], result.attacked_calls[i],
               100 * (1 - result.attacked_calls[i] / result.quiet_calls[i]));
  const auto& attacks = result.attacks;
  fmt::print(
      "\nattacks: {} idle connections at a time ({} opened), {} garbage, {} wrong tokens, {} replays, {} "
      "impossible "
      "lengths\n",
      plan.idle, attacks.idle_opened, attacks.garbage, attacks.wrong_tokens, attacks.replays,
      attacks.lengths);
  fmt::print("| figure | value | aim |\n|---|---|---|\n");
  const double paced_loss = 100 * (1 - result.paced_attacked / result.paced_quiet);
  fmt::print("| of 2,000 calls/s lost % | {:.1f} | 5 |\n", paced_loss);
  fmt::print("| their p99 quiet / attacked ms | {:.2f} / {:.2f} | |\n", result.paced_p99_quiet_ms,
             result.paced_p99_attacked_ms);
  fmt::print("| of as many calls as one client can make lost, median % | {:.1f} | |\n", result.loss_percent);
  fmt::print("| server's share of a core under the attack alone ({:.0f} strangers a second) | {:.1f} % | |\n",
             result.strangers_per_s, 100 * result.server_share);
  fmt::print("| join p50 / p99 / max ms ({} joins) | {:.2f} / {:.2f} / {:.1f} | p99 2000 |\n", result.joins,
             result.join_p50_ms, result.join_p99_ms, result.join_max_ms);
  fmt::print("| server MiB before / largest | {:.1f} / {:.1f} | + 16 |\n", result.server_mib_before,
             result.server_mib_peak);
  fmt::print("| members lost | {} of {} | 0 |\n", result.members_lost, result.members);
  const bool good = result.trouble.empty() && result.members_lost == 0 && paced_loss <= 5 &&
                    result.join_p99_ms <= 2000 && result.server_mib_peak <= result.server_mib_before + 16;
  fmt::print("\n{}{}\n", good ? "within the aims" : "MISSED ", result.trouble);
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::size_t open_files = raise_open_files();
    const std::string mode = argc > 1 ? argv[1] : "";
    std::vector<int> sizes;
    for (int i = 2; i < argc; ++i) sizes.push_back(std::atoi(argv[i]));
    if (mode == "scale") return scale(sizes, open_files);
    if (mode == "work") return work(sizes);
    if (mode == "hostile") return hostile();
    fmt::print(stderr, "usage: rendezvous_bench scale [LAUNCHERS…] | work [LAUNCHERS…] | hostile\n");
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "rendezvous_bench: {}\n", error.what());
    return 1;
  }
}
