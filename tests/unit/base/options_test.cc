// Layers and their order, both spellings, and the wording that tells a user what to change.
#include "runtime/base/options.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/support/temp_dir.h"

namespace dtrain {
namespace {

constexpr OptionSpec kSpecs[] = {
    {"config", "General", "FILE", "", "configuration"},
    {"global-batch-size", "Training", "N", "", "samples a step"},
    {"lr", "Training", "X", "0.1", "learning rate"},
    {"optimizer", "Training", "NAME", "sgd", "sgd or adamw"},
    {"nesterov", "Training", "", "", "Nesterov momentum"},
};

Options resolve(const std::vector<std::string>& arguments, const Environment& environment = {}) {
  return resolve_options("dtrain train", kSpecs, arguments, environment);
}

std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "not refused";
}

TEST(Options, FlagBeatsVariableBeatsFileBeatsDefault) {
  test::TempDir folder;
  const std::string file = folder / "c.json";
  test::write_file(file, R"({"lr": 0.4, "global_batch_size": 64, "nesterov": true})");
  const Environment environment = {{"DTRAIN_LR", "0.3"}, {"DTRAIN_GLOBAL_BATCH_SIZE", "32"}};
  const Options options = resolve({"--config", file, "--lr=0.2"}, environment);
  EXPECT_EQ(options.real("lr", 0, 1), 0.2);
  EXPECT_EQ(options.at("lr").source, "command line");
  EXPECT_EQ(options.integer("global-batch-size", 1, 100), 32);
  EXPECT_EQ(options.at("global-batch-size").source, "DTRAIN_GLOBAL_BATCH_SIZE");
  EXPECT_TRUE(options.enabled("nesterov"));
  EXPECT_EQ(options.at("nesterov").source, file);
  EXPECT_EQ(options.at("optimizer").source, "default");
}

TEST(Options, BothSpellingsAndBothForms) {
  EXPECT_EQ(resolve({"--global_batch_size", "8"}).integer("global-batch-size", 1, 9), 8);
  EXPECT_EQ(resolve({"--global-batch-size=8"}).integer("global-batch-size", 1, 9), 8);
  EXPECT_TRUE(resolve({"--nesterov"}).enabled("nesterov"));
  EXPECT_FALSE(resolve({"--nesterov=false"}).enabled("nesterov"));
  EXPECT_FALSE(resolve({}).has("global-batch-size"));
  EXPECT_EQ(resolve({"--lr", "1e-3"}).real("lr", 0, 1), 1e-3);
}

TEST(Options, RefusesWithAnAnswer) {
  EXPECT_EQ(refusal_of([] { resolve({"--globl-batch-size=8"}); }),
            "dtrain train: unknown option --globl-batch-size; did you mean --global-batch-size? (--help "
            "lists all)");
  EXPECT_NE(refusal_of([] { resolve({"surprise"}); }).find("got the argument 'surprise'"), std::string::npos);
  EXPECT_NE(refusal_of([] { resolve({"--lr"}); }).find("lr"), std::string::npos);
  EXPECT_EQ(refusal_of([] { resolve({"--lr=abc"}).real("lr", 0, 1); }),
            "--lr (from command line): expected a number from 0 to 1, got 'abc'");
  EXPECT_EQ(refusal_of([] { resolve({"--lr=nan"}).real("lr", 0, 1); }),
            "--lr (from command line): expected a number from 0 to 1, got 'nan'");
  EXPECT_EQ(refusal_of([] { resolve({"--global-batch-size=0"}).integer("global-batch-size", 1, INT64_MAX); }),
            "--global-batch-size (from command line): expected a whole number of at least 1, got '0'");
  EXPECT_EQ(refusal_of([] {
              resolve({"--optimizer=adam"}).choice("optimizer", {"sgd", "adamw"});
            }),
            "--optimizer (from command line): expected one of sgd, adamw, got 'adam'; did you mean adamw?");
}

TEST(Options, RefusesBrokenConfigurationFiles) {
  test::TempDir folder;
  const std::string file = folder / "c.json";
  test::write_file(file, R"({"lrr": 1})");
  EXPECT_NE(refusal_of([&] {
              resolve({"--config", file});
            }).find("unknown key \"lrr\"; did you mean lr?"),
            std::string::npos);
  test::write_file(file, R"({"lr": [1]})");
  EXPECT_NE(refusal_of([&] { resolve({"--config", file}); }).find("got [1]"), std::string::npos);
  test::write_file(file, "{\"lr\": 0.1,\n \"nesterov\" true}");
  EXPECT_EQ(refusal_of([&] {
              resolve({"--config", file});
            }),
            "--config " + file + ": expected one JSON object, got something else in line 2");
  test::write_file(file, "[1]");
  EXPECT_EQ(refusal_of([&] {
              resolve({"--config", file});
            }),
            "--config " + file + ": expected one JSON object, got array");
  EXPECT_NE(refusal_of([&] {
              resolve({"--config", "/nonexistent"});
            }).find("cannot be opened"),
            std::string::npos);
}

TEST(Options, RowsSayWhatValuesAre) {
  using namespace option_rows;
  constexpr OptionSpec kTyped[] = {
      row(whole(1, 9), Agreement::job, {"count", "", "N", "3", "how many"}),
      row(real(0, 1), Agreement::own, {"share", "", "X", "", "of all"}),
      row(one_of("auto, on, off"), Agreement::noted, {"when", "", "WHEN", "auto", "to do it"}),
      row(ascending, Agreement::job, {"at", "", "E,E,…", "", "where"}),
      row(any, Agreement::identity, {"wait", "", "SECONDS", "0.25", "how long"}),
      row(any, Agreement::job, {"quiet", "", "", "", "say less"}),
  };
  const auto given = [&](const std::vector<std::string>& arguments) {
    return resolve_options("p", kTyped, arguments, {});
  };
  const auto refused = [&](const std::string& argument) {
    return refusal_of([&] { given({argument}).check(kTyped); });
  };
  EXPECT_EQ(refused("--count=9"), "not refused");
  EXPECT_EQ(refused("--count=10"),
            "--count (from command line): expected a whole number from 1 to 9, got '10'");
  EXPECT_EQ(refused("--share=2"), "--share (from command line): expected a number from 0 to 1, got '2'");
  EXPECT_EQ(refused("--when=of"),
            "--when (from command line): expected one of auto, on, off, got 'of'; did you mean on?");
  EXPECT_EQ(refused("--at=0.5"), "not refused");
  for (const std::string at : {"30,60,60", "0,30", "30,", "30,inf", "x"}) {
    EXPECT_EQ(refused("--at=" + at),
              "--at (from command line): expected numbers above 0 in ascending order, as in 30,60,80, got '" +
                  at + "'");
  }
  EXPECT_EQ(refused("--quiet=2"), "--quiet (from command line): expected true or false, got '2'");

  const Options options = given({"--when=on", "--quiet", "--at=30,60.5"});
  int count = 0;
  std::optional<double> share;
  std::optional<std::string> when;
  std::vector<double> at;
  std::chrono::milliseconds wait{};
  bool quiet = false;
  options.read("at", at);
  options.read("count", count);
  options.read("share", share);
  options.read("when", when);
  options.read("wait", wait);
  options.read("quiet", quiet);
  EXPECT_EQ(at, (std::vector<double>{30, 60.5}));
  EXPECT_EQ(count, 3);
  EXPECT_EQ(share, std::nullopt);
  EXPECT_EQ(when, "on");
  EXPECT_EQ(wait, std::chrono::milliseconds(250));
  EXPECT_TRUE(quiet);
  EXPECT_EQ(options.at("when").agreement, Agreement::noted);
  EXPECT_EQ(options.at("wait").agreement, Agreement::identity);
}

TEST(Options, HelpIsForPeopleOrForTheDocumentation) {
  constexpr OptionSpec kTwoGroups[] = {
      {"nodes", "Where", "N|MIN:MAX", "1", "how many; <= 8"},
      {"quiet", "What", "", "", "say less", 'q'},
      {"poll", "What", "MS", "", "", 0, "", "", "nothing is polled"},
      {"help", "What", "", "", "this text"},
  };
  const auto help = [&](const std::vector<std::string>& arguments) {
    return asked_help(resolve_options("p", kTwoGroups, arguments, {}), "usage: p", kTwoGroups);
  };
  EXPECT_EQ(help({"--quiet"}), std::nullopt);
  EXPECT_EQ(help({"--help=false"}), std::nullopt);
  EXPECT_EQ(help({"--help"}), options_help("usage: p", kTwoGroups));
  EXPECT_EQ(help({"--help=markdown"}),
            "| option | default | |\n"
            "|---|---|---|\n"
            "| **Where** | | |\n"
            "| `--nodes N\\|MIN:MAX` | `1` | how many; \\<= 8 |\n"
            "| **What** | | |\n"
            "| `-q`, `--quiet` |  | say less |\n"
            "| `--poll MS` |  | no effect: nothing is polled |\n");
  EXPECT_EQ(help({"--help=words"}),
            "--nodes\t\tN|MIN:MAX\t\thow many; <= 8\n"
            "--quiet\tq\t\t\tsay less\n"
            "--help\t\t\t\tthis text\n");
  EXPECT_NE(refusal_of([&] { help({"--help=perhaps"}); }).find("true or false"), std::string::npos);
}

TEST(Options, HelpIsShortWhereThereIsALongOne) {
  constexpr OptionSpec kRows[] = {
      {"rate", "How", "X", "", "how fast"},
      {"depth", "How", "N", "", "how deep"},
      {"help", "Output", "", "", "this text"},
      {"help-all", "Output", "", "", "all of it"},
  };
  const auto help = [&](const std::vector<std::string>& arguments) {
    return asked_help(resolve_options("p", kRows, arguments, {}), "usage: p", kRows, "rate, help");
  };
  EXPECT_EQ(help({}), std::nullopt);
  EXPECT_EQ(help({"--help"}),
            "usage: p\n\nHow\n"
            "  --rate X                     how fast\n"
            "\nOutput\n"
            "  --help                       this text\n"
            "\n2 more options: --help-all\n");
  EXPECT_EQ(help({"-h"}), help({"--help"}));
  EXPECT_EQ(help({"--help-all"}), options_help("usage: p", kRows));
  EXPECT_EQ(help({"--help=words"})->find("--rate"), 0U);
}

TEST(Options, OptionsOfOtherProgramsGetAnAnswer) {
  constexpr OptionSpec kRows[] = {{"rate", "How", "X", "", "how fast"}};
  constexpr ForeignOption kForeign[] = {{"--speed-limit, -s", "it is --rate X"}};
  const auto refusal = [&](const std::string& option) {
    return refusal_of([&] { resolve_options("p", kRows, {option}, {}, kForeign); });
  };
  EXPECT_EQ(refusal("--speed_limit=3"), "p: unknown option --speed_limit: it is --rate X (--help lists all)");
  EXPECT_EQ(refusal("-s4"), "p: unknown option -s4: it is --rate X (--help lists all)");
  EXPECT_EQ(refusal("-sx").find("it is"), std::string::npos);
  EXPECT_EQ(refusal("--speed").find("it is"), std::string::npos);
}

TEST(Options, AManualPageHasNoTextThatIsARequest) {
  constexpr OptionSpec kRows[] = {
      {"max-steps", "How long", "N", "5", ".5 is refused\\", 'n'},
      {"help", "", "", "", "this text"},
  };
  const std::string page = *asked_help(
      resolve_options("p", kRows, {"--help=man"}, {}),
      "usage: dtrain data x [options]\n\nDoes a thing. And more.\n\n  an example\n'quoted'\n", kRows);
  EXPECT_EQ(page,
            ".TH DTRAIN\\-DATA\\-X 1 \"\" dtrain \"dtrain manual\"\n"
            ".SH NAME\ndtrain\\-data\\-x \\- Does a thing\n"
            ".SH SYNOPSIS\n.B dtrain data x [options]\n"
            ".SH DESCRIPTION\nDoes a thing. And more.\n.PP\n.PP\n.nf\n  an example\n.fi\n\\&'quoted'\n"
            ".SH OPTIONS\n.SS How long\n"
            ".TP\n\\fB\\-n\\fR, \\fB\\-\\-max\\-steps\\fR \\fIN\\fR\n\\&.5 is refused\\e [5]\n"
            ".TP\n\\fB\\-\\-help\\fR\nthis text\n");
}

// As a table has them that takes another's rows into its middle.
TEST(Options, AHeadingIsPrintedOnceWhateverTheOrderOfTheRows) {
  constexpr OptionSpec kMixed[] = {
      {"in", "Input", "FILE", "", "what to read"},
      {"out", "Output", "FILE", "", "what to write"},
      {"rate", "Input", "X", "", "how fast"},
      {"help", "Output", "", "", "print this text"},
  };
  EXPECT_EQ(options_help("usage: p", kMixed),
            "usage: p\n"
            "\nInput\n"
            "  --in FILE                    what to read\n"
            "  --rate X                     how fast\n"
            "\nOutput\n"
            "  --out FILE                   what to write\n"
            "  --help                       print this text\n");
  EXPECT_EQ(options_markdown(kMixed),
            "| option | default | |\n"
            "|---|---|---|\n"
            "| **Input** | | |\n"
            "| `--in FILE` |  | what to read |\n"
            "| `--rate X` |  | how fast |\n"
            "| **Output** | | |\n"
            "| `--out FILE` |  | what to write |\n");
}

}  // namespace
}  // namespace dtrain
