// What goes wrong on one rank without any sign: a bit that flips in its memory, a wrong computation, and
// slowness. All through the whole trainer, with a task that does it to one rank.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstring>
#include <fstream>
#include <regex>
#include <set>
#include <thread>

#include "models/tasks/classification.h"
#include "parallel/forms.h"
#include "parallel/layout/repeated_passes.h"
#include "runtime/autograd/node.h"
#include "runtime/checkpoint/checkpoint_store.h"
#include "tests/ranks/world.h"
#include "tests/support/json.h"
#include "training/loop/trainer.h"

namespace dtrain::test {
namespace {

namespace fs = std::filesystem;

constexpr int kVictim = 1;

/// What a processor may compute wrongly, once: a loss, or its gradient.
enum class Wrong { nothing, loss, gradient };

/// `loss`, with one of the two a little off.
Tensor computed(const Tensor& loss, Wrong wrong) {
  constexpr double kOff = 1 + 0x1p-20;
  if (wrong == Wrong::loss) return loss * kOff;
  return record("computed", loss.detach().clone(), {loss}, [wrong](Tensor grad, GradSink& sink) {
    sink.deliver(0, wrong == Wrong::gradient ? grad * kOff : grad);
  });
}

/// Classification that calls `harm` before each loss, with the losses so far and the network; `wrong` says
/// what of that loss is computed wrongly.
class Harmed final : public Task {
 public:
  using Harm = std::function<void(int, Module&)>;
  using WhatIsWrong = std::function<Wrong(int)>;
  explicit Harmed(Harm harm, WhatIsWrong wrong = {})
      : inner_("mlp"), harm_(std::move(harm)), wrong_(std::move(wrong)) {}
  std::string name() const override { return inner_.name(); }
  Splits open(const DataRequest& request) const override { return inner_.open(request); }
  std::unique_ptr<Module> build(std::span<const Field> fields, Generator& generator,
                                const std::shared_ptr<Device>& device) const override {
    auto network = inner_.build(fields, generator, device);
    network_ = network.get();
    return network;
  }
  Tensor loss(const Tensors& outputs, const BatchTensors& batch) const override {
    const int number = losses_++;
    harm_(number, *network_);
    const Tensor loss = inner_.loss(outputs, batch);
    return wrong_ ? computed(loss, wrong_(number)) : loss;
  }

 private:
  Classification inner_;
  Harm harm_;
  WhatIsWrong wrong_;
  mutable Module* network_ = nullptr;
  mutable int losses_ = 0;
};

ExitCode train(Rank& rank, const fs::path& run, const Task& task, const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"--dataset",    "synthetic:1x6x6,10,960",
                                        "--batch-size", "4",
                                        "--momentum",   "0.9",
                                        "--lr",         "0.05",
                                        "--eval-every", "0",
                                        "--run-dir",    run.string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Environment environment;
  const Options options = resolve_options("test", train_options(), arguments, environment);
  const TrainConfig config = make_train_config(options, "mlp", rank.size());
  const StopSignal stop_signal;
  WorkerLog log("test");
  Tracer tracer(std::nullopt, rank.rank(), log);
  const auto device = make_device("cpu");
  StepClock clock;
  const auto model =
      make_data_parallel(StrategyContext{*rank.communicator, device, config.collective_timeout, {&clock}});
  Strategy& strategy = *model;
  Trainer trainer(config, {task, strategy, *rank.communicator, device, options, environment, stop_signal, log,
                           tracer, clock});
  return trainer.run();
}

std::string text_of(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Flips a bit of the victim's second weight.
void flip(Module& network) {
  const auto parameters = network.named_parameters();
  static_cast<std::uint32_t*>(parameters.at(2).second.view().data)[5] ^= 1U << 3;
}

const std::vector<std::string> kWatched = {"--check-replicas", "4", "--checkpoint-every", "3",
                                           "--max-steps",      "30"};

// The log of samples has each step of a start once, steps that were taken again as another start's. Empty, or
// what is wrong.
std::string trouble_in_samples(const fs::path& run, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    std::ifstream log(run / "logs" / fmt::format("samples-{}.jsonl", rank));
    std::set<std::pair<std::int64_t, std::int64_t>> taken;
    for (std::string line; std::getline(log, line);) {
      const auto record = test::Json::parse(line);
      if (!taken.emplace(record["start"], record["step"]).second) return "a step is there twice: " + line;
    }
    if (taken.empty() || taken.begin()->first != 1 || taken.rbegin()->first != 2)
      return fmt::format("rank {}: expected samples of starts 1 and 2", rank);
  }
  return "";
}

// Named, and undone: all go back to the last checkpoint, and end with the weights of an undisturbed run.
std::string flipped_bit_is_undone(Rank& rank) {
  const Harmed task([&](int losses, Module& network) {
    if (losses == 9 && rank.rank() == kVictim) flip(network);
  });
  const Harmed healthy([](int, Module&) {});
  const fs::path run = fs::path(rank.folder) / "undone", other = fs::path(rank.folder) / "undisturbed";
  std::vector<std::string> logged = kWatched;
  logged.push_back("--log-samples");
  if (train(rank, run, task, logged) != ExitCode::ok) return "ended early";
  if (train(rank, other, healthy, kWatched) != ExitCode::ok) return "the undisturbed one ended early";
  if (rank.rank() != 0) return "ok";
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    const fs::path newest = fs::path("checkpoints") / "step-00000030" / file;
    if (text_of(run / newest).empty() || text_of(run / newest) != text_of(other / newest))
      return std::string(file) + " is not that of the undisturbed run";
  }
  std::ifstream metrics(run / "metrics.jsonl");
  std::int64_t step = 0;
  for (std::string line; std::getline(metrics, line);) {
    const auto record = test::Json::parse(line);
    if (record["event"] != "step") continue;
    if (record["step"] <= step) return "a step is there twice: " + line;
    step = record["step"];
  }
  if (const std::string trouble = trouble_in_samples(run, rank.size()); !trouble.empty()) return trouble;
  const std::string log = text_of(run / "logs" / "rank-0.log");
  if (!std::regex_search(log, std::regex("step 1[012]: replicas differ: expected fc2.weight")))
    return "expected the tensor and the step in: " + log;
  const std::string starts = text_of(run / "checkpoints" / "starts.jsonl");
  return starts.find(R"("start":2)") != std::string::npos ? "ok" : "no second start in: " + starts;
}

// As often as it is computed again, it is wrong again: that is not memory's fault, and must not continue for
// ever.
std::string flipped_bit_is_named(Rank& rank) {
  const Harmed task([&](int losses, Module& network) {
    if (losses >= 9 && rank.rank() == kVictim) flip(network);
  });
  const fs::path run = fs::path(rank.folder) / "flipped";
  std::string told = "nobody noticed";
  try {
    train(rank, run, task, kWatched);
  } catch (const Error& error) {
    told = error.what();
  }
  // Flipped from step 10 on, and in whatever the run went back to: after step 9, or an earlier one where
  // storage had put that checkpoint off. now.
  const std::string expected = rank.size() == 2 ? "ranks 0, 1 differ" : "rank 1 is not as the others";
  for (const std::string& part : {std::string("fc2.weight"), expected}) {
    if (told.find(part) == std::string::npos) return fmt::format("expected '{}' in: {}", part, told);
  }
  if (!std::regex_search(told, std::regex("step ([4-9]|1[012]): ")))
    return "expected a step up to 12 in: " + told;
  rank.communicator->barrier("told")->wait(Deadline::after(std::chrono::seconds(20)));
  if (rank.rank() != 0) return "ok";
  NullLog log;
  const auto newest = CheckpointStore(run / "checkpoints", 0, log).latest();
  return newest && newest->state.step <= 9 ? "ok" : "expected a checkpoint from before, and none after it";
}

std::string healthy_replicas_agree(Rank& rank) {
  const Harmed task([](int, Module&) {});
  const auto code =
      train(rank, fs::path(rank.folder) / "healthy", task,
            {"--check-replicas", "1", "--optimizer", "adamw", "--momentum", "0", "--max-steps", "20"});
  return code == ExitCode::ok ? "ok" : "ended early";
}

// With a check in every fourth step, step 8 computes losses 8 and 9, from 0. The step is not applied.
std::string wrong_computation_is_named(Rank& rank) {
  const int victim = rank.size() - 1;
  for (const auto& [wrong, expected] : {std::pair(Wrong::gradient, "the gradient of fc1.weight"),
                                        std::pair(Wrong::loss, "the loss of micro-batch 1")}) {
    const Harmed task([](int, Module&) {},
                      [&, what = wrong](int losses) {
                        return losses == 9 && rank.rank() == victim ? what : Wrong::nothing;
                      });
    const fs::path run = fs::path(rank.folder) / (wrong == Wrong::loss ? "loss" : "gradient");
    std::string told = "nobody noticed";
    try {
      train(rank, run, task, {"--check-compute", "4", "--checkpoint-every", "1", "--max-steps", "30"});
    } catch (const ComputeError& error) {
      told = error.what();
    }
    const std::string what_for = "step 8: a computation cannot be trusted: expected the same bits twice";
    for (const std::string& part :
         {what_for, fmt::format("; rank {} got two results for {}", victim, expected),
          std::string("(host ")}) {
      if (told.find(part) == std::string::npos) return fmt::format("expected '{}' in: {}", part, told);
    }
    if (rank.size() > 1 && told.find("rank 0 got two results") != std::string::npos)
      return "rank 0 computed rightly: " + told;
    rank.communicator->barrier("told")->wait(Deadline::after(std::chrono::seconds(20)));
    if (rank.rank() != 0) continue;
    NullLog log;
    const auto newest = CheckpointStore(run / "checkpoints", 0, log).latest();
    if (!newest || newest->state.step > 7) return "expected a checkpoint from before step 8, and none of it";
  }
  return "ok";
}

// Nothing of the first computation stays (other forms: tests/launch/resumed.txt).
std::string right_computations_agree(Rank& rank) {
  const Harmed task([](int, Module&) {});
  const fs::path run = fs::path(rank.folder) / "checked", other = fs::path(rank.folder) / "unchecked";
  const std::vector<std::string> plain = {"--accumulate", "2", "--max-steps", "12"};
  std::vector<std::string> checked = plain;
  checked.insert(checked.end(), {"--check-compute", "1"});
  if (train(rank, run, task, checked) != ExitCode::ok) return "ended early";
  if (train(rank, other, task, plain) != ExitCode::ok) return "the unchecked one ended early";
  if (rank.rank() != 0) return "ok";
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    const fs::path newest = fs::path("checkpoints") / "step-00000012" / file;
    if (text_of(run / newest).empty() || text_of(run / newest) != text_of(other / newest))
      return std::string(file) + " is not that of the unchecked run";
  }
  return "ok";
}

std::string verdict_on_slow_rank(const fs::path& run) {
  const std::string text = text_of(run / "logs" / "rank-0.log");
  const auto first = text.find("step 50: rank 1 computes");
  if (first == std::string::npos) return "nobody was named: " + text;
  if (text.find("forward ") == std::string::npos) return "no word of where the time goes: " + text;
  return text.find("rank 1 computes", first + 10) == std::string::npos ? "ok"
                                                                       : "named again and again: " + text;
}

// Takes four times as long as a step takes without it: other work may make every rank slow.
std::string slow_rank_is_named(Rank& rank) {
  auto woke = std::chrono::steady_clock::now();
  const Harmed task([&](int losses, Module&) {
    if (rank.rank() != kVictim) return;
    const auto step =
        losses == 0 ? std::chrono::steady_clock::duration{} : std::chrono::steady_clock::now() - woke;
    std::this_thread::sleep_for(
        std::max<std::chrono::steady_clock::duration>(4 * step, std::chrono::milliseconds(15)));
    woke = std::chrono::steady_clock::now();
  });
  const fs::path run = fs::path(rank.folder) / "slow";
  train(rank, run, task, {"--max-steps", "110"});
  return rank.rank() == 0 ? verdict_on_slow_rank(run) : "ok";
}

class PeersWatch : public OnBackend {};

TEST_P(PeersWatch, AFlippedBitIsUndone) { expect_ok("flipped_bit_is_undone", {2, 3}); }
TEST_P(PeersWatch, AFlippedBitIsNamed) { expect_ok("flipped_bit_is_named", {2, 3}); }
TEST_P(PeersWatch, HealthyReplicasAgree) { expect_ok("healthy_replicas_agree", {3}); }
TEST_P(PeersWatch, AWrongComputationIsNamed) { expect_ok("wrong_computation_is_named", {1, 2, 3}); }
TEST_P(PeersWatch, RightComputationsAgree) { expect_ok("right_computations_agree", {1, 3}); }
TEST_P(PeersWatch, ASlowRankIsNamed) { expect_ok("slow_rank_is_named", {3}); }

INSTANTIATE_TEST_SUITE_P(, PeersWatch, testing::Values("tcp"),
                         [](const auto& backend) { return std::string(backend.param); });

}  // namespace
}  // namespace dtrain::test

int main(int argc, char** argv) {
  using namespace dtrain::test;
  register_scenario("flipped_bit_is_undone", flipped_bit_is_undone);
  register_scenario("flipped_bit_is_named", flipped_bit_is_named);
  register_scenario("healthy_replicas_agree", healthy_replicas_agree);
  register_scenario("wrong_computation_is_named", wrong_computation_is_named);
  register_scenario("right_computations_agree", right_computations_agree);
  // 110 steps that other work may make long.
  register_scenario("slow_rank_is_named", slow_rank_is_named,
                    {.call_timeout = std::chrono::seconds(60), .run_timeout = std::chrono::seconds(200)});
  return run_tests_or_scenario(argc, argv);
}
