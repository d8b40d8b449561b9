// A leader's state machine whose time moves only when a test moves it, and the words to drive it.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "cluster/rendezvous/membership.h"

namespace dtrain::rendezvous {

inline NodeOffer offer_of(std::optional<int> node_rank, int nproc = 2) {
  NodeOffer offer;
  offer.node_rank = node_rank;
  offer.host = node_rank ? "gpu" + std::to_string(*node_rank) : "gpux";
  offer.address = "10.0.0." + std::to_string(node_rank.value_or(99)) + " (eth0)";
  offer.nproc = nproc;
  offer.must_match = {{"nnodes", "4"}, {"program", "train"}};
  return offer;
}

// A job under test: slot `i` belongs to node_rank i unless a test says otherwise. Slots beat every 100 ms
// unless muted.
class Job {
 public:
  explicit Job(JobRules rules) : membership_(std::move(rules), now_) {}

  Admission join(ConnectionId id, const NodeOffer& offer) {
    Admission admission = membership_.join(id, offer, now_);
    if (admission.refused.empty()) beating_.insert(id);
    collect();
    return admission;
  }
  Admission join(int node_rank) { return join(static_cast<ConnectionId>(node_rank), offer_of(node_rank)); }
  void join_all(int count) {
    for (int i = 0; i < count; ++i) EXPECT_EQ(join(i).refused, "");
  }
  void say(ConnectionId id, const NodeEvent& event, std::uint64_t number = 0) {
    membership_.hear(id, event, now_, number);
    collect();
  }
  void ready_all(const std::vector<ConnectionId>& ids, int round) {
    for (const ConnectionId id : ids) say(id, Ready{round, id == 0 ? std::uint16_t{4711} : std::uint16_t{0}});
  }
  void ended_all(const std::vector<ConnectionId>& ids, int round, int code) {
    for (const ConnectionId id : ids) say(id, Ended{round, code});
  }
  void leave(ConnectionId id, Departure departure) {
    beating_.erase(id);
    membership_.leave(id, departure, now_);
    collect();
  }
  void mute(ConnectionId id) { beating_.erase(id); }
  void pass(Duration time) {
    for (const TimePoint end = now_ + time; now_ < end;) {
      now_ += std::min<Duration>(std::chrono::milliseconds(10), end - now_);
      for (const ConnectionId id : beating_) membership_.beat(id, now_);
      membership_.tick(now_);
      collect();
    }
  }
  // The leader is held up; then the heartbeats are read after the clock.
  void freeze(Duration time) {
    now_ += time;
    membership_.tick(now_);
    collect();
  }

  // All events of one kind so far.
  template <class Kind>
  std::vector<Kind> all() const {
    std::vector<Kind> found;
    for (const LeaderEvent& event : heard_) {
      if (const Kind* one = std::get_if<Kind>(&event)) found.push_back(*one);
    }
    return found;
  }
  template <class Kind>
  Kind last() const {
    const auto found = all<Kind>();
    if (!found.empty()) return found.back();
    ADD_FAILURE() << "no such news";
    return {};
  }
  template <class Kind>
  std::size_t count() const {
    return all<Kind>().size();
  }
  std::string waiting_text() const {
    std::string text;
    for (const std::string& line : last<Waiting>().lines) text += line + "\n";
    return text;
  }
  const std::vector<ConnectionId>& lost() const { return lost_; }
  bool over() const { return membership_.over(); }
  Snapshot snapshot() const { return membership_.snapshot(); }

 private:
  void collect() {
    for (LeaderEvent& event : membership_.take_events()) heard_.push_back(std::move(event));
    for (const ConnectionId id : membership_.take_lost()) lost_.push_back(id);
  }
  TimePoint now_{std::chrono::seconds(1000)};
  Membership membership_;
  std::set<ConnectionId> beating_;
  std::vector<LeaderEvent> heard_;
  std::vector<ConnectionId> lost_;
};

inline JobRules fixed(int nodes, int restarts = 0) {
  JobRules rules;
  rules.min_nodes = rules.max_nodes = nodes;
  rules.max_restarts = restarts;
  rules.run_id = "run";
  rules.launch_time_ns = 42;
  rules.listening = "10.0.0.0:29501 (eth0)";
  return rules;
}

inline JobRules elastic(int least, int most, int restarts = 3) {
  JobRules rules = fixed(most, restarts);
  rules.min_nodes = least;
  return rules;
}

inline Failed worker_failed(int round, int code, Duration age = {}, bool consequence = false) {
  Failed failed{round, age, {}};
  failed.failure.rank = 1;
  failed.failure.exit_code = code;
  failed.failure.consequence = consequence;
  failed.failure.lines = {"rank 1 failed"};
  return failed;
}

// A job whose round 0 runs on all nodes.
inline Job running(JobRules rules) {
  const int nodes = rules.max_nodes;
  Job job(std::move(rules));
  job.join_all(nodes);
  std::vector<ConnectionId> ids;
  for (int i = 0; i < nodes; ++i) ids.push_back(static_cast<ConnectionId>(i));
  job.ready_all(ids, 0);
  EXPECT_EQ(job.count<Start>(), 1U);
  return job;
}

}  // namespace dtrain::rendezvous
