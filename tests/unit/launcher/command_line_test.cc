// Cutting, spelling, precedence and suggestions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "tests/unit/launcher/parse.h"

namespace dtrain::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string value(const ParsedCommand& line, const std::string& name) {
  return line.options.has(name) ? line.options.text(name) : "";
}
std::string source(const ParsedCommand& line, const std::string& name) {
  return line.options.at(name).source;
}

TEST(CommandLine, TakesBothSpellingsAndBothForms) {
  for (const char* spelling : {"--nproc_per_node", "--nproc-per-node"}) {
    EXPECT_EQ(value(parse({spelling, "3", "prog"}), "nproc-per-node"), "3");
    EXPECT_EQ(value(parse({std::string(spelling) + "=3", "prog"}), "nproc-per-node"), "3");
  }
  EXPECT_EQ(value(parse({"--logdir", "x"}), "log-dir"), "x");
  EXPECT_EQ(value(parse({"--log_dir=x"}), "log-dir"), "x");
}

TEST(CommandLine, EverythingFromTheProgramOnIsTheProgrammes) {
  const ParsedCommand line =
      parse({"--nproc_per_node=2", "train.py", "-n", "5", "--nproc_per_node=9", "--", "--help"});
  EXPECT_THAT(line.rest, ElementsAre("train.py", "-n", "5", "--nproc_per_node=9", "--", "--help"));
  EXPECT_EQ(value(line, "nproc-per-node"), "2");
  EXPECT_FALSE(line.options.enabled("help"));
}

TEST(CommandLine, TwoDashesEndTheOptions) {
  EXPECT_THAT(parse({"--standalone", "--", "--odd-name", "-x"}).rest, ElementsAre("--odd-name", "-x"));
  EXPECT_THAT(parse({"--standalone", "--"}).rest, IsEmpty());
}

TEST(CommandLine, SwitchesDoNotSwallowTheProgram) {
  const ParsedCommand line = parse({"-m", "pkg.mod", "arg"});
  EXPECT_EQ(value(line, "module"), "true");
  EXPECT_THAT(line.rest, ElementsAre("pkg.mod", "arg"));
  EXPECT_EQ(value(parse({"--standalone=false", "p"}), "standalone"), "false");
}

TEST(CommandLine, ShortOptionsTakeTheirValueEitherWay) {
  EXPECT_EQ(value(parse({"-r", "3", "p"}), "redirects"), "3");
  EXPECT_EQ(value(parse({"-r3", "p"}), "redirects"), "3");
  EXPECT_EQ(value(parse({"-t=0:1,1:2", "p"}), "tee"), "0:1,1:2");
}

TEST(CommandLine, SuggestsForSlipsOnly) {
  EXPECT_THAT(complaint([] { parse({"--nproc_per_nod=2"}); }), HasSubstr("did you mean --nproc-per-node?"));
  EXPECT_THAT(complaint([] { parse({"--max_restart", "2"}); }), HasSubstr("did you mean --max-restarts?"));
  EXPECT_THAT(complaint([] { parse({"--nproc", "2"}); }), HasSubstr("did you mean --nproc-per-node?"));
  EXPECT_THAT(complaint([] { parse({"-standalone"}); }), HasSubstr("did you mean --standalone?"));
  const std::string far_off = complaint([] { parse({"--frobnicate"}); });
  EXPECT_THAT(far_off, HasSubstr("--frobnicate"));
  EXPECT_THAT(far_off, ::testing::Not(HasSubstr("did you mean")));
}

TEST(CommandLine, MissingValueIsNamed) {
  EXPECT_THAT(complaint([] { parse({"--nnodes"}); }), HasSubstr("--nnodes: expected a value"));
  EXPECT_THAT(complaint([] { parse({"-r"}); }), HasSubstr("-r: expected a value"));
}

TEST(CommandLine, FlagBeatsVariableBeatsConfigBeatsDefault) {
  test::TempDir folder;
  const std::string file = folder / "c.json";
  test::write_file(file, R"({"nproc_per_node": 4, "role": "cfg", "standalone": true})");
  const Environment environment{{"DTRAIN_NPROC_PER_NODE", "3"}};
  ParsedCommand line = parse({"--config", file, "--nproc_per_node=2", "p"}, environment);
  EXPECT_EQ(value(line, "nproc-per-node"), "2");
  EXPECT_EQ(source(line, "nproc-per-node"), "command line");
  line = parse({"--config", file, "p"}, environment);
  EXPECT_EQ(value(line, "nproc-per-node"), "3");
  EXPECT_EQ(source(line, "nproc-per-node"), "DTRAIN_NPROC_PER_NODE");
  line = parse({"p"}, {{"DTRAIN_LAUNCH_CONFIG", file}});
  EXPECT_EQ(value(line, "nproc-per-node"), "4");
  EXPECT_EQ(source(line, "nproc-per-node"), file);
  EXPECT_EQ(value(line, "standalone"), "true");
  EXPECT_EQ(source(line, "max-restarts"), "default");
}

TEST(CommandLine, TheWorkersConfigurationIsNotTheLaunchers) {
  EXPECT_FALSE(parse({"p"}, {{"DTRAIN_CONFIG", "/nonexistent"}}).options.has("config"));
}

TEST(CommandLine, HelpAndVersionComeFromTheCommandLineOnly) {
  EXPECT_FALSE(parse({"p"}, {{"DTRAIN_VERSION", "0.1.0"}, {"DTRAIN_HELP", "1"}}).options.has("version"));
}

TEST(CommandLine, FlagsWithoutMeaningAreAcceptedWithOneLine) {
  const ParsedCommand line = parse({"--monitor-interval", "1", "--rdzv_backend=c10d", "p"});
  ASSERT_EQ(line.notes.size(), 2u);
  EXPECT_THAT(line.notes[0] + line.notes[1], HasSubstr("--monitor-interval has no effect"));
  EXPECT_THAT(parse({"p"}).notes, IsEmpty());
}

TEST(CommandLine, HelpFitsEightyColumnsAndNamesEveryFlag) {
  const std::string help = asked_help(parse({"--help-all"}).options).value();
  std::size_t from = 0;
  while (from < help.size()) {
    const std::size_t to = std::min(help.find('\n', from), help.size());
    EXPECT_LE(to - from, 80u) << help.substr(from, to - from);
    from = to + 1;
  }
  for (const OptionSpec& option : launch_options())
    EXPECT_THAT(help, HasSubstr("--" + std::string(option.name)));
  const std::string brief = asked_help(parse({"--help"}).options).value();
  EXPECT_LT(std::count(brief.begin(), brief.end(), '\n'), std::count(help.begin(), help.end(), '\n') / 2);
  EXPECT_THAT(brief, AllOf(HasSubstr("--nproc-per-node"), HasSubstr("more options: --help-all"),
                           Not(HasSubstr("--rdzv-conf"))));
}

TEST(CommandLine, ConfigTextNamesEachSource) {
  const std::string text = options_table(parse({"--nnodes=1"}, {{"DTRAIN_ROLE", "w"}}).options);
  EXPECT_THAT(text, ::testing::ContainsRegex("nnodes +1 +command line"));
  EXPECT_THAT(text, ::testing::ContainsRegex("role +w +DTRAIN_ROLE"));
  EXPECT_THAT(text, ::testing::ContainsRegex("max-restarts +0 +default"));
}

}  // namespace
}  // namespace dtrain::launcher
