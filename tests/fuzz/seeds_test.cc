// Every seed of every fuzz target, one by one: inputs that once reached new code, or broke a promise, keep
// being tried where there is no clang. Then, for a while, new neighbours of the seeds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/fuzz/targets.h"
#include "tests/fuzz/targets_data.h"
#include "tests/fuzz/targets_files.h"
#include "tests/fuzz/targets_hosts.h"
#include "tests/fuzz/targets_pictures.h"
#include "tests/fuzz/targets_server.h"
#include "tests/fuzz/targets_torch_store.h"

namespace dtrain {
namespace {

// Undoes the seeds' one escape: \x and two hexadecimal digits.
std::string unescape(const std::string& line) {
  std::string bytes;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\') {
      bytes += line[i];
      continue;
    }
    if (line.compare(i, 2, "\\x") != 0 || i + 4 > line.size())
      throw std::invalid_argument("expected \\x and two hexadecimal digits, got " + line.substr(i, 4));
    bytes += static_cast<char>(std::stoi(line.substr(i + 2, 2), nullptr, 16));
    i += 3;
  }
  return bytes;
}

std::vector<std::string> seeds_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::vector<std::string> seeds;
  for (std::string line; std::getline(in, line);) seeds.push_back(unescape(line));
  return seeds;
}

TEST(FuzzSeeds, AreUnescaped) {
  EXPECT_EQ(unescape("a\\x00\\xff\\x5cb "), std::string("a\0\xff\\b ", 6));
  EXPECT_THROW(unescape("\\x1"), std::invalid_argument);
  EXPECT_THROW(unescape("\\n12"), std::invalid_argument);
}

using Target = void (*)(std::string_view);

const std::map<std::string, Target>& targets() {
  static const std::map<std::string, Target> all = {
      {"config", fuzz::config},
      {"csv", fuzz::csv},
      {"frames", fuzz::frames},
      {"handshake", fuzz::handshake},
      {"hosts", fuzz::hosts},
      {"idx", fuzz::idx},
      {"nodelist", fuzz::nodelist},
      {"npy", fuzz::npy},
      {"npz", fuzz::npz},
      {"picture", fuzz::picture},
      {"rendezvous_membership", fuzz::rendezvous_membership},
      {"rendezvous_messages", fuzz::rendezvous_messages},
      {"rendezvous_session", fuzz::rendezvous_session},
      {"report", fuzz::report},
      {"safetensors", fuzz::safetensors},
      {"server_messages", fuzz::server_messages},
      {"server_table", fuzz::server_table},
      {"shard_index", fuzz::shard_index},
      {"state", fuzz::state},
      {"store_messages", fuzz::store_messages},
      {"tar", fuzz::tar},
      {"tasks_per_node", fuzz::tasks_per_node},
      {"torch_store", fuzz::torch_store},
      {"wds_index", fuzz::wds_index},
  };
  return all;
}

std::vector<std::filesystem::path> seed_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& file : std::filesystem::directory_iterator(DTRAIN_FUZZ_SEEDS))
    files.push_back(file.path());
  std::sort(files.begin(), files.end());
  return files;
}

/// `seed` with a few bytes changed, cut out, or taken from elsewhere in it.
std::string mutated(std::string seed, std::mt19937& random) {
  for (std::uint32_t changes = 1 + random() % 4; changes > 0 && !seed.empty(); --changes) {
    const std::size_t at = random() % seed.size(), other = random() % seed.size();
    switch (random() % 5) {
      case 0:
        seed[at] = static_cast<char>(random());
        break;
      case 1:
        seed[at] = static_cast<char>(seed[at] ^ (1 << random() % 8));
        break;
      case 2:
        seed.erase(at, 1 + random() % 8);
        break;
      case 3:
        seed.insert(at, seed.substr(other, 1 + random() % 16));
        break;
      default:
        seed.resize(at);
    }
  }
  return seed;
}

TEST(FuzzSeeds, EachKeepsItsTargetsPromises) {
  for (const auto& file : seed_files()) {
    const auto target = targets().find(file.stem());
    ASSERT_NE(target, targets().end()) << file << " belongs to no target";
    const std::vector<std::string> seeds = seeds_of(file);
    EXPECT_GE(seeds.size(), 2U) << file;
    for (const std::string& seed : seeds) target->second(seed);  // aborts at a broken promise
  }
}

// What a fuzzer would try first, for where there is none; the same inputs each time.
TEST(FuzzSeeds, SoDoTheirNeighbours) {
  std::mt19937 random(20);
  for (const auto& file : seed_files()) {
    const std::vector<std::string> seeds = seeds_of(file);
    for (int i = 0; i < 1500; ++i) targets().at(file.stem())(mutated(seeds[random() % seeds.size()], random));
  }
}

// Files and frames from outside, other neighbours each time: 5 seconds a target, or DTRAIN_FUZZ_SECONDS.
// DTRAIN_FAULT_SEED draws those of an earlier run.
class FuzzForAWhile : public testing::TestWithParam<std::string> {};

TEST_P(FuzzForAWhile, BreaksNoPromise) {
  const char* const given = std::getenv("DTRAIN_FAULT_SEED");
  const auto seed = given != nullptr ? static_cast<std::uint32_t>(std::strtoul(given, nullptr, 10))
                                     : std::random_device()();
  const char* const seconds = std::getenv("DTRAIN_FUZZ_SECONDS");
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::seconds(seconds != nullptr ? std::strtol(seconds, nullptr, 10) : 5);
  std::printf("%s: seed %u\n", GetParam().c_str(), seed);
  std::fflush(stdout);  // a broken promise aborts
  std::mt19937 random(seed);
  const std::vector<std::string> seeds =
      seeds_of(std::filesystem::path(DTRAIN_FUZZ_SEEDS) / (GetParam() + ".txt"));
  std::int64_t runs = 0;
  for (; std::chrono::steady_clock::now() < end; ++runs)
    targets().at(GetParam())(mutated(seeds[random() % seeds.size()], random));
  std::printf("%s: %lld inputs\n", GetParam().c_str(), static_cast<long long>(runs));
  EXPECT_GT(runs, 0);
}

INSTANTIATE_TEST_SUITE_P(Each, FuzzForAWhile,
                         testing::Values("csv", "idx", "frames", "npy", "npz", "picture", "report",
                                         "safetensors", "state", "tar", "torch_store", "wds_index"),
                         [](const auto& target) { return target.param; });

}  // namespace
}  // namespace dtrain
