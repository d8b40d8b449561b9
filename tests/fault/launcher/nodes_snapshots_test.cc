// A node is killed, node 0 among them, when no disk has a checkpoint: the others resume from what they have
// in memory, at most so many steps back, with the weights of an undisturbed run. DTRAIN_FAULT_ROUNDS for
// more, DTRAIN_FAULT_SEED repeats one.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "runtime/base/fd.h"
#include "tests/fault/launcher/spared_job.h"

namespace dtrain::test {
namespace {

using std::chrono::seconds;

constexpr int kPlaces = SparedJob::kPlaces;
constexpr int kSteps = 600, kEvery = 10;
constexpr seconds kPatience{60};
constexpr char kMemory[] = "/dev/shm/dtrain-memory-";

// The last "resuming from step N, saved as FOLDER" of a text; -1: none.
int resumed_from(const std::string& text, std::string& folder) {
  const std::string words = "resuming from step ";
  const std::size_t at = text.rfind(words);
  if (at == std::string::npos) return -1;
  const std::size_t from = text.find(" saved as ", at) + 10;
  folder = text.substr(from, text.find('\n', from) - from);
  return std::stoi(text.substr(at + words.size()));
}

// Of a path inside it.
std::filesystem::path memory_folder(const std::filesystem::path& path) {
  return path.string().substr(0, path.string().find('/', sizeof kMemory));
}

class Snapshots : public ::testing::Test {
 protected:
  void finish(SparedJob& job, const std::filesystem::path& run_dir) {
    for (int place = 0; place < kPlaces; ++place)
      EXPECT_EQ(job[place].wait(seconds(300)), 0) << "place " << place << "\n" << job.errors();
    const std::size_t weights = final_weights(run_dir);
    if (!undisturbed_) undisturbed_ = weights;
    EXPECT_EQ(weights, *undisturbed_) << "other weights than without a loss";
  }

  // The steps that were done are read from a folder that stays open when it is unmounted.
  // Returns from where training resumed.
  std::string lose(SparedJob& job, int victim, const std::filesystem::path& run_dir, bool unmount) {
    const UniqueFd folder(::open(run_dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const std::string metrics = "/proc/self/fd/" + std::to_string(folder.get()) + "/metrics.jsonl";
    job.kill(victim);
    if (unmount) {
      EXPECT_EQ(::umount2(run_dir.c_str(), MNT_DETACH), 0);
    }
    std::this_thread::sleep_for(seconds(2));
    const int done = static_cast<int>(SparedJob::count(SparedJob::text_of(metrics), "\"event\":\"step\""));
    std::string folder_used;
    int from = -1;
    EXPECT_TRUE(eventually([&] { return (from = resumed_from(job.output(), folder_used)) >= 0; }, kPatience))
        << job.errors();
    std::printf("place %d killed after step %d%s: resuming from step %d, saved as %s\n", victim, done,
                unmount ? ", the disk unmounted" : "", from, folder_used.c_str());
    EXPECT_GE(from, done - kEvery) << job.output();
    // Records are written beside training: those of the last steps may have gone with the node that wrote
    // them.
    EXPECT_LE(from, done + kEvery);
    EXPECT_EQ(folder_used.find(kMemory), 0U);
    return folder_used;
  }

  std::optional<std::size_t> undisturbed_;
};

TEST_F(Snapshots, StandInForCheckpointsThatAreNotThere) {
  const int rounds = rounds_from_environment("DTRAIN_FAULT_ROUNDS", 2);
  const TempDir folder;
  write_small_dataset(folder / "data", 1000, 100);
  // The only checkpoint of the first kind of rounds is the last; the other kind loses all that it had.
  const std::string every = std::to_string(kEvery);
  {
    SparedJob job(folder / "data", folder / "undisturbed", kSteps, {"--checkpoint-every", "0"});
    finish(job, folder / "undisturbed");
  }
  const int seed =
      rounds_from_environment("DTRAIN_FAULT_SEED", static_cast<int>(std::random_device{}() >> 2));
  std::printf("seed %d, %d rounds\n", seed, rounds);
  std::mt19937 random(static_cast<unsigned>(seed));
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    const auto run_dir = folder / ("run" + std::to_string(round));
    std::filesystem::create_directory(run_dir);
    const bool unmount = round % 2 == 1 && ::mount("none", run_dir.c_str(), "tmpfs", 0, "size=64m") == 0;
    SparedJob job(folder / "data", run_dir, kSteps,
                  {"--checkpoint-every", unmount ? "7" : "0", "--peer-snapshots", every});
    ASSERT_TRUE(
        eventually([&] { return job.steps() >= 35 && job.waits_as_spare(SparedJob::kNodes); }, kPatience))
        << job.errors();
    const int victim = round == 0 ? 0 : static_cast<int>(random() % SparedJob::kNodes);
    const std::string from = lose(job, victim, run_dir, unmount);
    job.start(victim);
    finish(job, run_dir);
    EXPECT_TRUE(eventually([&] { return job.left() == 0; })) << job.errors();
    EXPECT_FALSE(std::filesystem::exists(memory_folder(from))) << "it was its launcher's to remove";
  }
}

}  // namespace
}  // namespace dtrain::test
