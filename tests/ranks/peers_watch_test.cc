// What goes wrong on one rank without any sign: a bit that flips in its memory, and slowness. Both through
// the whole trainer, with a task that does it to one rank.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstring>
#include <fstream>
#include <regex>
#include <sstream>
#include <thread>

#include "models/tasks/classification.h"
#include "parallel/data/data_parallel_strategy.h"
#include "runtime/checkpoint/checkpoint_store.h"
#include "tests/ranks/world.h"
#include "training/trainer.h"

namespace dtrain::test {
namespace {

namespace fs = std::filesystem;

constexpr int kVictim = 1;

/// Classification that calls `harm` before each loss, with the losses so far and the network.
class Harmed final : public Task {
 public:
  using Harm = std::function<void(int, Module&)>;
  explicit Harmed(Harm harm) : inner_("mlp"), harm_(std::move(harm)) {}
  std::string name() const override { return inner_.name(); }
  Splits open(const DataRequest& request) const override { return inner_.open(request); }
  std::unique_ptr<Module> build(std::span<const Field> fields, Generator& generator,
                                const std::shared_ptr<Device>& device) const override {
    auto network = inner_.build(fields, generator, device);
    network_ = network.get();
    return network;
  }
  Tensor loss(const Tensors& outputs, const BatchTensors& batch) const override {
    harm_(losses_++, *network_);
    return inner_.loss(outputs, batch);
  }

 private:
  Classification inner_;
  Harm harm_;
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
  const Recipe recipe = make_recipe(options, "mlp", rank.size());
  const StopSignal stop_signal;
  WorkerLog log("test");
  Tracer tracer(std::nullopt, rank.rank(), log);
  const auto device = make_device("cpu");
  StepClock clock;
  DataParallelStrategy strategy(
      StrategyContext{*rank.communicator, device, recipe.collective_timeout, {&clock}});
  Trainer trainer(recipe, {task, strategy, *rank.communicator, device, options, environment, stop_signal, log,
                           tracer, clock});
  return trainer.run();
}

std::string flipped_bit_is_named(Rank& rank) {
  const Harmed task([&](int losses, Module& network) {
    if (losses != 9 || rank.rank() != kVictim) return;
    const auto parameters = network.named_parameters();
    auto* bits = static_cast<std::uint32_t*>(parameters.at(2).second.view().data);
    bits[5] ^= 1U << 3;
  });
  const fs::path run = fs::path(rank.folder) / "flipped";
  std::string told = "nobody noticed";
  try {
    train(rank, run, task, {"--check-replicas", "4", "--checkpoint-every", "3", "--max-steps", "30"});
  } catch (const Error& error) {
    told = error.what();
  }
  // Flipped in step 10; compared after step 12, or before a checkpoint that storage has put off until now.
  const std::string expected = rank.size() == 2 ? "ranks 0, 1 differ" : "rank 1 is not as the others";
  for (const std::string& part : {std::string("fc2.weight"), expected}) {
    if (told.find(part) == std::string::npos) return fmt::format("expected '{}' in: {}", part, told);
  }
  if (!std::regex_search(told, std::regex("step 1[012]: "))) return "expected step 10, 11 or 12 in: " + told;
  rank.communicator->barrier("told")->wait(Deadline::after(std::chrono::seconds(20)));
  if (rank.rank() != 0) return "ok";
  NullLog log;
  const auto newest = CheckpointStore(run / "checkpoints", 0, log).latest();
  return newest && newest->state.step <= 9 ? "ok" : "expected a checkpoint from before, and none after it";
}

std::string healthy_replicas_agree(Rank& rank) {
  const Harmed task([](int, Module&) {});
  const auto code = train(rank, fs::path(rank.folder) / "healthy", task,
                          {"--check-replicas", "1", "--optimizer", "adamw", "--max-steps", "20"});
  return code == ExitCode::ok ? "ok" : "ended early";
}

std::string slow_rank_is_named(Rank& rank) {
  const Harmed task([&](int, Module&) {
    if (rank.rank() == kVictim) std::this_thread::sleep_for(std::chrono::milliseconds(15));
  });
  const fs::path run = fs::path(rank.folder) / "slow";
  train(rank, run, task, {"--max-steps", "110"});
  if (rank.rank() != 0) return "ok";
  std::ifstream in(run / "logs" / "rank-0.log");
  std::ostringstream log;
  log << in.rdbuf();
  const std::string text = log.str();
  const auto first = text.find("step 50: rank 1 takes");
  if (first == std::string::npos) return "nobody was named: " + text;
  if (text.find("forward 1") == std::string::npos && text.find("forward 2") == std::string::npos)
    return "no word of where the time goes: " + text;
  return text.find("rank 1 takes", first + 10) == std::string::npos ? "ok" : "named again and again: " + text;
}

class PeersWatch : public OnBackend {};

TEST_P(PeersWatch, AFlippedBitIsNamed) { expect_ok("flipped_bit_is_named", {2, 3}); }
TEST_P(PeersWatch, HealthyReplicasAgree) { expect_ok("healthy_replicas_agree", {3}); }
TEST_P(PeersWatch, ASlowRankIsNamed) { expect_ok("slow_rank_is_named", {3}); }

INSTANTIATE_TEST_SUITE_P(, PeersWatch, testing::Values("tcp"),
                         [](const auto& backend) { return std::string(backend.param); });

}  // namespace
}  // namespace dtrain::test

int main(int argc, char** argv) {
  using namespace dtrain::test;
  register_scenario("flipped_bit_is_named", flipped_bit_is_named);
  register_scenario("healthy_replicas_agree", healthy_replicas_agree);
  register_scenario("slow_rank_is_named", slow_rank_is_named);
  return run_tests_or_scenario(argc, argv);
}
