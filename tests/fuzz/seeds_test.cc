// Every seed of every fuzz target, one by one: inputs that once reached new code, or broke a promise, keep
// being tried where there is no clang.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/fuzz/targets.h"
#include "tests/fuzz/targets_data.h"

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

TEST(FuzzSeeds, EachKeepsItsTargetsPromises) {
  const std::map<std::string, void (*)(std::string_view)> targets = {
      {"config", fuzz::config},
      {"csv", fuzz::csv},
      {"frames", fuzz::frames},
      {"handshake", fuzz::handshake},
      {"nodelist", fuzz::nodelist},
      {"npy", fuzz::npy},
      {"rendezvous_membership", fuzz::rendezvous_membership},
      {"rendezvous_messages", fuzz::rendezvous_messages},
      {"rendezvous_session", fuzz::rendezvous_session},
      {"tasks_per_node", fuzz::tasks_per_node},
  };
  for (const auto& file : std::filesystem::directory_iterator(DTRAIN_FUZZ_SEEDS)) {
    const auto target = targets.find(file.path().stem());
    ASSERT_NE(target, targets.end()) << file.path() << " belongs to no target";
    const std::vector<std::string> seeds = seeds_of(file.path());
    EXPECT_GE(seeds.size(), 2U) << file.path();
    for (const std::string& seed : seeds) target->second(seed);  // aborts at a broken promise
  }
}

}  // namespace
}  // namespace dtrain
