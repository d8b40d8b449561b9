// Names of tensors elsewhere: the most exact rule wins, and rules that mean nothing are errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"
#include "training/use/name_map.h"
#include "training/use/saved_run.h"

namespace dtrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

class Names : public testing::Test {
 protected:
  NameMap read(const std::string& text, const std::string& name = "names.txt") {
    std::ofstream(folder_ / name) << text;
    return NameMap::read(folder_ / name);
  }
  test::TempDir folder_;
};

TEST_F(Names, TheMostExactRuleWins) {
  const NameMap map = read(
      "# ours = theirs\nblock.* = layer.*\nblock.bn.* = layer.norm.*  # longer\n"
      "block.bn.bias = beta\n");
  EXPECT_THAT(map.theirs({"block.bn.bias", "block.bn.weight", "block.conv", "fc"}),
              ElementsAre(Pair("block.bn.bias", "beta"), Pair("block.bn.weight", "layer.norm.weight"),
                          Pair("block.conv", "layer.conv"), Pair("fc", "fc")));
  EXPECT_THAT(read(R"({"*": "module.*"})", "names.json").theirs({"fc"}),
              ElementsAre(Pair("fc", "module.fc")));
}

TEST_F(Names, RefusesWhatMeansNothingOrTwoThings) {
  const auto error = [&](const std::string& text) {
    return test::message_of([&] { read(text).theirs({"a.x", "b.x"}); });
  };
  EXPECT_THAT(error("c.* = d.*\n"), HasSubstr("c.* = d.*, which fits none"));
  EXPECT_THAT(error("a.* = b.*\n"), HasSubstr("b.x for a.x and b.x"));
  EXPECT_THAT(error("a.* = b\n"), HasSubstr("ours.* = theirs.*"));
  EXPECT_THAT(error("a.x\n"), HasSubstr("ours = theirs"));
  EXPECT_THAT(error("a.x = c\na.x = d\n"), HasSubstr("a.x twice"));
  EXPECT_THAT(test::message_of([&] { NameMap::read(folder_ / "none"); }), HasSubstr("there is none"));
  EXPECT_THAT(test::message_of([&] { NameMap::read(folder_.path()); }), HasSubstr("got a directory"));
}

TEST(SavedFields, ComeBackAsTheyWere) {
  const std::vector<Field> fields = {{"image", DType::f32, {3, 4, 5}, 0}, {"label", DType::i64, {}, 10}};
  EXPECT_EQ(parse_fields(fields_json(fields), "config.json"), fields);
  EXPECT_THAT(test::message_of([] { parse_fields(R"([{"name": "x"}])", "config.json"); }),
              HasSubstr("config.json"));
}

}  // namespace
}  // namespace dtrain
