// kill -9 at random moments of three processes that save checkpoints together, in both phases of a save:
// every checkpoint that has a name must load whole, and none that was reported durable may be lost.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/checkpoint/checkpoint_saver.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/checkpoint/cuts.h"

namespace dtrain {
namespace {

using test::Cut;
using test::MemoryLog;
using test::ShardSample;

constexpr int kWorld = 3;
constexpr std::int64_t kScale = 300;

/// What a job's ranks tell each other by collectives, here in memory that the processes share.
struct Board {
  char writer_id[64] = {};
  std::atomic<std::int64_t> begun{-1};  ///< the step to resume from, once writer_id is there
  std::atomic<std::int64_t> prepared[kWorld] = {};
  std::atomic<std::int64_t> committing{0}, durable{0};
  std::atomic<std::int64_t> said[2][kWorld] = {}, rounds[kWorld] = {};  ///< of the maxima over ranks
};

class SharedBoard {
 public:
  SharedBoard() {
    void* memory = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw SystemError("mmap", errno);
    board_ = new (memory) Board;
  }
  ~SharedBoard() { ::munmap(board_, sizeof(Board)); }
  SharedBoard(const SharedBoard&) = delete;
  SharedBoard& operator=(const SharedBoard&) = delete;
  Board& operator*() const { return *board_; }
  Board* operator->() const { return board_; }

 private:
  Board* board_;
};

template <class Condition>
void wait_until(Condition condition) {
  while (!condition()) std::this_thread::sleep_for(std::chrono::microseconds(20));
}

Cut cut_of(std::int64_t step) {
  return test::kAllCuts[step % static_cast<std::int64_t>(std::size(test::kAllCuts))];
}

bool all_prepared(const Board& board, std::int64_t step) {
  return std::ranges::all_of(board.prepared, [&](const auto& rank) { return rank.load() >= step; });
}

std::int64_t begin(CheckpointStore& store, int rank, Board& board) {
  if (rank == 0) {
    store.begin_writing(0, Deadline::after(std::chrono::seconds(60)));
    const auto newest = store.latest();
    std::strncpy(board.writer_id, store.writer_id().c_str(), sizeof board.writer_id - 1);
    board.begun = newest ? newest->state.step : 0;
  } else {
    wait_until([&] { return board.begun >= 0; });
    store.write_for(board.writer_id);
  }
  return board.begun;
}

// The maximum over ranks of what each says in its `round`-th call, from 1. One that is ahead is so by one
// round.
std::int64_t max_over_ranks(Board& board, int rank, std::int64_t round, std::int64_t value) {
  auto& said = board.said[round % 2];
  said[rank] = value;
  board.rounds[rank] = round;
  wait_until([&] { return std::ranges::all_of(board.rounds, [&](const auto& at) { return at >= round; }); });
  return std::max({said[0].load(), said[1].load(), said[2].load()});
}

// Saves every step, each one cut otherwise; without the saver ranks other than 0 do not wait for the commit.
[[noreturn]] void save_in_a_loop(const std::filesystem::path& folder, int rank, bool beside, Board& board) {
  MemoryLog log;
  CheckpointStore store(folder, 3, log);
  std::int64_t step = begin(store, rank, board);
  std::int64_t round = 0;
  const auto agree = [&](std::int64_t value) {
    const std::int64_t worst = max_over_ranks(board, rank, ++round, value);
    if (worst == 0 && rank == 0) board.committing = step;  // from now on, or since
    return worst;
  };
  CheckpointSaver saver(&store, log, {.shard = {rank, kWorld}, .max_over_ranks = agree});
  while (true) {
    ++step;
    const ShardSample sample(step, cut_of(step), {rank, kWorld}, kScale);
    if (beside) {
      saver.save(sample.get());
      saver.drain();
      saver.check();
    } else {
      store.prepare(sample.get(), {rank, kWorld});
      board.prepared[rank] = step;
      wait_until([&] { return all_prepared(board, step); });
      if (rank == 0) board.committing = step;
      if (rank == 0) store.commit(sample.get().state, kWorld);
    }
    if (rank == 0) board.durable = step;
  }
}

class Job {
 public:
  Job(const std::filesystem::path& folder, bool beside) {
    for (int rank = 0; rank < kWorld; ++rank) {
      pids_[rank] = static_cast<pid_t>(check(Sys{::fork()}, "fork"));
      if (pids_[rank] != 0) continue;
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      try {
        save_in_a_loop(folder, rank, beside, *board_);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
      }
      ::_exit(1);
    }
  }

  Board& board() { return *board_; }

  bool has_ended() const {
    siginfo_t info{};
    ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT);
    return info.si_pid != 0;
  }

  // One rank first, the others a little later. False when one had ended by itself.
  bool kill(std::mt19937& random) {
    bool by_us = true;
    const int first = static_cast<int>(random() % kWorld);
    for (int i = 0; i < kWorld; ++i) {
      const pid_t pid = pids_[(first + i) % kWorld];
      ::kill(pid, SIGKILL);
      int status = 0;
      ::waitpid(pid, &status, 0);
      by_us = by_us && WIFSIGNALED(status);
      if (i == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    }
    return by_us;
  }

 private:
  SharedBoard board_;
  pid_t pids_[kWorld] = {};
};

/// How far the save was that a kill interrupted: 0: none, 1: shards were being written, 2: they were being
/// named.
int interrupted_phase(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  int phase = 0;
  if (!fs::exists(folder)) return 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!entry.path().filename().string().starts_with(".staged-")) continue;
    phase = std::max(phase, 1);
    for (const auto& file : fs::directory_iterator(entry.path())) {
      if (!file.path().filename().string().starts_with("rank-")) phase = 2;
    }
  }
  return phase;
}

int rounds() {
  const char* text = std::getenv("DTRAIN_FAULT_ROUNDS");
  return text != nullptr ? std::atoi(text) : 30;
}

TEST(ShardKill, NothingTornNothingLost) {
  const test::TempDir folder;
  const auto checkpoints = folder / "checkpoints";
  std::mt19937 random(20261122);
  std::int64_t durable = 0;
  int hits[3] = {};
  for (int round = 0; round < rounds(); ++round) {
    Job job(checkpoints, round % 2 == 0);
    // In half of the rounds in the middle of a commit, in the others anywhere.
    const std::int64_t saves = static_cast<std::int64_t>(random() % 4) + 1;
    wait_until([&] {
      const Board& board = job.board();
      return job.has_ended() || (board.begun >= 0 && board.committing >= board.begun + saves);
    });
    std::this_thread::sleep_for(std::chrono::microseconds(random() % (round % 4 < 2 ? 1500 : 20'000)));
    const bool by_us = job.kill(random);
    durable = std::max(durable, job.board().durable.load());
    ASSERT_TRUE(by_us) << "a rank failed by itself in round " << round;
    ++hits[interrupted_phase(checkpoints)];

    MemoryLog log;
    const CheckpointStore store(checkpoints, 3, log);
    for (const auto& entry : store.list()) {
      const Checkpoint checkpoint = store.load(entry.path);
      const int readers = 1 + round % 4;
      ASSERT_EQ(
          ShardSample::mismatch(checkpoint, entry.step, cut_of(round), {round % readers, readers}, kScale),
          "")
          << "round " << round << ": " << entry.path;
    }
    const auto newest = store.latest();
    ASSERT_TRUE(newest || durable == 0) << "round " << round;
    if (newest) {
      ASSERT_GE(newest->state.step, durable) << "round " << round;
    }
    EXPECT_EQ(log.warnings(), "");
  }
  std::printf(
      "%d kills of %d ranks: %d while shards were written, %d during the commit; newest checkpoint %ld, "
      "0 unreadable\n",
      rounds(), kWorld, hits[1], hits[2], static_cast<long>(durable));
  EXPECT_GT(durable, 0);
  EXPECT_GT(hits[1], 0) << "no kill hit the first phase: the test proves nothing";
  EXPECT_GT(hits[2], 0) << "no kill hit the second phase: the test proves nothing";
}

}  // namespace
}  // namespace dtrain
