// Checkpoints of which every rank writes and reads its own part, through the whole trainer: saved by some
// ranks, resumed by others, with the weights of a run that never stopped; and a rank whose disk refuses
// leaves the checkpoint before.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "models/tasks/classification.h"
#include "parallel/forms.h"
#include "runtime/checkpoint/checkpoint_store.h"
#include "tests/ranks/world.h"
#include "tests/support/temp_dir.h"
#include "training/loop/trainer.h"

namespace dtrain::test {
namespace {

namespace fs = std::filesystem;

/// Data parallelism that saves as a sharded strategy does: of each tensor every rank writes an equal range of
/// elements, and each rank reads all of them back by itself.
class SavesInShards final : public Strategy {
 public:
  explicit SavesInShards(const StrategyContext& context)
      : Strategy({.name = "saves in parts",
                  .share = {context.communicator.rank(), context.communicator.size()},
                  .sharded = true,
                  .replicated = false}),
        context_(context),
        inner_(make_data_parallel(context)) {}

  void prepare(const ModelFactory& factory, const Deadline& deadline) override {
    inner_->prepare(factory, deadline);
    set_prepared(inner_->module(), inner_->optimizers());
  }
  void load(const CheckpointFiles& state, const Deadline&) override {
    inner_->module().load_state_dict(load_tensors(*state.model, context_.device));
    inner_->optimizer()->load_state(load_tensors(*state.optimizer, context_.device));
  }
  void begin(const Deadline& deadline) override { inner_->begin(deadline); }
  void step(MicroBatches& passes, Exchange exchange) override { inner_->step(passes, exchange); }
  std::optional<int> graph_key(std::int64_t step) const override { return inner_->graph_key(step); }
  void sync_state(const Deadline& deadline) override { inner_->sync_state(deadline); }
  Tensors evaluate(const Tensors& inputs) override { return inner_->evaluate(inputs); }
  RankState held() override {
    return {cut(inner_->module().state_dict()), cut(inner_->optimizer()->named_state())};
  }
  void exchange_alone(const Deadline& deadline) override { inner_->exchange_alone(deadline); }

 private:
  std::vector<NamedShard> cut(const NamedTensors& tensors) const {
    const auto rank = static_cast<std::int64_t>(share().rank), size = static_cast<std::int64_t>(share().size);
    std::vector<NamedShard> parts;
    for (const auto& [name, tensor] : tensors) {
      const std::int64_t first = tensor.numel() * rank / size, end = tensor.numel() * (rank + 1) / size;
      if (first == end) continue;
      const TensorShard part = TensorShard::elements(tensor.shape(), first, end - first);
      parts.push_back(
          {name, tensor.detach().reshape({-1}).slice(0, first, end).reshape(part.held_shape()), part});
    }
    return parts;
  }

  StrategyContext context_;
  std::unique_ptr<Strategy> inner_;
};

/// One rank of a run of the multilayer perceptron; `strategy` says how it saves.
using MakeStrategy = std::function<std::unique_ptr<Strategy>(const StrategyContext& context)>;

std::unique_ptr<Strategy> saves_in_parts(const StrategyContext& context) {
  return std::make_unique<SavesInShards>(context);
}

std::unique_ptr<Strategy> data_parallel(const StrategyContext& context) {
  return make_data_parallel(context);
}

std::unique_ptr<Strategy> shards_gradients(const StrategyContext& context) {
  return make_sharded(context, ShardOptions{.stage = ShardStage::gradients, .bucket_bytes = 64 * 1024});
}

ExitCode train(Communicator& communicator, const MakeStrategy& make, const fs::path& run, std::int64_t steps,
               const std::string& optimizer = "sgd") {
  const std::vector<std::string> arguments = {"--dataset",
                                              "synthetic:1x6x6,10,96",
                                              "--global-batch-size",
                                              "24",
                                              "--optimizer",
                                              optimizer,
                                              "--momentum",
                                              optimizer == "sgd" ? "0.9" : "0",
                                              "--lr",
                                              "0.05",
                                              "--checkpoint-every",
                                              "2",
                                              "--eval-every",
                                              "0",
                                              "--max-steps",
                                              std::to_string(steps),
                                              "--run-dir",
                                              run.string()};
  const Environment environment;
  const Options options = resolve_options("test", train_options(), arguments, environment);
  const TrainConfig config = make_train_config(options, "mlp", communicator.size());
  const Classification task("mlp");
  const StopSignal stop_signal;
  WorkerLog log("test");
  Tracer tracer(std::nullopt, communicator.rank(), log);
  const auto device = make_device("cpu");
  StepClock clock;
  const auto strategy = make({communicator, device, config.collective_timeout, {&clock}});
  Trainer trainer(
      config, {task, *strategy, communicator, device, options, environment, stop_signal, log, tracer, clock});
  return trainer.run();
}

/// "ok" when the newest checkpoint of `run` is of `step` and holds the tensors of `other`'s.
std::string same_checkpoint(const fs::path& run, const fs::path& other, std::int64_t step, int files) {
  NullLog log;
  const auto a = CheckpointStore(run / "checkpoints", 0, log).latest();
  const auto b = CheckpointStore(other / "checkpoints", 0, log).latest();
  if (!a || !b || a->state.step != step || b->state.step != step) return "no checkpoint of the last step";
  const int shards = static_cast<int>(std::count_if(
      fs::directory_iterator(a->path), fs::directory_iterator(), [](const fs::directory_entry& entry) {
        return entry.path().filename().string().starts_with("model") &&
               entry.path().extension() == ".safetensors";
      }));
  if (shards != files) return fmt::format("expected {} files of weights, got {}", files, shards);
  const auto host = make_device("cpu");
  for (const auto& [mine, theirs] :
       {std::pair(&a->model, &b->model), std::pair(&a->optimizer, &b->optimizer)}) {
    std::map<std::string, Tensor> whole;
    for (auto& [name, tensor] : load_tensors(*theirs, host)) whole.emplace(name, tensor);
    const NamedTensors assembled = load_tensors(*mine, host);
    if (assembled.size() != whole.size()) return "another number of tensors";
    for (const auto& [name, tensor] : assembled) {
      if (tensor.to_vector<double>() != whole.at(name).to_vector<double>()) return name + " differs";
    }
  }
  return "ok";
}

// Steps 1 to 3 by all ranks and in parts, 4 to 6 by all but the last, and the same undisturbed by data
// parallelism: one process would see the sums of its own order.
std::string resumed_by_others(Rank& rank, const MakeStrategy& make, const std::string& optimizer) {
  const fs::path run = fs::path(rank.folder) / ("parts-" + optimizer),
                 whole = fs::path(rank.folder) / ("whole-" + optimizer);
  train(*rank.communicator, make, run, 3, optimizer);
  const auto fewer =
      rank.communicator->split(rank.rank() == rank.size() - 1 ? 1 : 0, rank.rank(), Deadline::never());
  std::string verdict = "ok";
  if (rank.rank() != rank.size() - 1) train(*fewer, make, run, 6, optimizer);
  const MakeStrategy plain = data_parallel;
  train(*rank.communicator, plain, whole, 3, optimizer);
  if (rank.rank() != rank.size() - 1) train(*fewer, plain, whole, 6, optimizer);
  if (rank.rank() == 0) verdict = same_checkpoint(run, whole, 6, rank.size() == 2 ? 1 : rank.size() - 1);
  rank.communicator->barrier("end")->wait(Deadline::never());
  return verdict;
}

std::string saved_by_some_resumed_by_others(Rank& rank) {
  return resumed_by_others(rank, saves_in_parts, "sgd");
}

std::string shards_resumed_by_others(Rank& rank) {
  for (const char* optimizer : {"sgd", "adamw"}) {
    const std::string verdict = resumed_by_others(rank, shards_gradients, optimizer);
    if (verdict != "ok") return std::string(optimizer) + ": " + verdict;
  }
  return "ok";
}

// Saved by sharded ranks, gone on with by data parallelism, and the other way round.
std::string strategies_change(Rank& rank) {
  const fs::path run = fs::path(rank.folder) / "changing", whole = fs::path(rank.folder) / "whole";
  const MakeStrategy plain = data_parallel;
  train(*rank.communicator, plain, run, 2, "adamw");
  train(*rank.communicator, shards_gradients, run, 4, "adamw");
  train(*rank.communicator, plain, run, 6, "adamw");
  train(*rank.communicator, plain, whole, 6, "adamw");
  std::string verdict = rank.rank() == 0 ? same_checkpoint(run, whole, 6, 1) : "ok";
  rank.communicator->barrier("end")->wait(Deadline::never());
  return verdict;
}

class ShardedCheckpoint : public OnBackend {};

TEST_P(ShardedCheckpoint, SavedBySomeRanksResumedByOthers) {
  expect_ok("saved_by_some_resumed_by_others", {2, 3, 4});
}

TEST_P(ShardedCheckpoint, ShardsAreResumedByOthers) { expect_ok("shards_resumed_by_others", {2, 4}); }

TEST_P(ShardedCheckpoint, StrategiesMayChange) { expect_ok("strategies_change", {3}); }

INSTANTIATE_TEST_SUITE_P(, ShardedCheckpoint, testing::Values("tcp", "mpi"),
                         [](const auto& backend) { return std::string(backend.param); });

}  // namespace
}  // namespace dtrain::test

int main(int argc, char** argv) {
  using namespace dtrain::test;
  register_scenario("saved_by_some_resumed_by_others", saved_by_some_resumed_by_others);
  register_scenario("shards_resumed_by_others", shards_resumed_by_others);
  register_scenario("strategies_change", strategies_change);
  return run_tests_or_scenario(argc, argv);
}
