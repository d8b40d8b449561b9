// A call that waits looks at the others' notes: at all of them in time, at few at a time.
#include "collectives/p2p/vigil.h"

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

class CountingBoard final : public Board {
 public:
  void post_note(std::string_view) noexcept override {}
  std::optional<std::string> note_of(int rank) noexcept override {
    ++reads;
    read.insert(rank);
    const auto note = notes.find(rank);
    return note == notes.end() ? std::nullopt : std::optional(note->second);
  }
  std::string post_end(std::string_view reason) noexcept override { return std::string(reason); }
  std::optional<std::string> end() noexcept override {
    ++looks;
    return std::nullopt;
  }
  void tidy() noexcept override {}

  std::map<int, std::string> notes;
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

class VigilTest : public testing::Test {
 protected:
  void tick_until(int looks) {
    const Vigil::Sources sources{crowd_, board_, notes_, [] { return false; },
                                 [] { return std::optional<std::string>(); }};
    Vigil vigil(sources, call_, seconds(600));
    while (board_.looks < looks) {
      vigil.tick();
      std::this_thread::sleep_for(milliseconds(5));
    }
  }

  static constexpr int kRanks = 100;
  Crowd crowd_{kRanks};
  CountingBoard board_;
  Notes notes_;
  Call call_ = all_to_all(kRanks, 4);
};

TEST_F(VigilTest, AnAllToAllReadsFewNotesAtATimeAndOthersTheNextTime) {
  tick_until(3);
  EXPECT_LE(board_.reads, 3 * 18);
  EXPECT_GE(board_.read.size(), 3U * 16);
}

TEST_F(VigilTest, FindsTheRankThatDisagreesWhereverItIs) {
  Notes theirs;
  theirs.begin(all_to_all(kRanks, 5));
  board_.notes[60] = theirs.text(60);
  notes_.begin(call_);
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
