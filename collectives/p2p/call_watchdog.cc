#include "collectives/p2p/call_watchdog.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace dtrain::p2p {
namespace {

// A call that has waited this long publishes its flight record and looks at its neighbours' records, and
// again every so often. Long enough to cost nothing where ranks are merely uneven, short enough to find a
// disagreement within a second.
constexpr std::chrono::milliseconds kLookEvery{200};
// Whose records are read at a time where any two ranks may disagree: n ranks would read n² of them.
constexpr int kRanksALook = 16;
// Whose records are read when the deadline passes, to tell who is missing.
constexpr int kMostRanksAsked = 256;
constexpr int kMostRanksListed = 8;

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

CallWatchdog::CallWatchdog(const Sources& sources, const Call& call, Duration timeout)
    : sources_(sources),
      call_(call),
      start_(steady_clock().now()),
      deadline_(Deadline::after(timeout)),
      next_look_(start_ + std::min<Duration>(kLookEvery, timeout / 3)) {}

void CallWatchdog::tick() {
  if (const auto reason = sources_.aborted()) throw GroupEnds{blame(-1, "aborted " + *reason)};
  if (const std::vector<int> lost = sources_.members.lost_peers(); !lost.empty()) {
    throw LinkLost("its process is gone or the connection to it broke", lost.front());
  }
  const TimePoint now = steady_clock().now();
  if (deadline_.expired() || sources_.out_of_time()) throw GroupEnds{late(now)};
  if (now >= next_look_) look_around(now);
}

void CallWatchdog::look_around(TimePoint now) {
  next_look_ = now + kLookEvery;
  const bool counts = call_.operation == Operation::offer || call_.operation == Operation::receive_any;
  if (looks_++ == 0 || counts)
    sources_.oob.put_record(sources_.recorder.dump(sources_.members.rank(), counts ? looks_ : 0));
  if (const auto end = sources_.oob.failure()) {
    if (const auto failure = decode(*end)) throw GroupEnds{*failure};
  }
  if (call_.is_pairwise()) return compare_with_involved();
  // If any two ranks disagree, then so do two neighbours on the ring.
  const int rank = sources_.members.rank(), size = sources_.members.size();
  compare_with((rank + 1) % size);
  if (size > 2) compare_with((rank + size - 1) % size);
  if (call_.operation == Operation::all_to_all) compare_with_involved();
}

// Messages, and the parts of an all_to_all, concern pairs that need not be neighbours: some are looked at
// each time, in turn, so that all have been after a while. A rank stuck in a later collective stays
// there, since that waits for this rank too.
void CallWatchdog::compare_with_involved() {
  const int rank = sources_.members.rank(), others = sources_.members.size() - 1;
  for (int seen = 0, looked = 0; seen < others && looked < kRanksALook; ++seen) {
    looked_at_ = looked_at_ % others + 1;
    const int peer = (rank + looked_at_) % (others + 1);
    if (!call_.involves(peer)) continue;
    ++looked;
    const auto record = compare_with(peer);
    if (record && waits_for_later_collective(*record, sources_.recorder.latest_sequence()))
      stuck_.insert_or_assign(peer, record->collectives.back());
  }
  // Nobody is left who could offer anything, unless that has come since this rank looked for messages.
  if (call_.operation != Operation::receive_any || static_cast<int>(stuck_.size()) < others) return;
  if (std::exchange(nobody_left_, true)) throw_disagreement(stuck_.rbegin()->first, stuck_.rbegin()->second);
}

// Gives what the record of `peer` says.
std::optional<FlightRecord> CallWatchdog::compare_with(int peer) {
  const auto record = sources_.oob.record_of(peer);
  if (!record) return std::nullopt;
  FlightRecord seen = FlightRecord::parse(*record);
  const auto theirs =
      find_disagreement(call_, sources_.members.rank(), sources_.recorder.latest_sequence(), seen, peer);
  if (!theirs) {
    suspicions_.erase(peer);
  } else if (is_certain(peer, *theirs, seen)) {
    throw_disagreement(peer, *theirs);
  }
  return seen;
}

// The place of a collective in their order never changes. With messages a rank that had no core for a
// while would accuse others wrongly: what it waits for may have come since it looked for messages, and the
// peer may have left the offer that its record tells of. So this rank looks for messages once more, and a
// peer in an offer must have looked around since, which it does only as long as it waits.
bool CallWatchdog::is_certain(int peer, const RecordedCall& theirs, const FlightRecord& record) {
  if (!call_.is_pairwise()) return true;
  const auto [seen, is_new] = suspicions_.try_emplace(peer, Suspicion{theirs.text, record.looks});
  if (is_new) return false;
  if (seen->second.text != theirs.text || record.looks < seen->second.looks) {
    seen->second = {theirs.text, record.looks};
    return false;
  }
  return record.looks == 0 || record.looks >= seen->second.looks + 2;
}

void CallWatchdog::throw_disagreement(int peer, const RecordedCall& theirs) const {
  const int rank = sources_.members.rank();
  // Both sides find it; the lower rank first, so that the text does not depend on who was quicker.
  std::string first = fmt::format("{} called {}", name_rank(rank), call_.text());
  std::string second = fmt::format("{} called {}", name_rank(peer), theirs.text);
  if (peer < rank) std::swap(first, second);
  throw GroupEnds{
      blame(std::max(rank, peer),
            fmt::format("ranks made different calls: {}, {}; every rank must make the same calls in the "
                        "same order",
                        first, second))};
}

PeerFailure CallWatchdog::late(TimePoint now) {
  return accuse(fmt::format("gave up after {:.1f} s", seconds(now - start_)));
}

PeerFailure CallWatchdog::accuse(const std::string& happened) {
  const int rank = sources_.members.rank(), size = sources_.members.size();
  sources_.oob.put_record(sources_.recorder.dump(rank));
  if (const auto end = sources_.oob.failure()) {
    if (auto failure = decode(*end)) return *failure;
  }
  const std::vector<int> ended = sources_.members.ended_peers();
  int first_missing = -1, missing = 0;
  std::string who;
  for (int peer = 0; peer < std::min(size, kMostRanksAsked); ++peer) {
    if (peer == rank || !call_.involves(peer)) continue;
    const auto record = sources_.oob.record_of(peer);
    const FlightRecord seen = record ? FlightRecord::parse(*record) : FlightRecord{};
    if (!call_.is_pairwise() && seen.latest_sequence() >= call_.sequence) continue;
    if (first_missing < 0) first_missing = peer;
    if (++missing > kMostRanksListed) continue;
    who += fmt::format("{}{}", who.empty() ? "" : ", ", name_rank(peer));
    if (std::ranges::find(ended, peer) != ended.end()) {
      who += " (its process has ended)";
    } else if (record) {
      who += " (last seen waiting in " + seen.latest() + ")";
    }
  }
  if (missing > kMostRanksListed) who += fmt::format(" and {} more", missing - kMostRanksListed);
  if (missing > 0) {
    return blame(first_missing,
                 fmt::format("{}; {} did not make this call: stopped, stuck or much slower?", happened, who));
  }
  // A rank that has made the call may have ended in it.
  for (const int peer : ended) {
    if (!call_.involves(peer)) continue;
    return blame(
        peer, fmt::format("{}; {} has made the call, and its process has ended", happened, name_rank(peer)));
  }
  return blame(-1, happened + "; all ranks have made the call but not finished it: a slow or cut network?");
}

PeerFailure CallWatchdog::failure_of(const LinkLost& lost) {
  if (const auto end = sources_.oob.failure()) {
    if (auto failure = decode(*end)) return *failure;
  }
  int rank = lost.rank();
  if (rank < 0) {
    const std::vector<int> gone = sources_.members.lost_peers();
    if (!gone.empty()) rank = gone.front();
  }
  const std::string who = rank < 0 ? "a peer" : name_rank(rank);
  return blame(rank, fmt::format("{} is lost: {}", who, lost.what()));
}

PeerFailure CallWatchdog::blame(int rank, std::string what) const {
  PeerFailure failure;
  failure.rank = rank;
  if (rank >= 0) failure.host = sources_.members.host_of(rank);
  failure.operation = name_of(call_.operation);
  failure.sequence = call_.sequence;
  failure.tensor = call_.label;
  failure.what = std::move(what);
  return failure;
}

std::string CallWatchdog::name_rank(int rank) const {
  return fmt::format("rank {} on {}", rank, sources_.members.host_of(rank));
}

}  // namespace dtrain::p2p
