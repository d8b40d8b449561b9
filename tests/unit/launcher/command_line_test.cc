// Cutting, spelling, precedence and suggestions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/flags.h"
#include "tests/unit/launcher/parse.h"

namespace dtrain::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string value(const CommandLine& line, const std::string& name) { return line.settings.at(name).value; }
std::string source(const CommandLine& line, const std::string& name) { return line.settings.at(name).source; }

TEST(CommandLine, TakesBothSpellingsAndBothForms) {
  for (const char* spelling : {"--nproc_per_node", "--nproc-per-node"}) {
    EXPECT_EQ(value(parse({spelling, "3", "prog"}), "nproc-per-node"), "3");
    EXPECT_EQ(value(parse({std::string(spelling) + "=3", "prog"}), "nproc-per-node"), "3");
  }
  EXPECT_EQ(value(parse({"--logdir", "x"}), "log-dir"), "x");
  EXPECT_EQ(value(parse({"--log_dir=x"}), "log-dir"), "x");
}

TEST(CommandLine, EverythingFromTheProgramOnIsTheProgrammes) {
  const CommandLine line =
      parse({"--nproc_per_node=2", "train.py", "-n", "5", "--nproc_per_node=9", "--", "--help"});
  EXPECT_THAT(line.program, ElementsAre("train.py", "-n", "5", "--nproc_per_node=9", "--", "--help"));
  EXPECT_EQ(value(line, "nproc-per-node"), "2");
  EXPECT_EQ(value(line, "help"), "false");
}

TEST(CommandLine, TwoDashesEndTheOptions) {
  EXPECT_THAT(parse({"--standalone", "--", "--odd-name", "-x"}).program, ElementsAre("--odd-name", "-x"));
  EXPECT_THAT(parse({"--standalone", "--"}).program, IsEmpty());
}

TEST(CommandLine, SwitchesDoNotSwallowTheProgram) {
  const CommandLine line = parse({"-m", "pkg.mod", "arg"});
  EXPECT_EQ(value(line, "module"), "true");
  EXPECT_THAT(line.program, ElementsAre("pkg.mod", "arg"));
  EXPECT_EQ(value(parse({"--standalone=false", "p"}), "standalone"), "false");
}

TEST(CommandLine, ShortOptionsTakeTheirValueEitherWay) {
  EXPECT_EQ(value(parse({"-r", "3", "p"}), "redirects"), "3");
  EXPECT_EQ(value(parse({"-r3", "p"}), "redirects"), "3");
  EXPECT_EQ(value(parse({"-t=0:1,1:2", "p"}), "tee"), "0:1,1:2");
}

TEST(CommandLine, SuggestsForSlipsOnly) {
  EXPECT_THAT(complaint([] { parse({"--nproc_per_nod=2"}); }), HasSubstr("did you mean '--nproc-per-node'"));
  EXPECT_THAT(complaint([] { parse({"--max_restart", "2"}); }), HasSubstr("did you mean '--max-restarts'"));
  EXPECT_THAT(complaint([] { parse({"--nproc", "2"}); }), HasSubstr("did you mean '--nproc-per-node'"));
  EXPECT_THAT(complaint([] { parse({"-standalone"}); }), HasSubstr("did you mean '--standalone'"));
  const std::string far_off = complaint([] { parse({"--frobnicate"}); });
  EXPECT_THAT(far_off, HasSubstr("'--frobnicate'"));
  EXPECT_THAT(far_off, ::testing::Not(HasSubstr("did you mean")));
}

TEST(CommandLine, MissingValueIsNamed) {
  EXPECT_THAT(complaint([] { parse({"--nnodes"}); }), HasSubstr("--nnodes: expected a value"));
  EXPECT_THAT(complaint([] { parse({"-r"}); }), HasSubstr("-r: expected a value"));
}

TEST(CommandLine, FlagBeatsVariableBeatsConfigBeatsDefault) {
  const auto read = [](const std::string&) {
    return std::string(R"({"nproc_per_node": 4, "role": "cfg", "standalone": true})");
  };
  const Environment environment{{"DTRAIN_NPROC_PER_NODE", "3"}};
  CommandLine line = parse_command_line({"--config=c.json", "--nproc_per_node=2", "p"}, environment, read);
  EXPECT_EQ(value(line, "nproc-per-node"), "2");
  EXPECT_EQ(source(line, "nproc-per-node"), "flag");
  line = parse_command_line({"--config=c.json", "p"}, environment, read);
  EXPECT_EQ(value(line, "nproc-per-node"), "3");
  EXPECT_EQ(source(line, "nproc-per-node"), "DTRAIN_NPROC_PER_NODE");
  line = parse_command_line({"p"}, {{"DTRAIN_CONFIG", "c.json"}}, read);
  EXPECT_EQ(value(line, "nproc-per-node"), "4");
  EXPECT_EQ(source(line, "nproc-per-node"), "config c.json");
  EXPECT_EQ(value(line, "standalone"), "true");
  EXPECT_EQ(source(line, "nnodes"), "default");
}

TEST(CommandLine, HelpAndVersionComeFromTheCommandLineOnly) {
  EXPECT_EQ(value(parse({"p"}, {{"DTRAIN_VERSION", "0.1.0"}, {"DTRAIN_HELP", "1"}}), "version"), "false");
}

TEST(CommandLine, BadConfigIsRefused) {
  const auto with = [](const std::string& text) {
    return [text] { parse_command_line({"--config=c.json"}, {}, [&](const std::string&) { return text; }); };
  };
  EXPECT_THAT(complaint(with(R"({"nprocs_per_node": 2})")), HasSubstr("did you mean '--nproc-per-node'"));
  EXPECT_THAT(complaint(with(R"({"nnodes": [1]})")), HasSubstr("nnodes"));
  EXPECT_THROW(with("[1]")(), DataError);
  EXPECT_THROW(with("{")(), DataError);
}

TEST(CommandLine, FlagsWithoutMeaningAreAcceptedWithOneLine) {
  const CommandLine line = parse({"--monitor-interval", "1", "--rdzv_backend=c10d", "p"});
  ASSERT_EQ(line.notes.size(), 2u);
  EXPECT_THAT(line.notes[0] + line.notes[1], HasSubstr("--monitor-interval has no effect"));
  EXPECT_THAT(parse({"p"}).notes, IsEmpty());
}

TEST(CommandLine, HelpFitsEightyColumnsAndNamesEveryFlag) {
  const std::string help = help_text();
  std::size_t from = 0;
  while (from < help.size()) {
    const std::size_t to = std::min(help.find('\n', from), help.size());
    EXPECT_LE(to - from, 80u) << help.substr(from, to - from);
    from = to + 1;
  }
  for (const Flag& flag : all_flags()) EXPECT_THAT(help, HasSubstr("--" + std::string(flag.name)));
}

TEST(CommandLine, ConfigTextNamesEachSource) {
  const std::string text = config_text(parse({"--nnodes=1"}, {{"DTRAIN_ROLE", "w"}}));
  EXPECT_THAT(text, ::testing::ContainsRegex("nnodes +1 +flag"));
  EXPECT_THAT(text, ::testing::ContainsRegex("role +w +DTRAIN_ROLE"));
  EXPECT_THAT(text, ::testing::ContainsRegex("max-restarts +0 +default"));
}

}  // namespace
}  // namespace dtrain::launcher
