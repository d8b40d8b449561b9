// The watchdog over queued collectives, with a fake out-of-band store and GPU: what ends a group, what the
// error says, and that a group in good order is left alone.
#include "collectives/nccl/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>

#include "collectives/factory.h"
#include "runtime/base/error.h"

namespace dtrain::nccl {
namespace {

using p2p::Call;
using p2p::Operation;
using testing::AllOf;
using testing::HasSubstr;

constexpr auto kPatience = std::chrono::seconds(20);

/// The out-of-band store that both ranks see.
struct Shared {
  std::mutex mutex;
  std::map<int, std::string> records;
  std::optional<std::string> end;
};

class FakeOobKv final : public p2p::OobKv {
 public:
  FakeOobKv(Shared& shared, int rank) : shared_(shared), rank_(rank) {}
  void put_record(std::string_view record) noexcept override {
    const std::lock_guard lock(shared_.mutex);
    shared_.records[rank_] = std::string(record);
  }
  std::optional<std::string> record_of(int rank) noexcept override {
    const std::lock_guard lock(shared_.mutex);
    const auto found = shared_.records.find(rank);
    return found == shared_.records.end() ? std::nullopt : std::optional(found->second);
  }
  std::string put_failure(std::string_view reason) noexcept override {
    const std::lock_guard lock(shared_.mutex);
    if (!shared_.end) shared_.end = std::string(reason);
    return *shared_.end;
  }
  std::optional<std::string> failure() noexcept override {
    const std::lock_guard lock(shared_.mutex);
    return shared_.end;
  }
  void drain() noexcept override {}

 private:
  Shared& shared_;
  int rank_;
};

class FakeMembers final : public p2p::Members {
 public:
  explicit FakeMembers(int rank) : rank_(rank) {}
  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return 2; }
  const std::string& host_of(int rank) const noexcept override {
    return hosts_[static_cast<std::size_t>(rank)];
  }
  std::vector<int> lost_peers() noexcept override { return {}; }
  std::vector<int> ended_peers() noexcept override { return ended; }

  std::vector<int> ended;  ///< before a call is made

 private:
  int rank_;
  std::vector<std::string> hosts_ = {"north", "south"};
};

/// One rank with its watchdog.
struct Rank {
  Rank(Shared& shared, int rank, Duration timeout)
      : members(rank),
        oob(shared, rank),
        dog({members, oob, [this] { return failure(); }, [this] { kill(); }, {}}, "world", timeout, log) {}
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  std::optional<std::string> failure() {
    return broken ? std::optional<std::string>("remote process exited") : std::nullopt;
  }
  void kill() {
    ended_first = dog.failure().has_value();
    killed = true;
  }
  Call start(const std::string& label, std::size_t count = 10) {
    Call call{.operation = Operation::all_reduce, .dtype = DType::f32, .count = count, .label = label};
    dog.number(call);
    dog.watch({call, [this] { return over.load(); }});
    return call;
  }
  /// The error of the group's end; waits for it.
  PeerError error(const Call& call) {
    const Deadline deadline = Deadline::after(kPatience);
    while (!killed && !deadline.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    try {
      dog.check(call);
    } catch (const PeerError& error) {
      return error;
    }
    throw std::runtime_error("the group did not end");
  }

  NullLog log;
  std::atomic<bool> over = false, broken = false, killed = false, ended_first = false;
  FakeMembers members;
  FakeOobKv oob;
  Watchdog dog;
};

TEST(Watchdog, LeavesAGroupInGoodOrderAlone) {
  Shared shared;
  Rank rank(shared, 0, std::chrono::milliseconds(100));
  rank.over = true;
  Call last;
  for (int i = 0; i < 5; ++i) last = rank.start("bucket");
  EXPECT_EQ(last.sequence, 5u);
  const Deadline deadline = Deadline::after(kPatience);
  while (!rank.dog.idle() && !deadline.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(rank.dog.idle());
  EXPECT_FALSE(rank.dog.failure());
  EXPECT_NO_THROW(rank.dog.check(last));
  EXPECT_FALSE(rank.killed);
}

TEST(Watchdog, DeadlineNamesTheRankThatDidNotCome) {
  Shared shared;
  Rank rank(shared, 0, std::chrono::milliseconds(300));
  const Call call = rank.start("bucket 2");
  const PeerError error = rank.error(call);
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("all_reduce(float32 x 10, sum, 'bucket 2') #1"), HasSubstr("(nccl)"),
                    HasSubstr("gave up after"), HasSubstr("rank 1 on south")));
  EXPECT_EQ(error.failure().rank, 1);
  EXPECT_EQ(error.failure().operation, "all_reduce");
  EXPECT_EQ(error.failure().sequence, 1u);
  EXPECT_EQ(error.failure().tensor, "bucket 2");
  EXPECT_TRUE(rank.killed);
  EXPECT_TRUE(rank.ended_first) << "a call that the kill breaks off could pass for a finished one";
}

TEST(Watchdog, ARankThatDiesInACallItHasMadeIsNamed) {
  Shared shared;
  Rank north(shared, 0, std::chrono::seconds(1));
  north.members.ended = {1};
  Call call{.operation = Operation::all_reduce, .dtype = DType::f32, .count = 10, .label = "bucket 0"};
  p2p::CallNumbering numbering("world", 1, 2);
  numbering.number(call);
  p2p::FlightRecorder recorder;
  recorder.record(call);
  FakeOobKv(shared, 1).put_record(recorder.dump(1));  // made the call, waited in it, and was killed then
  const PeerError error = north.error(north.start("bucket 0"));
  EXPECT_THAT(error.what(), AllOf(HasSubstr("gave up after"),
                                  HasSubstr("rank 1 on south has made the call, and its process has ended")));
  EXPECT_EQ(error.failure().rank, 1);
}

TEST(Watchdog, ARankThatDiedBeforeTheCallIsNamed) {
  Shared shared;
  Rank north(shared, 0, std::chrono::milliseconds(300));
  north.members.ended = {1};
  EXPECT_THAT(north.error(north.start("bucket 0")).what(),
              HasSubstr("rank 1 on south (its process has ended) did not make this call"));
}

TEST(Watchdog, LibraryFailureEndsTheGroupAndNamesWhoIsSilent) {
  Shared shared;
  Rank rank(shared, 1, std::chrono::minutes(5));
  const Call call = rank.start("bucket 0");
  rank.broken = true;
  EXPECT_THAT(rank.error(call).what(),
              AllOf(HasSubstr("NCCL failed: remote process exited"), HasSubstr("rank 0 on north")));
}

TEST(Watchdog, RanksThatDisagreeAreBothShown) {
  Shared shared;
  Rank north(shared, 0, std::chrono::minutes(5)), south(shared, 1, std::chrono::minutes(5));
  const Call a = north.start("bucket 0", 10), b = south.start("bucket 0", 20);
  for (const std::string& text : {std::string(north.error(a).what()), std::string(south.error(b).what())}) {
    EXPECT_THAT(
        text, AllOf(HasSubstr("made different calls"), HasSubstr("float32 x 10"), HasSubstr("float32 x 20")));
  }
}

TEST(Watchdog, AbortReachesTheOtherRank) {
  Shared shared;
  Rank north(shared, 0, std::chrono::minutes(5)), south(shared, 1, std::chrono::minutes(5));
  const Call waiting = south.start("bucket 0");
  north.dog.abort("the loss is not finite");
  EXPECT_THAT(south.error(waiting).what(), HasSubstr("aborted by rank 0: the loss is not finite"));
  EXPECT_THAT(north.error(waiting).what(), HasSubstr("the loss is not finite"));
}

TEST(Watchdog, AWaitThatRunsOutOfTimeEndsTheGroup) {
  Shared shared;
  Rank rank(shared, 0, std::chrono::minutes(5));
  const Call call = rank.start("loss");
  EXPECT_THROW(rank.dog.give_up(call), PeerError);
  EXPECT_THAT(rank.error(call).what(), HasSubstr("gave up"));
  EXPECT_TRUE(rank.killed);
}

TEST(NcclBackend, WantsAGpu) {
  NullLog log;
  Bootstrap bootstrap;
  bootstrap.size = 2;
  try {
    make_communicator(Backend::nccl, bootstrap, log);
    FAIL() << "there is no GPU in this bootstrap";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("backend nccl: expected a GPU"), HasSubstr("use device cuda")));
  }
}

}  // namespace
}  // namespace dtrain::nccl
