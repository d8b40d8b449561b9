// What is compared when launchers meet: it changes with what matters, and with nothing else.
#include "launcher/nodes/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/support/temp_dir.h"
#include "tests/unit/launcher/parse.h"

namespace dtrain::launcher {
namespace {

std::map<std::string, std::string> values_of(const std::vector<std::string>& arguments,
                                             const std::vector<std::string>& argv, bool uses_dtrain = false,
                                             const Environment& environment = {},
                                             const std::string& version = "1.2.3") {
  Job job;
  job.options = options_of(arguments);
  job.placement = settle_placement(job.options, {}, {.hostname = "h"}, true);
  job.program = {"/nonexistent/program", argv, uses_dtrain};
  job.environment = environment;
  job.version = version;
  const auto list = must_match(job);
  return {list.begin(), list.end()};
}

const std::vector<std::string> kNode0{"--nnodes=2", "--node_rank=0", "--master_addr=h"};

TEST(Agreement, NodesMayDifferInPlaceAndNumberOfWorkers) {
  EXPECT_EQ(values_of(kNode0, {"p", "-x"}),
            values_of({"--nnodes=2", "--node_rank=1", "--master_addr=h", "--nproc_per_node=7"}, {"p", "-x"}));
  EXPECT_EQ(values_of(kNode0, {"/here/p"}), values_of(kNode0, {"/there/p"})) << "paths may differ";
}

TEST(Agreement, VersionsOfDtrainAreCompared) {
  EXPECT_NE(values_of(kNode0, {"p"}, false, {}, "1.2.3"), values_of(kNode0, {"p"}, false, {}, "1.2.4"));
}

TEST(Agreement, ArgumentsAreComparedWhole) {
  EXPECT_NE(values_of(kNode0, {"p", "a b"}), values_of(kNode0, {"p", "a", "b"}));
  const std::string common(500, 'x');
  const auto one = values_of(kNode0, {"p", common + "1"}), other = values_of(kNode0, {"p", common + "2"});
  EXPECT_EQ(one.at("the program's arguments"), other.at("the program's arguments")) << "shown in short";
  EXPECT_NE(one, other);
}

TEST(Agreement, TheConfigurationFileCountsByItsContent) {
  const test::TempDir folder;
  const std::string file = folder / "c.json";
  test::write_file(file, "1");
  const auto first = values_of(kNode0, {"p", "--config", file});
  const auto by_variable = values_of(kNode0, {"dtrain", "train"}, true, {{"DTRAIN_CONFIG", file}});
  test::write_file(file, "2");
  EXPECT_NE(values_of(kNode0, {"p", "--config", file}), first);
  EXPECT_NE(values_of(kNode0, {"dtrain", "train"}, true, {{"DTRAIN_CONFIG", file}}), by_variable);
}

TEST(Agreement, ThePublicTokenIsOneForAJobAndAToken) {
  EXPECT_EQ(public_token("job", 1), public_token("job", 1));
  EXPECT_NE(public_token("job", 1), public_token("job", 2));
  EXPECT_NO_THROW(parse_token(public_token("job", 1), "token"));
}

}  // namespace
}  // namespace dtrain::launcher
