// Server, crowd and attackers put together.
#include "tests/bench/rendezvous/measure.h"

#include <algorithm>
#include <cmath>

#include "cluster/store/store_client.h"
#include "tests/bench/rendezvous/crowd.h"
#include "tests/bench/rendezvous/server_process.h"

namespace dtrain::bench {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

double seconds_since(TimePoint start) {
  return std::chrono::duration<double>(steady_clock().now() - start).count();
}

// What dtrain-launch has by default.
constexpr Duration kLease = seconds(10), kLostAfter = seconds(12);

Deadline patience() { return Deadline::after(seconds(120)); }

rendezvous::MemberOptions member_options(std::uint16_t port, const Token& token) {
  rendezvous::MemberOptions options;
  options.server = {"127.0.0.1", port};
  options.token = token;
  options.job = "bench";
  options.lease = kLease;
  return options;
}

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1,
                         static_cast<std::size_t>(share * static_cast<double>(values.size())))];
}

double calls_per_second(StoreClient& client, double phase_s) {
  const TimePoint start = steady_clock().now();
  long calls = 0;
  while (seconds_since(start) < phase_s) {
    for (int i = 0; i < 50; ++i) client.set("key", "value", Deadline::after(seconds(20)));
    calls += 50;
  }
  return static_cast<double>(calls) / seconds_since(start);
}

// Calls at a pace; adds each one's latency. Returns the calls/s reached.
double paced_calls(StoreClient& client, double phase_s, std::vector<double>& latencies_ms) {
  constexpr Duration kPace = std::chrono::microseconds(500);
  const TimePoint start = steady_clock().now();
  TimePoint next = start;
  long calls = 0;
  for (; seconds_since(start) < phase_s; ++calls, next += kPace) {
    std::this_thread::sleep_until(next);
    const TimePoint asked = steady_clock().now();
    client.set("key", "value", Deadline::after(seconds(20)));
    latencies_ms.push_back(1000 * seconds_since(asked));
  }
  return static_cast<double>(calls) / seconds_since(start);
}

void measure_paced(StoreClient& client, Attackers& attackers, int pairs, double phase_s,
                   HostileResult& result) {
  std::vector<double> quiet, attacked, quiet_ms, attacked_ms;
  for (int pair = 0; pair < pairs; ++pair) {
    quiet.push_back(paced_calls(client, phase_s, quiet_ms));
    attackers.attack(true);
    attacked.push_back(paced_calls(client, phase_s, attacked_ms));
    attackers.attack(false);
  }
  result.paced_quiet = percentile(quiet, 0.5);
  result.paced_attacked = percentile(attacked, 0.5);
  result.paced_p99_quiet_ms = percentile(quiet_ms, 0.99);
  result.paced_p99_attacked_ms = percentile(attacked_ms, 0.99);
}

}  // namespace

rendezvous::ServerOptions server_options(int nodes, const std::optional<Token>& token) {
  rendezvous::ServerOptions options;
  options.token = token;
  options.job = "bench";
  options.rules.min_nodes = options.rules.max_nodes = nodes;
  options.rules.run_id = "bench";
  options.rules.lease = kLease, options.rules.lost_after = kLostAfter;
  return options;
}

ScaleResult measure_scale(int launchers, int threads, double beat_s) {
  const Token token = make_token();
  const ServerProcess server(server_options(launchers, token));
  ScaleResult result;
  result.launchers = launchers;
  const auto all = [launchers](int count) { return count >= launchers; };
  const TimePoint start = steady_clock().now();
  Crowd crowd(member_options(server.port(), token), 0, launchers, threads);
  const auto reaches = [&](int (Crowd::*count)() const noexcept) {
    if (!result.trouble.empty()) return;
    if (!wait_for([&] { return all((crowd.*count)()) || crowd.broken() > 0; }, patience()))
      result.trouble = "too slow";
    if (crowd.broken() > 0) result.trouble = crowd.trouble();
  };
  reaches(&Crowd::connected);
  result.connected_s = seconds_since(start);
  const TimePoint arrived = steady_clock().now();
  reaches(&Crowd::started);
  result.joined_s = seconds_since(start);
  result.after_last_s = seconds_since(arrived);
  const double cpu = result.server_s = server.cpu_seconds();
  const TimePoint beating = steady_clock().now();
  std::this_thread::sleep_for(std::chrono::duration<double>(beat_s));
  result.beat_cpu = (server.cpu_seconds() - cpu) / seconds_since(beating);
  const TimePoint failed = steady_clock().now();
  crowd.fail_one();
  reaches(&Crowd::stopped);
  result.failure_ms = 1000 * seconds_since(failed);
  const TimePoint stopped = steady_clock().now();
  reaches(&Crowd::over);
  result.over_ms = 1000 * seconds_since(stopped);
  result.server_mib = server.peak_mib();
  return result;
}

HostileResult measure_hostile(const AttackPlan& plan, int pairs, double phase_s) {
  constexpr int kMembers = 8;
  const Token token = make_token();
  const ServerProcess server(server_options(kMembers, token));
  const rendezvous::MemberOptions members = member_options(server.port(), token);
  Attackers attackers(members, plan);
  HostileResult result;
  result.members = kMembers;
  Crowd crowd(members, 0, kMembers, 1);
  if (!wait_for([&] { return crowd.started() == kMembers; }, patience())) result.trouble = "no start";
  StoreClientOptions store;
  store.token = token;
  store.job = "bench";
  StoreClient client(members.server, store, patience());
  calls_per_second(client, std::min(1.0, phase_s));
  result.server_mib_before = server.resident_mib();

  // The idle crowd arrives.
  attackers.attack(true);
  wait_for([&] { return attackers.counts().idle_opened >= plan.idle; }, patience());
  attackers.attack(false);
  std::vector<double> joins, losses;
  for (int pair = 0; pair < pairs; ++pair) {
    result.quiet_calls.push_back(calls_per_second(client, phase_s));
    attackers.attack(true);
    std::this_thread::sleep_for(std::chrono::duration<double>(phase_s / 4));
    result.attacked_calls.push_back(calls_per_second(client, phase_s));
    losses.push_back(100 * (1 - result.attacked_calls.back() / result.quiet_calls.back()));
    // Joins are measured beside, not on top of, the calls.
    const TimePoint joining = steady_clock().now();
    while (seconds_since(joining) < phase_s / 2) {
      const TimePoint start = steady_clock().now();
      StoreClient(members.server, store, patience()).set("joined", "1", patience());
      joins.push_back(1000 * seconds_since(start));
    }
    attackers.attack(false);
    std::this_thread::sleep_for(std::chrono::duration<double>(phase_s / 4));
  }
  measure_paced(client, attackers, pairs / 2, phase_s, result);
  attackers.attack(true);
  std::this_thread::sleep_for(std::chrono::duration<double>(2 * phase_s));
  const Attackers::Counts before = attackers.counts();
  const double cpu = server.cpu_seconds();
  const TimePoint alone = steady_clock().now();
  std::this_thread::sleep_for(std::chrono::duration<double>(3 * phase_s));
  result.server_share = (server.cpu_seconds() - cpu) / seconds_since(alone);
  result.strangers_per_s =
      static_cast<double>(attackers.counts().total() - before.total()) / seconds_since(alone);
  result.loss_percent = percentile(losses, 0.5);
  result.join_p50_ms = percentile(joins, 0.5);
  result.join_p99_ms = percentile(joins, 0.99);
  result.join_max_ms = percentile(joins, 1);
  result.joins = joins.size();
  result.server_mib_peak = server.peak_mib();
  result.attacks = attackers.counts();
  result.members_lost = crowd.broken() + crowd.stopped();
  if (crowd.broken() > 0) result.trouble = crowd.trouble();
  return result;
}

}  // namespace dtrain::bench
