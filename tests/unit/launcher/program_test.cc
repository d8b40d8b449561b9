// What PROGRAM resolves to.
#include "launcher/plan/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "tests/unit/launcher/parse.h"

namespace dtrain::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ProgramTest : public ::testing::Test {
 protected:
  ProgramTest() {
    for (const char* name : {"dtrain", "tool", "python3"}) make(name, true);
    make("train.py", false);
    make("data", false);
  }
  void make(const std::string& name, bool executable) {
    test::write_file(folder_ / name, "");
    if (executable) std::filesystem::permissions(folder_ / name, std::filesystem::perms::owner_all);
  }
  Program resolve(const std::vector<std::string>& arguments) {
    return resolve_program(options_of(arguments), {{"PATH", "/nonexistent:" + folder_.path().string()}},
                           folder_.path());
  }
  std::string path(const std::string& name) { return folder_ / name; }

  test::TempDir folder_;
};

TEST_F(ProgramTest, NothingMeansDtrainTrain) {
  const Program program = resolve({});
  EXPECT_EQ(program.path, path("dtrain"));
  EXPECT_THAT(program.argv, ElementsAre("dtrain", "train"));
  EXPECT_TRUE(program.builtin);
  EXPECT_THAT(resolve({"--", "--model", "lenet"}).argv, ElementsAre("dtrain", "train", "--model", "lenet"));
}

TEST_F(ProgramTest, DtrainIsTheOneBesideTheLauncher) {
  const Program program = resolve({"dtrain", "eval", "--x"});
  EXPECT_EQ(program.path, path("dtrain"));
  EXPECT_THAT(program.argv, ElementsAre("dtrain", "eval", "--x"));
  EXPECT_TRUE(program.builtin);
  EXPECT_TRUE(resolve({path("dtrain"), "train"}).builtin) << "the same file by its path";
  std::filesystem::remove(folder_ / "dtrain");
  EXPECT_THAT(complaint([&] { resolve({"dtrain"}); }), HasSubstr(path("dtrain")));
}

TEST_F(ProgramTest, PythonFilesAndModules) {
  Program program = resolve({path("train.py"), "-n", "1"});
  EXPECT_EQ(program.path, path("python3"));
  EXPECT_THAT(program.argv, ElementsAre("python3", "-u", path("train.py"), "-n", "1"));
  EXPECT_FALSE(program.builtin);
  EXPECT_THAT(resolve({"-m", "pkg.mod", "a"}).argv, ElementsAre("python3", "-u", "-m", "pkg.mod", "a"));
  EXPECT_THAT(complaint([&] { resolve({"missing.py"}); }), HasSubstr("missing.py"));
  EXPECT_THAT(complaint([&] { resolve({"-m"}); }), HasSubstr("--module"));
  EXPECT_THAT(complaint([&] { resolve({"--no-python", path("train.py")}); }), HasSubstr("not executable"));
}

TEST_F(ProgramTest, ExecutablesAreLookedUpInPath) {
  const Program program = resolve({"tool", "x"});
  EXPECT_EQ(program.path, path("tool"));
  EXPECT_THAT(program.argv, ElementsAre("tool", "x"));
  EXPECT_FALSE(program.builtin);
  EXPECT_THAT(complaint([&] { resolve({"nowhere"}); }), HasSubstr("'nowhere' was not found in PATH"));
  EXPECT_THAT(complaint([&] { resolve({path("nowhere")}); }), HasSubstr("there is no file"));
  EXPECT_THAT(complaint([&] { resolve({path("data")}); }), HasSubstr("not executable"));
  EXPECT_THAT(complaint([&] { resolve({folder_.path().string() + "/"}); }), HasSubstr("folder"));
  EXPECT_THAT(complaint([&] { resolve({""}); }), HasSubstr("empty"));
}

}  // namespace
}  // namespace dtrain::launcher
