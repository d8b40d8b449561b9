// A call that waits looks at the others' records: at all of them in time, at few at a time.
#include "collectives/p2p/call_watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  void tick_until(int looks) {
    const CallWatchdog::Sources sources{crowd_, oob_, recorder_, [] { return false; },
                                        [] { return std::optional<std::string>(); }};
    CallWatchdog watchdog(sources, call_, seconds(600));
    while (oob_.looks < looks) {
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
    EXPECT_THAT(end.failure.what, HasSubstr("different things"));
  }
}

}  // namespace
}  // namespace dtrain::p2p
