// Every form of parallelism and every pair of forms against one process that trains the whole batch: prints a
// table of the worst differences. The short form runs with the tests; all of it by hand
// (tests/bench/forms.sh):
//
//   DTRAIN_FORMS_MODELS=mlp,lenet,resnet18,transformer,gpt2-tiny,llama-tiny,branches
//   DTRAIN_FORMS_WORKERS=1,2,3,4,8 DTRAIN_FORMS_OVER=processes,gloo,mpi,threads,gpus
//   DTRAIN_FORMS_ROWS="pipeline, float16" (forms with that in their names; all if it is not set)
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/data/tokens/shards/token_shard.h"
#include "tests/launch/forms.h"
#include "tests/launch/trained.h"
#include "tests/support/temp_dir.h"
#include "tests/support/training.h"

namespace dtrain::test {
namespace {

std::vector<std::string> listed(const char* variable, const char* otherwise) {
  const char* const given = std::getenv(variable);
  std::stringstream text(given == nullptr ? otherwise : given);
  std::vector<std::string> items;
  for (std::string item; std::getline(text, item, ',');) items.push_back(item);
  return items;
}

/// A model's own program; empty: dtrain train.
Arguments program_of(const std::string& model) {
  if (model != "branches") return {};
  const char* const program = std::getenv("DTRAIN_BRANCHES");
  return {program == nullptr ? "./dtrain_branches" : program};
}

/// The rows of one model over one kind of group.
class Table {
 public:
  Table(std::string model, std::string over) : model_(std::move(model)), over_(std::move(over)) {
    std::ofstream words(folder_ / "words.txt");
    for (int i = 0; i < 1200; ++i) words << "the cat sat on mat number " << i * i % 97 << ";\n";
    write_documents((folder_ / "words.tokens").string());
  }

  /// Those whose form's name has `part` in it; how many.
  int rows(int workers, const std::string& part) {
    int count = 0;
    for (const Form& form : forms_of(model_, workers, over_ == "gpus")) {
      if (form.name.find(part) == std::string::npos) continue;
      row(form, workers);
      ++count;
    }
    return count;
  }

 private:
  /// Documents of 1 to 23 tokens, the first 1 to 7 not asked for: windows differ in how many they ask for.
  static void write_documents(const std::string& path) {
    ShardWriter shard(path, 96, 7);
    for (int i = 0; i < 3000; ++i) {
      shard.begin_document();
      for (int at = 0; at <= i * i % 23; ++at)
        shard.append(std::vector<std::int32_t>{(i + at * at) % 96}, at > i % 7);
    }
    shard.finish();
  }

  bool on_gpus() const { return over_ == "gpus"; }
  bool is_large() const { return model_ == "resnet18"; }
  /// Steps take seconds: ResNet-18 is here for its layers and its size, and emulated GPUs watch each access.
  bool is_slow() const { return is_large() || on_gpus(); }
  // Powers of two where that can be, so that dividing by them is exact.
  int batch_of(int workers) const { return (workers % 3 == 0 ? 48 : 64) / (is_slow() ? 2 : 1); }

  /// Devices of a process that `form` names; 1 where it names none.
  static int devices_of(const Form& form) {
    const auto option = std::ranges::find(form.arguments, "--devices");
    return option == form.arguments.end() ? 1 : 1 + static_cast<int>(std::ranges::count(option[1], ','));
  }

  /// What `form` is started with; devices of a process are GPUs where workers have GPUs.
  Arguments arguments_of(const Form& form) const {
    Arguments arguments = form.arguments;
    if (!on_gpus()) return arguments;
    arguments.insert(arguments.end(), {"--cuda-graph", "off"});
    if (devices_of(form) == 1) arguments.insert(arguments.end(), {"--device", "cuda"});
    for (std::string& argument : arguments) {
      for (std::size_t at = 0; (at = argument.find("cpu:", at)) != std::string::npos;)
        argument.replace(at, 4, "cuda:");
    }
    return arguments;
  }

  Arguments training(int workers) const {
    Arguments arguments = {"--global-batch-size", std::to_string(batch_of(workers)), "--max-steps",
                           is_slow() ? "3" : "10", "--eval-every", "0", "--log-every", "1", "--threads", "1",
                           "--optimizer", "sgd", "--momentum", "0.9", "--lr", is_large() ? "0.001" : "0.05",
                           // A step on an emulated GPU takes many seconds where others run beside it.
                           "--collective-timeout", "240"};
    const Arguments data = model_ == "branches"      ? Arguments{"--weight-decay", "0.1"}
                           : model_ == "transformer" ? Arguments{"--dataset",  "text:words.txt,context=16",
                                                                 "--data-dir", folder_.path().string(),
                                                                 "--width",    "32",
                                                                 "--heads",    "4"}
                           : model_.ends_with("-tiny")
                               ? Arguments{"--dataset", "tokens:words.tokens,context=16,documents=whole",
                                           "--data-dir", folder_.path().string()}
                           : is_large() ? Arguments{"--dataset", "synthetic:3x16x16,10,192"}
                                        : Arguments{"--dataset", "synthetic:1x28x28,10,640"};
    arguments.insert(arguments.end(), data.begin(), data.end());
    if (!program_of(model_).empty()) return arguments;
    arguments.insert(arguments.end(), {"--model", model_});
    return arguments;
  }

  std::optional<Trained> run(const Form& form, int workers) {
    TrainingRun run{.program = program_of(model_),
                    .start = Start::launcher,
                    .world = form.processes,
                    .launcher_arguments = form.launcher,
                    .arguments = training(workers),
                    .run_dir = folder_ / std::to_string(++runs_),
                    .options = limited_to(std::chrono::seconds(300))};
    if (over_ == "mpi") run.start = Start::mpirun;
    if (over_ == "threads" && form.processes > 1) {
      run.start = Start::alone;
      run.world = 1;
      run.arguments.insert(run.arguments.end(), {"--thread-workers", std::to_string(form.processes)});
    }
    if (on_gpus())
      run.launcher_arguments.push_back(fmt::format("--emulated-gpus={}", form.processes * devices_of(form)));
    if (over_ == "gloo" && form.processes > 1)
      run.arguments.insert(run.arguments.end(), {"--backend", "gloo"});
    const Arguments of_form = arguments_of(form);
    run.arguments.insert(run.arguments.end(), of_form.begin(), of_form.end());
    const RunResult result = train(run);
    if (result.exit_code != 0) {
      ADD_FAILURE() << form.name << ", " << model_ << ", " << workers << " workers: " << result.out
                    << result.err;
      return std::nullopt;
    }
    Trained trained = trained_in(run.run_dir);
    std::filesystem::remove_all(run.run_dir);
    return trained;
  }

  const Trained& reference(const Reference& what, int workers) {
    const int processes = what.kind == Reference::Kind::workers ? workers
                          : what.kind == Reference::Kind::two   ? 2
                                                                : 1;
    const std::string key =
        fmt::format("{} {} {}", processes, batch_of(workers), fmt::join(what.arguments, " "));
    const auto found = references_.find(key);
    if (found != references_.end()) return found->second;
    const Form form{"reference: " + key, processes, what.arguments, {}, {}, false, {}};
    return references_.emplace(key, run(form, workers).value_or(Trained{})).first->second;
  }

  /// Servers are processes that dtrain-launch starts; under mpirun they are ranks.
  bool can_run(const Form& form) const {
    return (over_ != "mpi" && over_ != "threads") || form.launcher.empty();
  }

  void row(const Form& form, int workers) {
    if (!can_run(form)) return;
    const auto trained = run(form, workers);
    if (!trained) return;
    const Difference near = difference(*trained, reference(form.near, workers));
    // Devices of one process and workers add the reported losses up in different orders.
    const bool equal = form.exact && difference(*trained, reference(form.bits, workers)).weights == 0;
    const double bound = is_large() ? 3e-4 : 1e-5;
    const bool is_right =
        near.losses <= bound && (is_large() || near.weights <= bound) && (equal || !form.exact);
    const bool bits_of_workers = form.bits.kind == Reference::Kind::workers;
    const char* const whose = !bits_of_workers              ? ""
                              : form.bits.arguments.empty() ? ", of data parallel"
                                                            : ", of the same without";
    fmt::print("{:<11} {:<47} {:>7} {:<9} {:>7.1e} {:>7.1e}  {:<22} {}\n", model_, form.name, workers, over_,
               near.losses, near.weights,
               !form.exact ? (near.equal_bits() ? "yes" : "within rounding")
               : equal     ? fmt::format("yes{}", whose)
                           : "NO, and should be",
               is_right ? "" : "WRONG");
    std::fflush(stdout);
    EXPECT_TRUE(is_right) << form.name << ", " << model_ << ", " << workers << " workers over " << over_;
  }

  std::string model_, over_;
  TempDir folder_;
  int runs_ = 0;
  std::map<std::string, Trained> references_;
};

TEST(FormsOfParallelism, AgreeWithOneProcess) {
  fmt::print("{:<11} {:<47} {:>7} {:<9} {:>7} {:>7}  {}\n", "model", "form", "workers", "over", "losses",
             "weights", "equal bits");
  const char* const part = std::getenv("DTRAIN_FORMS_ROWS");
  int rows = 0;
  for (const std::string& model : listed("DTRAIN_FORMS_MODELS", "mlp,lenet")) {
    for (const std::string& over : listed("DTRAIN_FORMS_OVER", "processes")) {
      Table table(model, over);
      for (const std::string& workers : listed("DTRAIN_FORMS_WORKERS", "2,4"))
        rows += table.rows(std::stoi(workers), part == nullptr ? "" : part);
    }
  }
  EXPECT_GT(rows, 0) << "no form's name contains \"" << (part == nullptr ? "" : part) << '"';
}

}  // namespace
}  // namespace dtrain::test
