// What PROGRAM resolves to.
#include "launcher/plan/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/detect/program_note.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/launcher/parse.h"

DTRAIN_PROGRAM_NOTE()

namespace dtrain::launcher {
namespace {

using ::testing::AllOf;
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
  EXPECT_TRUE(program.uses_dtrain);
  EXPECT_THAT(resolve({"--", "--model", "lenet"}).argv, ElementsAre("dtrain", "train", "--model", "lenet"));
}

TEST_F(ProgramTest, DtrainIsTheOneBesideTheLauncher) {
  const Program program = resolve({"dtrain", "eval", "--x"});
  EXPECT_EQ(program.path, path("dtrain"));
  EXPECT_THAT(program.argv, ElementsAre("dtrain", "eval", "--x"));
  EXPECT_TRUE(program.uses_dtrain);
  EXPECT_TRUE(resolve({path("dtrain"), "train"}).uses_dtrain) << "the same file by its path";
  std::filesystem::remove(folder_ / "dtrain");
  EXPECT_THAT(complaint([&] { resolve({"dtrain"}); }), HasSubstr(path("dtrain")));
}

// This test is such a program itself.
TEST_F(ProgramTest, AProgramMadeWithTheLibraryIsKnownByItsNote) {
  EXPECT_TRUE(resolve({"/proc/self/exe"}).uses_dtrain);
  EXPECT_FALSE(resolve({"/bin/sh"}).uses_dtrain);
  std::string content = test::read_file("/proc/self/exe");
  for (const std::size_t size : {std::size_t{0}, std::size_t{3}, std::size_t{64}, std::size_t{100}}) {
    test::write_file(folder_ / "tool", content.substr(0, size));
    EXPECT_FALSE(resolve({"tool"}).uses_dtrain) << size << " bytes of a program";
  }
  const std::size_t note = content.find(std::string("\7\0\0\0\4\0\0\0\1\0\0\0dtrain", 18));
  ASSERT_NE(note, std::string::npos);
  content[note + 20] = 99;
  test::write_file(folder_ / "tool", content);
  EXPECT_FALSE(resolve({"tool"}).uses_dtrain) << "of another version";
}

TEST_F(ProgramTest, PythonFilesAndModules) {
  Program program = resolve({path("train.py"), "-n", "1"});
  EXPECT_EQ(program.path, path("python3"));
  EXPECT_THAT(program.argv, ElementsAre("python3", "-u", path("train.py"), "-n", "1"));
  EXPECT_FALSE(program.uses_dtrain);
  EXPECT_THAT(resolve({"-m", "pkg.mod", "a"}).argv, ElementsAre("python3", "-u", "-m", "pkg.mod", "a"));
  EXPECT_THAT(complaint([&] { resolve({"missing.py"}); }), HasSubstr("missing.py"));
  EXPECT_THAT(complaint([&] { resolve({"-m"}); }), HasSubstr("--module"));
  EXPECT_THAT(complaint([&] { resolve({"--no-python", path("train.py")}); }), HasSubstr("not executable"));
}

TEST_F(ProgramTest, RunPathIsPythonWhateverTheName) {
  EXPECT_THAT(resolve({"--run-path", path("data"), "-n"}).argv,
              ElementsAre("python3", "-u", path("data"), "-n"));
  EXPECT_EQ(resolve({"--run-path", "--no-python", path("train.py")}).path, path("python3"));
  EXPECT_THAT(complaint([&] { resolve({"--run-path"}); }), HasSubstr("--run-path"));
  EXPECT_THAT(complaint([&] { resolve({"--run-path", "-m", "mod"}); }), HasSubstr("exclude"));
}

TEST_F(ProgramTest, AScriptsInterpreterIsNamedBeforeItIsStarted) {
  const auto complain_about = [&](const std::string& first_line) {
    test::write_file(folder_ / "tool", first_line + "\necho\n");
    return complaint([&] { resolve({"tool"}); });
  };
  for (const char* line : {"#!/bin/sh\r", "#! /bin/sh -e\r", "#!/usr/bin/env bash\r"})
    EXPECT_THAT(complain_about(line), AllOf(HasSubstr("carriage return"), HasSubstr("sed -i 's/\\r$//'")));
  EXPECT_THAT(complain_about("#!/usr/bin/env bash\r"), HasSubstr("'/usr/bin/env'"));
  EXPECT_THAT(complain_about("#!/no/such/interpreter -x"),
              AllOf(HasSubstr("'/no/such/interpreter'"), HasSubstr("No such file")));
  for (const char* line : {"#!/bin/sh", "#!  /bin/sh -e", "#!/usr/bin/env no-such-word", "#!", "echo \r"})
    EXPECT_EQ(complain_about(line), "") << line;
}

TEST_F(ProgramTest, ExecutablesAreLookedUpInPath) {
  const Program program = resolve({"tool", "x"});
  EXPECT_EQ(program.path, path("tool"));
  EXPECT_THAT(program.argv, ElementsAre("tool", "x"));
  EXPECT_FALSE(program.uses_dtrain);
  EXPECT_THAT(complaint([&] { resolve({"nowhere"}); }), HasSubstr("'nowhere' was not found in PATH"));
  EXPECT_THAT(complaint([&] { resolve({path("nowhere")}); }), HasSubstr("there is no file"));
  EXPECT_THAT(complaint([&] { resolve({path("data")}); }), HasSubstr("not executable"));
  EXPECT_THAT(complaint([&] { resolve({folder_.path().string() + "/"}); }), HasSubstr("folder"));
  EXPECT_THAT(complaint([&] { resolve({""}); }), HasSubstr("empty"));
}

}  // namespace
}  // namespace dtrain::launcher
