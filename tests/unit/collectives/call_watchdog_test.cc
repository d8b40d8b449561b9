// A call that waits looks at the others' records: at all of them in time, at few at a time.
#include "collectives/p2p/call_watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <thread>

namespace dtrain::p2p {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

class Crowd final : public Members {
 public:
  explicit Crowd(int size) : size_(size) {}
  int rank() const noexcept override { return 0; }
  int size() const noexcept override { return size_; }
  const std::string& host_of(int) const noexcept override { return host_; }
  std::vector<int> lost_peers() noexcept override { return {}; }

 private:
  int size_;
  std::string host_ = "h";
};

class CountingOobKv final : public OobKv {
 public:
  void put_record(std::string_view) noexcept override {}
  std::optional<std::string> record_of(int rank) noexcept override {
    ++reads;
    read.insert(rank);
    const auto record = records.find(rank);
    return record == records.end() ? std::nullopt : std::optional(record->second);
  }
  std::string put_failure(std::string_view reason) noexcept override { return std::string(reason); }
  std::optional<std::string> failure() noexcept override {
    ++looks;
    return std::nullopt;
  }
  void drain() noexcept override {}

  std::map<int, std::string> records;
  std::set<int> read;
  int reads = 0, looks = 0;
};

Call all_to_all(int size, std::size_t count) {
  Call call;
  call.operation = Operation::all_to_all;
  call.sequence = 1;
  call.sends.assign(static_cast<std::size_t>(size), count);
  call.receives = call.sends;
  call.fingerprint = chain_fingerprint(0, call);
  return call;
}

class CallWatchdogTest : public testing::Test {
 protected:
  void tick_until(
      int looks, const std::function<void()>& meanwhile = [] {}) {
    const CallWatchdog::Sources sources{crowd_, oob_, recorder_, [] { return false; },
                                        [] { return std::optional<std::string>(); }};
    CallWatchdog watchdog(sources, call_, seconds(600));
    while (oob_.looks < looks) {
      meanwhile();
      watchdog.tick();
      std::this_thread::sleep_for(milliseconds(5));
    }
  }

  static constexpr int kRanks = 100;
  Crowd crowd_{kRanks};
  CountingOobKv oob_;
  FlightRecorder recorder_;
  Call call_ = all_to_all(kRanks, 4);
};

TEST_F(CallWatchdogTest, AnAllToAllReadsFewNotesAtATimeAndOthersTheNextTime) {
  tick_until(3);
  EXPECT_LE(oob_.reads, 3 * 18);
  EXPECT_GE(oob_.read.size(), 3U * 16);
}

TEST_F(CallWatchdogTest, FindsTheRankThatDisagreesWhereverItIs) {
  FlightRecorder theirs;
  theirs.record(all_to_all(kRanks, 5));
  oob_.records[60] = theirs.dump(60);
  recorder_.record(call_);
  try {
    tick_until(8);
    ADD_FAILURE() << "nobody was found";
  } catch (const GroupEnds& end) {
    EXPECT_EQ(end.failure.rank, 60);
    EXPECT_THAT(end.failure.what, HasSubstr("different calls"));
  }
}

Call about_a_topic(Operation operation, int root, std::size_t count) {
  Call call;
  call.operation = operation;
  call.root = root;
  call.count = count;
  call.sequence = 1;
  call.label = "gradient";
  call.fingerprint = any_fingerprint(7, 0, call);
  return call;
}

TEST_F(CallWatchdogTest, AnOfferThatARankMayHaveLeftIsNotHeldAgainstIt) {
  crowd_ = Crowd(2);
  call_ = about_a_topic(Operation::receive_any, -1, 4);
  FlightRecorder theirs;
  theirs.record(about_a_topic(Operation::offer, 0, 5));
  oob_.records[1] = theirs.dump(1, 3);
  EXPECT_NO_THROW(tick_until(5));
  std::uint64_t looks = 3;
  EXPECT_THROW(tick_until(20, [&] { oob_.records[1] = theirs.dump(1, ++looks); }), GroupEnds)
      << "it still waits there";
}

TEST_F(CallWatchdogTest, AMessageThatMayJustHaveComeIsLookedForOnceMore) {
  crowd_ = Crowd(2);
  call_ = about_a_topic(Operation::receive, 1, 4);
  FlightRecorder theirs;
  theirs.record(all_to_all(2, 4));
  oob_.records[1] = theirs.dump(1);
  EXPECT_NO_THROW(tick_until(oob_.looks + 1)) << "this rank may have had no core since it looked";
  call_ = about_a_topic(Operation::receive_any, -1, 4);
  EXPECT_NO_THROW(tick_until(oob_.looks + 1));
  EXPECT_THROW(tick_until(oob_.looks + 2), GroupEnds);
}

}  // namespace
}  // namespace dtrain::p2p
