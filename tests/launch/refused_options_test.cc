// Options that do not go together are refused by name before anything is trained (refused_options.txt).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launch/stories.h"
#include "tests/support/temp_dir.h"

namespace dtrain::test {
namespace {

class RefusedOptions : public testing::TestWithParam<Story> {};

TEST_P(RefusedOptions, AreNamed) {
  const TempDir folder;
  write_file(folder / "book.txt", learnable_text());
  for (const Row& row : GetParam().rows) {
    const std::size_t arrow = row.text.find(" => ");
    ASSERT_NE(arrow, std::string::npos) << row.text;
    const TrainingRun run = GetParam().training(
        std::stoi(row.name), GetParam().words(row.text.substr(0, arrow)), folder / "refused");
    const RunResult result = train(run);
    EXPECT_NE(result.exit_code, 0) << row.text;
    EXPECT_THAT(result.err, testing::HasSubstr(row.text.substr(arrow + 4))) << row.text;
    EXPECT_FALSE(std::filesystem::exists(run.run_dir / "checkpoints"))
        << row.text << ": something was trained";
  }
}

INSTANTIATE_TEST_SUITE_P(, RefusedOptions, testing::ValuesIn(stories_in(DTRAIN_STORIES)),
                         [](const auto& story) { return name_of_story(story.param); });

}  // namespace
}  // namespace dtrain::test
