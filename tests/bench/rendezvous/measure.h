// The two measurements, as functions: the benchmark runs them large and the tests small.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cluster/rendezvous/server.h"
#include "tests/bench/rendezvous/attackers.h"

namespace dtrain::bench {

/// Of a job of `nodes` launchers, with the lease that dtrain-launch has by default.
rendezvous::ServerOptions server_options(int nodes, const std::optional<Token>& token);

struct ScaleResult {
  int launchers = 0;
  double connected_s = 0;   ///< from the first launcher's first packet until the last has authenticated
  double joined_s = 0;      ///< … until the last has heard the start of round 0
  double after_last_s = 0;  ///< from the last one's arrival until the last has heard the start
  double server_s = 0;      ///< CPU time of the server until then
  double failure_ms = 0;    ///< from one launcher's report until the last has heard the stop
  double over_ms = 0;       ///< from there until the last has heard the end
  double beat_cpu = 0;      ///< the server's share of a core while all beat once a second
  double server_mib = 0;    ///< its largest size
  std::string trouble;      ///< empty when all went well
};

/// All launchers come at once, as fast as `threads` threads can make them. To be called while this process
/// has one thread.
ScaleResult measure_scale(int launchers, int threads, double beat_s);

struct HostileResult {
  std::vector<double> quiet_calls, attacked_calls;  ///< calls/s of one client, by turns
  double loss_percent = 0;                          ///< median over the pairs
  /// The same with 2,000 calls a second asked for, far more than a training job makes: what was reached, and
  /// the call's latency.
  double paced_quiet = 0, paced_attacked = 0, paced_p99_quiet_ms = 0, paced_p99_attacked_ms = 0;
  double join_p50_ms = 0, join_p99_ms = 0, join_max_ms = 0;
  std::size_t joins = 0;
  double server_share = 0;  ///< of a core, under the attack alone
  double strangers_per_s = 0;
  double server_mib_before = 0, server_mib_peak = 0;
  Attackers::Counts attacks;
  int members = 0, members_lost = 0;
  std::string trouble;
};

/// `pairs` times `phase_s` seconds without and with the attack: one client calls without pause, members beat,
/// and during the attack another client joins again and again. To be called while this process has one
/// thread.
HostileResult measure_hostile(const AttackPlan& plan, int pairs, double phase_s);

}  // namespace dtrain::bench
