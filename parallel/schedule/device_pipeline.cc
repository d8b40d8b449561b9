#include "parallel/schedule/device_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "parallel/placed/placed_module.h"
#include "runtime/autograd/fork.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

using Kind = StageAction::Kind;

/// What stages hand to each other: the input of each run of parts, and the gradient of its output, which is
/// undefined where the output was not used.
struct Sent {
  Tensor tensor;
  bool wants_gradient = false;
};

class Channel {
 public:
  void put(Kind kind, std::size_t run, std::size_t i, Sent sent) {
    const std::lock_guard lock(mutex_);
    sent_[{kind, run, i}] = std::move(sent);
    changed_.notify_all();
  }
  /// Waits for it; nothing where a stage has failed. Without a deadline: stages are threads of this process
  /// that only compute, and each of them ends with what it owes the others or with fail().
  std::optional<Sent> take(Kind kind, std::size_t run, std::size_t i) {
    std::unique_lock lock(mutex_);
    const std::tuple key(kind, run, i);
    changed_.wait(lock, [&] { return failure_ != nullptr || sent_.contains(key); });
    if (failure_ != nullptr) return std::nullopt;
    return std::move(sent_.extract(key).mapped());
  }
  /// Whether take() would find it at once.
  bool has(Kind kind, std::size_t run, std::size_t i) {
    const std::lock_guard lock(mutex_);
    return sent_.contains({kind, run, i});
  }
  /// The first failure counts; all stages end.
  void fail(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (failure_ == nullptr) failure_ = std::move(failure);
    changed_.notify_all();
  }
  void rethrow() const {
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::tuple<Kind, std::size_t, std::size_t>, Sent> sent_;
  std::exception_ptr failure_;
};

}  // namespace

/// One step of all stages.
class DevicePipeline::Step {
 public:
  Step(const DevicePipeline& pipeline, MicroBatches& passes)
      : pipeline_(pipeline),
        runs_(pipeline.runs_),
        passes_(passes),
        stages_(static_cast<int>(pipeline.devices_.size())),
        runs_ahead_(pipeline.context_.device->runs_ahead()),
        beside_(passes.count()),
        alive_(runs_.size()) {
    for (auto& alive : alive_) alive.resize(passes.count());
  }

  void run() {
    if (runs_ahead_ || has_dropout()) fetch_all();
    if (runs_ahead_) return queue_all();
    parallel_invoke([&](int stage) { run_stage(stage); }, stages_);
    channel_.rethrow();
  }

 private:
  struct Alive {
    Tensor input, output;
    Tensors rows;  ///< of the samples, for each key of the run's dropout layers
  };

  bool has_dropout() const {
    return std::ranges::any_of(pipeline_.keys_, [](const auto& keys) { return !keys.empty(); });
  }

  // The one that gives the inputs keys dropout's masks in all stages for them, which are then at work on
  // other micro-batches. So each one's rows are noted before any stage begins, and set again by the stage's
  // own thread (set_rows). And where devices run ahead no stage waits for the one that inputs come to.
  void fetch_all() {
    for (std::size_t i = 0; i < passes_.count(); ++i) {
      alive_[0][i].input = first_input(i).to(pipeline_.device_of(0));
      for (std::size_t run = 0; run < runs_.size(); ++run) {
        for (const auto& key : pipeline_.keys_[run]) alive_[run][i].rows.push_back(key->rows());
      }
    }
  }

  /// The masks of a run are now those of the micro-batch's samples.
  void set_rows(std::size_t run, const Alive& alive) const {
    for (std::size_t k = 0; k < alive.rows.size(); ++k) pipeline_.keys_[run][k]->set_rows(alive.rows[k]);
  }

  std::vector<StageAction> actions_of(int stage) const {
    return stage_actions(pipeline_.options_.schedule, stage, stages_, static_cast<int>(passes_.count()),
                         pipeline_.options_.chunks);
  }
  std::size_t run_of(const StageAction& action, int stage) const {
    return static_cast<std::size_t>(action.chunk * stages_ + stage);
  }
  /// False where another stage has failed.
  bool act(const StageAction& action, int stage) {
    const std::size_t run = run_of(action, stage), i = static_cast<std::size_t>(action.micro_batch);
    return action.kind == Kind::forward ? forward(run, i) : backward(run, i);
  }

  void run_stage(int stage) {
    try {
      for (const StageAction& action : actions_of(stage)) {
        if (!act(action, stage)) return;
      }
    } catch (...) {
      channel_.fail(std::current_exception());
    }
  }

  // Devices that run ahead compute at the same time when one thread queues for all of them: for each in turn
  // what is next there, once what it needs is queued.
  void queue_all() {
    std::vector<std::vector<StageAction>> actions;
    for (int stage = 0; stage < stages_; ++stage) actions.push_back(actions_of(stage));
    std::vector<std::size_t> next(actions.size());
    for (bool any = true; any;) {
      any = false;
      for (int stage = 0; stage < stages_; ++stage) {
        const auto& list = actions[static_cast<std::size_t>(stage)];
        std::size_t& at = next[static_cast<std::size_t>(stage)];
        if (at == list.size() || !has_input(list[at], stage)) continue;
        act(list[at++], stage);
        any = true;
      }
    }
    for (int stage = 0; stage < stages_; ++stage) {
      const std::size_t at = next[static_cast<std::size_t>(stage)],
                        all = actions[static_cast<std::size_t>(stage)].size();
      if (at < all)
        throw UsageError(
            fmt::format("pipeline: expected a schedule that ends, got stage {} waiting at action {} of {}",
                        stage, at, all));
    }
  }

  bool has_input(const StageAction& action, int stage) {
    const std::size_t run = run_of(action, stage), i = static_cast<std::size_t>(action.micro_batch);
    const bool has_none = action.kind == Kind::forward ? run == 0 : !awaits_gradient(run, i);
    return has_none || channel_.has(action.kind, run, i);
  }

  /// Hands `tensor` to a run of parts. A copy that is queued at once waits for nothing that comes later.
  void send(Kind kind, std::size_t run, std::size_t i, Sent sent) {
    if (runs_ahead_ && sent.tensor.defined()) sent.tensor = sent.tensor.to(pipeline_.device_of(run));
    channel_.put(kind, run, i, std::move(sent));
  }

  bool is_last(std::size_t run) const { return run + 1 == runs_.size(); }
  /// Whether the next run sends the gradient of the output: not where all up to here is frozen.
  bool awaits_gradient(std::size_t run, std::size_t i) const {
    return !is_last(run) && alive_[run][i].output.requires_grad();
  }

  /// False where another stage has failed.
  bool forward(std::size_t run, std::size_t i) {
    Alive& alive = alive_[run][i];
    if (run == 0) {
      if (!alive.input.defined()) alive.input = first_input(i);
    } else {
      const auto sent = channel_.take(Kind::forward, run, i);
      if (!sent) return false;
      alive.input = sent->tensor.to(pipeline_.device_of(run)).detach();
      alive.input.set_requires_grad(sent->wants_gradient);
    }
    set_rows(run, alive);
    alive.output = through(runs_[run], alive.input, beside_[i]);
    if (is_last(run)) {
      alive.output = loss(i, alive.output);
    } else {
      send(Kind::forward, run + 1, i, {alive.output.detach(), alive.output.requires_grad()});
    }
    return true;
  }

  bool backward(std::size_t run, std::size_t i) {
    Alive& alive = alive_[run][i];
    if (is_last(run)) {
      start_backward(alive.output, weight(i), pipeline_.scaler_);
    } else if (awaits_gradient(run, i)) {
      const auto sent = channel_.take(Kind::backward, run, i);
      if (!sent) return false;
      if (sent->tensor.defined()) alive.output.backward(sent->tensor.to(pipeline_.device_of(run)));
    }
    if (run > 0 && alive.input.requires_grad()) send(Kind::backward, run - 1, i, {alive.input.grad()});
    alive = {};
    return true;
  }

  // The caller's passes know one thread at a time. Later runs see what is beside the input once they have
  // what the first one sent.
  Tensor first_input(std::size_t i) {
    const std::lock_guard lock(passes_mutex_);
    const Tensors inputs = passes_.inputs(i);
    beside_[i] = beside_first(inputs);
    return inputs.front();
  }
  Tensor loss(std::size_t i, const Tensor& output) {
    const std::lock_guard lock(passes_mutex_);
    const Tensor loss = passes_.loss(i, {output});
    if (i + 1 == passes_.count()) passes_.losses_done();
    return loss;
  }
  double weight(std::size_t i) {
    const std::lock_guard lock(passes_mutex_);
    return passes_.weight(i);
  }

  const DevicePipeline& pipeline_;
  const std::vector<Chunk>& runs_;
  MicroBatches& passes_;
  const int stages_;
  const bool runs_ahead_;
  std::mutex passes_mutex_;
  Channel channel_;
  std::vector<Tensors> beside_;            ///< by micro-batch: what all runs take of it
  std::vector<std::vector<Alive>> alive_;  ///< by run, by micro-batch
};

DevicePipeline::DevicePipeline(const StrategyContext& context, std::vector<std::string> devices,
                               NamedDevices all, const StageOptions& options)
    : context_(context),
      devices_(std::move(devices)),
      all_(std::move(all)),
      options_(options),
      choice_(options_.cut, static_cast<int>(devices_.size()),
              static_cast<int>(devices_.size()) * options_.chunks) {}

DevicePipeline::~DevicePipeline() = default;

const std::shared_ptr<Device>& DevicePipeline::device_of(std::size_t run) const {
  return all_.at(devices_[run % devices_.size()]);
}

std::unique_ptr<Module> DevicePipeline::build(const ModelFactory& factory, PassHooks& /*hooks*/,
                                              const Deadline& deadline) {
  scaler_ = factory.scaler;
  choice_.decide(factory, context_.device, context_.communicator, deadline);
  const auto ends = choice_.ends(chain_of(factory, context_.device));
  const std::size_t runs = ends.size();
  std::vector<std::string> devices;
  for (std::size_t run = 0; run < runs; ++run) devices.resize(ends[run], devices_[run % devices_.size()]);
  PlacedChain built = build_placed(factory, devices, all_);
  built.chain.back() = brought_to(std::move(built.chain.back()), context_.device);
  for (std::size_t run = 0, begin = 0; run < runs; begin = ends[run++]) {
    const auto at = [&](std::size_t part) { return built.chain.begin() + static_cast<std::ptrdiff_t>(part); };
    runs_.emplace_back(at(begin), at(ends[run]));
    StageModule stage(std::vector<Chunk>{runs_.back()});
    keys_.push_back(dropout_keys(stage));
  }
  auto network = network_of(std::move(built), context_.device);
  check_learns(*network);
  network_ = network.get();
  return network;
}

void DevicePipeline::run(MicroBatches& passes, PassHooks& /*hooks*/, bool /*exchange*/) {
  const PhaseScope phase = context_.timer.phase(Phase::backward);
  Step(*this, passes).run();
}

Tensors DevicePipeline::evaluate(const Tensors& inputs, PassHooks& /*hooks*/) { return (*network_)(inputs); }

}  // namespace dtrain
