// What is done with a run when it is trained: predict, export, convert and a start from other weights, for
// built-in networks and for a program of somebody's own; and what is refused, with nothing written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/support/json.h"
#include "tests/support/temp_dir.h"
#include "tests/support/training.h"
#include "tests/unit/data/npy_files.h"

namespace dtrain::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string content(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void write(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<double> numbers_of(const std::string& line) {
  std::vector<double> numbers;
  std::istringstream in(line);
  for (std::string cell; std::getline(in, cell, ',');) numbers.push_back(std::stod(cell));
  return numbers;
}

class Use : public testing::Test {
 protected:
  /// Trains `model` a few steps into folder_/name.
  void trained(const std::string& name, std::vector<std::string> arguments) {
    const RunResult result = train({.start = Start::alone,
                                    .launcher_arguments = {},
                                    .arguments = std::move(arguments),
                                    .run_dir = folder_ / name,
                                    .options = limited_to(std::chrono::seconds(60))});
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  void trained_lenet(const std::string& name, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"--dataset",           "synthetic:1x28x28,10,64",
                                          "--max-steps",         "2",
                                          "--global-batch-size", "16",
                                          "--eval-every",        "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    trained(name, arguments);
  }
  RunResult use(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), program("dtrain"));
    return run(arguments, limited_to(std::chrono::seconds(60)));
  }
  std::string at(const std::string& name) { return folder_ / name; }
  /// Refused by `code`, in one line that has `text`; nothing is at `output`.
  void expect_refused(const RunResult& result, int code, const std::string& text, const std::string& output) {
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(text));
    EXPECT_EQ(lines_of(result.err).size(), 1U) << result.err;
    EXPECT_FALSE(fs::exists(output)) << output;
    for (const auto& entry : fs::directory_iterator(fs::path(at("")))) {
      EXPECT_THAT(entry.path().filename().string(), testing::Not(HasSubstr("draft")));
    }
  }

  TempDir folder_;
};

/// `count` images of bytes, as .npy and as IDX.
std::string npy_images(int count) {
  std::vector<std::uint8_t> pixels;
  for (int i = 0; i < count * 784; ++i) pixels.push_back(static_cast<std::uint8_t>(i * 37 % 251));
  std::string shape = "(";
  shape += std::to_string(count);
  shape += ", 1, 28, 28)";
  return npy_bytes("|u1", shape, pixels);
}
std::string idx_images(int count) {
  std::string bytes("\0\0\x08\x03\0\0\0", 7);
  bytes += static_cast<char>(count);
  bytes += std::string("\0\0\0\x1c\0\0\0\x1c", 8);
  for (int i = 0; i < count * 784; ++i) bytes += static_cast<char>(i * 37 % 251);
  return bytes;
}

TEST_F(Use, PredictsTheSameFromEveryKindOfFileAndBatch) {
  trained_lenet("run");
  write(at("x.npy"), npy_images(5));
  write(at("x-idx3-ubyte"), idx_images(5));
  const RunResult table = use({"predict", at("run"), "--input", at("x.npy")});
  ASSERT_EQ(table.exit_code, 0) << table.err;
  const std::vector<std::string> lines = lines_of(table.out);
  ASSERT_EQ(lines.size(), 6U) << table.out;
  EXPECT_EQ(lines[0], "class,p0,p1,p2,p3,p4,p5,p6,p7,p8,p9");
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const std::vector<double> numbers = numbers_of(lines[i]);
    ASSERT_EQ(numbers.size(), 11U);
    double sum = 0;
    for (std::size_t c = 1; c < 11; ++c) {
      sum += numbers[c];
      EXPECT_LE(numbers[c], numbers[1 + static_cast<std::size_t>(numbers[0])]);
    }
    EXPECT_NEAR(sum, 1, 1e-5);
  }
  const RunResult idx = use({"predict", at("run"), "--input", at("x-idx3-ubyte")});
  EXPECT_EQ(idx.out, table.out) << idx.err;
  std::filesystem::copy_file(at("x.npy"), at("image=x.npy"));
  EXPECT_EQ(use({"predict", at("run"), "--input", at("image=x.npy")}).out, table.out) << "a path";
  for (const char* batch : {"1", "256"}) {
    const std::string file = at(std::string("y") + batch + ".npy");
    const RunResult result =
        use({"predict", at("run"), "--input", at("x.npy"), "--output", file, "--batch-size", batch});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(content(file), HasSubstr("'shape': (5, 10,)"));
    EXPECT_EQ(content(file).size() % 64, 5U * 10 * 4 % 64);
  }
}

TEST_F(Use, PredictsNumbersFromATableByItsColumns) {
  std::string table = "price,size,rooms\n";
  for (int i = 0; i < 40; ++i)
    table += std::to_string(3 * i) + "," + std::to_string(i) + "," + std::to_string(i % 4) + "\n";
  write(at("houses.csv"), table);
  trained("run", {"--model", "linear", "--task", "regression", "--dataset",
                  "csv:houses.csv,target=price,split=0.8", "--data-dir", at(""), "--max-steps", "3", "--lr",
                  "0.0001", "--global-batch-size", "8", "--eval-every", "0"});
  write(at("new.csv"), "note,rooms,size\nbig,2,100\nsmall,1,10\n");
  const RunResult result = use({"predict", at("run"), "--input", at("new.csv"), "--output", at("out.csv")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<std::string> lines = lines_of(content(at("out.csv")));
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0], "price");
  EXPECT_GT(std::abs(std::stod(lines[1])), std::abs(std::stod(lines[2])));  // sizes by name, not by place
  write(at("bad.csv"), "note,rooms\nbig,2\n");
  expect_refused(use({"predict", at("run"), "--input", at("bad.csv"), "--output", at("none.csv")}), 5,
                 "expected a column size", at("none.csv"));
}

TEST_F(Use, PredictsFromATableOfTextsInItsOwnUnitsAndWords) {
  std::string table = ",colour,mass;g,kind\n";
  for (int i = 0; i < 60; ++i) {
    const bool heavy = i % 3 == 0;
    table += std::to_string(i) + (i % 2 == 0 ? ",red," : ",blue,") +
             std::to_string(heavy ? 9000 + i : 1000 - i) + (heavy ? ",whale\n" : ",cat\n");
  }
  write(at("animals.csv"), table);
  trained("run", {"--model", "linear", "--dataset", "csv:animals.csv,label=kind,split=0.8,scale=standard",
                  "--data-dir", at(""), "--epochs", "20", "--lr", "0.5", "--global-batch-size", "8"});
  write(at("new.csv"), "mass;g,colour\n9100,blue\n900,red\n");
  const RunResult result = use({"predict", at("run"), "--input", at("new.csv"), "--output", at("out.csv")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<std::string> lines = lines_of(content(at("out.csv")));
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0], "class,cat,whale");
  EXPECT_TRUE(lines[1].starts_with("whale,")) << lines[1];
  EXPECT_TRUE(lines[2].starts_with("cat,")) << lines[2];
  write(at("new.csv"), "mass;g,colour\n9100,green\n");
  expect_refused(use({"predict", at("run"), "--input", at("new.csv"), "--output", at("none.csv")}), 5,
                 "one of blue, red in row 1 (line 2), column colour", at("none.csv"));
  const RunResult exported = use({"export", at("run"), at("animals.onnx")});
  EXPECT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_THAT(content(at("animals.onnx")), HasSubstr("scale.deviation"));
}

TEST_F(Use, MissingValuesAreTheMeanThatTheRunBeganWith) {
  std::string table = "size,rooms,price\n";
  for (int i = 0; i < 40; ++i)
    table += (i % 5 == 0 ? "" : std::to_string(i)) + "," + std::to_string(i % 4) + "," +
             std::to_string(3 * i) + "\n";
  write(at("houses.csv"), table);
  const std::vector<std::string> options = {"--model",
                                            "mlp",
                                            "--task",
                                            "regression",
                                            "--dataset",
                                            "csv:houses.csv,target=price,split=0.8,missing=mean",
                                            "--data-dir",
                                            at(""),
                                            "--lr",
                                            "0.00001",
                                            "--global-batch-size",
                                            "8"};
  const auto train = [&](const char* steps) {
    std::vector<std::string> all = options;
    all.insert(all.end(), {"--max-steps", steps});
    trained("run", all);
  };
  train("3");
  const auto answers = [&](const std::string& rows) {
    write(at("new.csv"), "size,rooms\n" + rows);
    const RunResult result =
        use({"predict", at("run"), "--input", at("new.csv"), "--output", at("out.csv"), "--overwrite"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return lines_of(content(at("out.csv")));
  };
  const double filled = Json::read(at("run/config.json")).at("fields").at(0).at("fill").at(0);
  const std::string mean = std::to_string(filled);
  const auto expect_mean = [&] {
    const auto lines = answers(",2\n" + mean + ",2\n90,2\n");
    ASSERT_EQ(lines.size(), 4U);
    EXPECT_NEAR(std::stod(lines[1]), std::stod(lines[2]), 1e-4);
    EXPECT_GT(std::abs(std::stod(lines[1]) - std::stod(lines[3])), 1e-2);
  };
  expect_mean();
  // Rows that come later, of another size, move no mean of a run that is there.
  for (int i = 0; i < 40; ++i) table += "90,1,1\n";
  write(at("houses.csv"), table);
  train("5");
  expect_mean();
  const RunResult evaluated = use({"eval", at("run"), "--data-dir", at("")});
  EXPECT_EQ(evaluated.exit_code, 0) << evaluated.err;
  const RunResult exported = use({"export", at("run"), at("houses.onnx")});
  EXPECT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_THAT(content(at("houses.onnx")), HasSubstr("fill.fill"));
}

TEST_F(Use, ShowsANetworkOfARunOrOfOptions) {
  trained_lenet("run");
  const RunResult of_run = use({"show", at("run"), "--parameters"});
  ASSERT_EQ(of_run.exit_code, 0) << of_run.err;
  EXPECT_THAT(of_run.out, HasSubstr("(conv1): Conv2d("));
  EXPECT_THAT(of_run.out, HasSubstr("  conv1.weight  float32 [20, 1, "));
  const RunResult of_options = use({"show", "--model", "lenet", "--dataset", "synthetic:1x28x28,10,64"});
  ASSERT_EQ(of_options.exit_code, 0) << of_options.err;
  EXPECT_THAT(of_options.out, testing::Not(HasSubstr("conv1.weight")));
  EXPECT_THAT(of_options.out, HasSubstr(" parameters, 0."));
  EXPECT_THAT(of_options.out, HasSubstr("samples: image float32 [1, 28, 28], label int64 []\n"));
  EXPECT_TRUE(of_run.out.starts_with(of_options.out.substr(0, of_options.out.find("\n\n"))));
  EXPECT_EQ(use({"show", at("none")}).exit_code, 2);
  EXPECT_EQ(use({"show", "--model", "lnet"}).exit_code, 2);
}

// Of 60 samples 6 are of class 1. Where class 1 counts nine times, one of 4 workers has none or all of them.
TEST_F(Use, ClassWeightsAreTheMeanOverAllWorkers) {
  std::string table = "a,b,k\n";
  for (int i = 0; i < 60; ++i)
    table += std::to_string(i % 7) + "," + std::to_string(i % 5) + "," + (i % 10 == 3 ? "1" : "0") + "\n";
  write(at("rare.csv"), table);
  const auto loss_of = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {
        "--model",     "linear", "--dataset",           "csv:rare.csv,label=k,split=0.8",
        "--data-dir",  at(""),   "--max-steps",         "6",
        "--lr",        "0.1",    "--global-batch-size", "16",
        "--log-every", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    trained(name, arguments);
    std::vector<double> losses;
    for (const std::string& line : lines_of(content(at(name + "/metrics.jsonl")))) {
      const Json record = Json::parse(line);
      if (record.contains("loss") && !record.contains("test_loss") && record.contains("lr"))
        losses.push_back(record.at("loss").get<double>());
    }
    return losses;
  };
  const auto plain = loss_of("plain", {}), even = loss_of("even", {"--class-weights", "2,2"}),
             alone = loss_of("alone", {"--class-weights", "1,9"}),
             shared = loss_of("shared", {"--class-weights", "1,9", "--thread-workers", "4"}),
             smooth = loss_of("smooth", {"--class-weights", "1,9", "--label-smoothing", "0.2"}),
             smooth_shared = loss_of("smooth-shared", {"--class-weights", "1,9", "--label-smoothing", "0.2",
                                                       "--thread-workers", "4"});
  ASSERT_EQ(plain.size(), 6U);
  ASSERT_EQ(shared.size(), 6U);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_NEAR(even[i], plain[i], 1e-5);
    EXPECT_NEAR(shared[i], alone[i], 1e-5);
    EXPECT_NEAR(smooth_shared[i], smooth[i], 1e-5);
    EXPECT_GT(std::abs(smooth[i] - alone[i]), 1e-3);
    EXPECT_GT(std::abs(alone[i] - plain[i]), 1e-3);
  }
  const RunResult few =
      train({.start = Start::alone,
             .launcher_arguments = {},
             .arguments = {"--model", "linear", "--dataset", "csv:rare.csv,label=k,split=0.8", "--data-dir",
                           at(""), "--class-weights", "1,2,3"},
             .run_dir = at("few"),
             .options = limited_to(std::chrono::seconds(60))});
  EXPECT_EQ(few.exit_code, 2);
  EXPECT_THAT(few.err, HasSubstr("a weight for each of 2 classes, got 3"));
}

std::string houses(bool turned) {
  std::string table = turned ? "rooms,size,price\n" : "size,rooms,price\n";
  for (int i = 0; i < 40; ++i) {
    const std::string size = std::to_string(i), rooms = std::to_string(i % 4);
    table += (turned ? rooms + "," + size : size + "," + rooms) + "," + std::to_string(3 * i) + "\n";
  }
  return table;
}

TEST_F(Use, ColumnsAreFoundByNameWhateverBecameOfTheTrainingFile) {
  write(at("houses.csv"), houses(false));
  trained("run",
          {"--model", "linear", "--task", "regression", "--dataset", "csv:houses.csv,target=price,split=0.8",
           "--data-dir", at(""), "--max-steps", "3", "--lr", "0.0001", "--global-batch-size", "8"});
  const auto predict = [&](const std::string& input, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"predict", at("run"), "--input", at(input)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return use(arguments);
  };
  write(at("straight.csv"), "size,rooms\n100,2\n10,1\n");
  write(at("turned.csv"), "rooms,size\n2,100\n1,10\n");
  const std::string expected = predict("straight.csv").out;
  EXPECT_EQ(lines_of(expected).size(), 3U) << expected;
  EXPECT_EQ(predict("turned.csv").out, expected);

  // The training file has other columns now, or is gone.
  write(at("houses.csv"), houses(true));
  EXPECT_EQ(predict("straight.csv").out, expected);
  const RunResult turned = use({"eval", "--checkpoint", at("run"), "--data-dir", at("")});
  EXPECT_EQ(turned.exit_code, 2) << turned.out;
  EXPECT_THAT(turned.err, HasSubstr("expected samples of x float32 [2] (size, rooms)"));
  fs::remove(at("houses.csv"));
  EXPECT_EQ(predict("straight.csv").out, expected);
  EXPECT_EQ(predict("turned.csv").out, expected);
  write(at("bare.csv"), "100,2\n10,1\n");
  expect_refused(predict("bare.csv"), 5, "a column size in the header", at("none"));

  // A run that did not note them: what cannot be known is not guessed.
  std::string config = content(at("run/config.json"));
  for (std::size_t from = 0; (from = config.find("\"columns\"", from)) != std::string::npos;)
    config.replace(from, 9, "\"forgotten\"");
  write(at("run/config.json"), config);
  expect_refused(predict("turned.csv"), 5, "houses.csv: expected the table that the run was trained on",
                 at("none"));
  write(at("houses.csv"), houses(false));
  EXPECT_EQ(predict("turned.csv").out, expected);
}

TEST_F(Use, WeightsOfOtherColumnsAreRefused) {
  write(at("houses.csv"), houses(false));
  for (const std::string features : {"size+rooms", "rooms+size"}) {
    trained(features, {"--model", "linear", "--task", "regression", "--dataset",
                       "csv:houses.csv,target=price,split=0.8,features=" + features, "--data-dir", at(""),
                       "--max-steps", "1", "--lr", "0.0001", "--global-batch-size", "8"});
  }
  write(at("new.csv"), "size,rooms\n100,2\n");
  const std::vector<std::string> predict = {"predict", at("size+rooms"), "--input", at("new.csv"),
                                            "--checkpoint"};
  std::vector<std::string> other = predict, own = predict;
  own.push_back(at("size+rooms"));
  other.push_back(at("rooms+size"));
  EXPECT_EQ(use(own).exit_code, 0);
  expect_refused(use(other), 2, "expected weights trained on x float32 [2] (size, rooms)", at("none"));
  const auto from = [this](const std::string& run) {
    return use({"train", "--model", "linear", "--task", "regression", "--dataset",
                "csv:houses.csv,target=price,split=0.8,features=size+rooms", "--data-dir", at(""),
                "--max-steps", "1", "--lr", "0.0001", "--global-batch-size", "8", "--init-from", at(run),
                "--run-dir", at("from " + run)});
  };
  EXPECT_EQ(from("size+rooms").exit_code, 0);
  const RunResult mixed_up = from("rooms+size");
  EXPECT_EQ(mixed_up.exit_code, 2);
  EXPECT_THAT(mixed_up.err, AllOf(HasSubstr("--init-from: expected weights trained on"),
                                  HasSubstr("the same columns in another order")));
}

TEST_F(Use, AFileWithoutAHeaderIsNotEatenByARow) {
  std::vector<float> x(80), y(40);
  write(at("x.npy"), npy_bytes("<f4", "(40, 2)", x));
  write(at("y.npy"), npy_bytes("<f4", "(40,)", y));
  trained("run", {"--model", "linear", "--task", "regression", "--dataset", "npy:y=y.npy,x=x.npy,split=0.8",
                  "--data-dir", at(""), "--max-steps", "1", "--global-batch-size", "8"});
  write(at("bare.csv"), "100.5,2\n10,1\n");
  expect_refused(use({"predict", at("run"), "--input", at("bare.csv")}), 5,
                 "a first line that names the columns", at("none"));
  write(at("named.csv"), "a,b\n100.5,2\n10,1\n");
  const RunResult named = use({"predict", at("run"), "--input", at("named.csv")});
  EXPECT_EQ(lines_of(named.out).size(), 3U) << named.err;
}

TEST_F(Use, RefusesInputsThatDoNotFitAndOverwritesNothing) {
  trained_lenet("run");
  trained_lenet("other", {"--model", "mlp"});
  write(at("x.npy"), npy_images(2));
  const std::string out = at("y.npy");
  const auto predict = [&](const std::string& input, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"predict", at("run"), "--input", at(input), "--output", out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return use(arguments);
  };
  write(at("flat.npy"), npy_bytes("<f4", "(2, 3)", std::vector<float>(6)));
  expect_refused(predict("flat.npy"), 5, "flat.npy: expected image float32 [1, 28, 28]", out);
  write(at("long.npy"), npy_bytes("<i8", "(1, 1, 28, 28)", std::vector<std::int64_t>(784)));
  expect_refused(predict("long.npy"), 5, "image int64 [1, 28, 28]", out);
  write(at("cut.npy"), npy_images(2).substr(0, 900));
  expect_refused(predict("cut.npy"), 5, "cut.npy", out);
  expect_refused(predict("missing.npy"), 5, "missing.npy", out);
  expect_refused(predict("x.npy", {"--checkpoint", at("other")}), 2, "expected the network lenet, got mlp",
                 out);
  fs::copy_file(at("other/checkpoints/step-00000002/model.safetensors"), at("w.safetensors"));
  expect_refused(predict("x.npy", {"--checkpoint", at("w.safetensors")}), 5, "missing: conv1.weight", out);
  expect_refused(use({"predict", at(""), "--input", at("x.npy")}), 2, "expected a run directory", out);
  expect_refused(use({"predict", at("run")}), 2, "--input", out);

  ASSERT_EQ(predict("x.npy").exit_code, 0);
  const std::string before = content(out);
  const RunResult again = predict("x.npy");
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.err, HasSubstr("--overwrite replaces it"));
  EXPECT_EQ(content(out), before);
  EXPECT_EQ(predict("x.npy", {"--overwrite"}).exit_code, 0);
}

TEST_F(Use, AProgramOfOnesOwnPredictsAndExports) {
  const char* examples = std::getenv("DTRAIN_EXAMPLES");
  const std::string own = std::string(examples == nullptr ? "." : examples) + "/own_model";
  const auto call = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), own);
    return run(arguments, limited_to(std::chrono::seconds(60)));
  };
  ASSERT_EQ(call({"--max-steps", "2", "--eval-every", "0", "--run-dir", at("run")}).exit_code, 0);
  write(at("x.csv"), "a,b\n0.1,0.2\n-0.4,0.3\n");
  const RunResult predicted = call({"predict", at("run"), "--input", at("x.csv")});
  EXPECT_EQ(predicted.exit_code, 0) << predicted.err;
  EXPECT_EQ(lines_of(predicted.out).size(), 3U) << predicted.out;
  EXPECT_EQ(lines_of(predicted.out).front(), "y");
  const RunResult exported = call({"export", at("run"), at("own.onnx")});
  EXPECT_EQ(exported.exit_code, 0) << exported.err;
  for (const char* part : {"Gemm", "Tanh", "point", "hidden.weight", "spirals"})
    EXPECT_THAT(content(at("own.onnx")), HasSubstr(part));
  expect_refused(use({"export", at("run"), at("wrong.onnx")}), 2, "expected the network lenet, got spirals",
                 at("wrong.onnx"));
  expect_refused(use({"export", at("run"), at("wrong.txt")}), 2, "ends in .onnx", at("wrong.txt"));
}

TEST_F(Use, WeightsGoOutUnderOtherNamesAndComeBack) {
  trained_lenet("run");
  write(at("names"), "conv1.* = features.0.*\nfc2.bias = head\n");
  const std::string theirs = at("theirs.safetensors"), ours = at("ours.safetensors");
  ASSERT_EQ(use({"convert", "--from", at("run"), "--to", theirs, "--names", at("names")}).exit_code, 0);
  EXPECT_THAT(content(theirs), HasSubstr("features.0.weight"));
  const RunResult back =
      use({"convert", "--from", theirs, "--to", ours, "--run", at("run"), "--names", at("names")});
  ASSERT_EQ(back.exit_code, 0) << back.err;
  trained_lenet("again", {"--init-from", ours, "--max-steps", "0", "--seed", "9"});
  EXPECT_EQ(final_weights(at("again")), final_weights(at("run")));

  const std::string none = at("none.safetensors");
  expect_refused(use({"convert", "--from", theirs, "--to", none, "--run", at("run")}), 5,
                 "missing: conv1.weight, conv1.bias, fc2.bias; unexpected: ", none);
  expect_refused(use({"convert", "--from", theirs, "--to", none, "--model", "mlp", "--dataset",
                      "synthetic:1x28x28,10,64"}),
                 5, "the weights of mlp", none);
  trained_lenet("wide", {"--dataset", "synthetic:1x32x32,10,64"});
  expect_refused(use({"convert", "--from", ours, "--to", none, "--run", at("wide")}), 5,
                 "fc1.weight (expected float32 [128, 1250], found float32 [128, 800])", none);
  expect_refused(use({"convert", "--from", at("run"), "--to", none, "--run", at("wide")}), 2,
                 "--run " + at("wide") + ": expected only with weights of a .safetensors file", none);
}

TEST_F(Use, AveragedWeightsAreTheOnesUsed) {
  trained_lenet("run", {"--ema", "0.5"});
  write(at("x.npy"), npy_bytes("<f4", "(2, 1, 28, 28)", std::vector<float>(2 * 28 * 28)));
  const auto predicted = [&](const std::string& name, std::vector<std::string> more) {
    std::vector<std::string> arguments = {"predict", at("run"), "--input", at("x.npy"), "--output", at(name)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const RunResult result = use(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return content(at(name));
  };
  const fs::path checkpoint = fs::path(at("run")) / "checkpoints" / "step-00000002";
  const std::string of_run = predicted("run.csv", {});
  EXPECT_EQ(predicted("checkpoint.csv", {"--checkpoint", checkpoint}), of_run);
  EXPECT_NE(predicted("last.csv", {"--checkpoint", checkpoint / "model.safetensors"}), of_run);
  const RunResult out = use({"convert", "--from", at("run"), "--to", at("averages.safetensors")});
  ASSERT_EQ(out.exit_code, 0) << out.err;
  EXPECT_EQ(predicted("out.csv", {"--checkpoint", at("averages.safetensors")}), of_run);
  trained_lenet("next", {"--init-from", at("run"), "--lr", "0"});
  EXPECT_EQ(predicted("next.csv", {"--checkpoint", at("next")}), of_run);
}

TEST_F(Use, AnUnknownOptionInARunsConfigurationIsNamed) {
  trained_lenet("run");
  std::string config = content(at("run/config.json"));
  const std::string known = "\"max-steps\"";
  config.replace(config.find(known), known.size(), "\"most-steps\"");
  write(at("run/config.json"), config);
  write(at("x.npy"), npy_images(1));
  expect_refused(use({"predict", at("run"), "--input", at("x.npy"), "--output", at("y.npy")}), 2,
                 "--most-steps", at("y.npy"));
}

}  // namespace
}  // namespace dtrain::test
