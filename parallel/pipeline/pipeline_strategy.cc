#include "parallel/pipeline/pipeline_strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "parallel/data/sharded/shard_state.h"
#include "parallel/span_of.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

/// What goes ahead of a tensor: its dtype, rank and extents.
using Header = std::array<std::int64_t, 8>;

Header header_of(const Tensor& tensor) {
  Header header{static_cast<std::int64_t>(tensor.dtype()), tensor.rank()};
  for (int i = 0; i < tensor.rank(); ++i) header[static_cast<std::size_t>(i) + 2] = tensor.size(i);
  return header;
}

/// A network's parts, weighed by their parameters and, as much together, each alike: convolutions take time
/// that their parameters do not show.
std::vector<double> costs_of(const std::vector<ChainPart>& chain) {
  double total = 0;
  for (const ChainPart& part : chain) total += static_cast<double>(parameter_count(part));
  std::vector<double> costs;
  for (const ChainPart& part : chain) {
    costs.push_back(static_cast<double>(parameter_count(part)) / std::max(total, 1.0) +
                    1.0 / static_cast<double>(chain.size()));
  }
  return costs;
}

/// Those of `files` that belong to a tensor of `names`, as "fc1.weight.exp_avg" does to "fc1.weight".
NamedTensors read_own(const TensorFiles& files, const NamedTensors& names,
                      const std::shared_ptr<Device>& device) {
  const auto host = device->runs_ahead() ? make_device("cpu") : device;
  const auto is_own = [&](const std::string& saved) {
    return std::ranges::any_of(names, [&](const NamedTensor& own) {
      return saved == own.first || saved.starts_with(own.first + ".");
    });
  };
  NamedTensors own;
  for (const SavedTensor& saved : files.tensors()) {
    if (!is_own(saved.name)) continue;
    const Tensor read = Tensor::empty(saved.shape, host, saved.dtype);
    files.read(saved.name, read.view());
    own.emplace_back(saved.name, host == device ? read : read.to(device));
  }
  return own;
}

}  // namespace

PipelineStrategy::PipelineStrategy(const StrategyContext& context, const PipelineGroups& groups,
                                   PipelineSchedule schedule)
    : context_(context), groups_(groups), schedule_(schedule) {}

PipelineStrategy::~PipelineStrategy() = default;

void PipelineStrategy::prepare(const TrainingParts& parts, const Deadline& /*deadline*/) {
  if (parts.scaler != nullptr) {
    throw UsageError(
        "pipeline: expected float32 or bfloat16, got float16, whose loss scaling would have to agree among "
        "the "
        "stages");
  }
  limits_ = parts.limits;
  const std::unique_ptr<Module> whole = parts.build(context_.device);
  const auto* const chained = dynamic_cast<const Chained*>(whole.get());
  if (chained == nullptr)
    throw UsageError("pipeline: expected a network that is a chain of parts, got one that is not");
  std::vector<ChainPart> chain = chained->chain();
  const auto ends = cut_evenly(costs_of(chain), groups_.activations.size());
  const auto stage = static_cast<std::size_t>(groups_.activations.rank());
  first_part_ = stage == 0 ? 0 : ends[stage - 1];
  end_part_ = ends[stage];
  const auto at = [&](std::size_t part) { return chain.begin() + static_cast<std::ptrdiff_t>(part); };
  stage_ = std::make_unique<StageModule>(std::vector<ChainPart>(at(first_part_), at(end_part_)));
  if (stage_->named_parameters().empty()) {
    throw UsageError(fmt::format("pipeline: expected parameters in each stage, got none in stage {} of {}",
                                 stage + 1, ends.size()));
  }
  optimizer_ = parts.make_optimizer(stage_->named_parameters());
}

void PipelineStrategy::begin(const Deadline& deadline) {
  parallel_ = std::make_unique<DataParallel>(groups_.copies, *stage_, deadline);
}

void PipelineStrategy::send(const Tensor& tensor, int to, Communicator& group) {
  const Header header = header_of(tensor);
  const Tensor ahead = Tensor::from_data(std::span<const std::int64_t>(header),
                                         {static_cast<std::int64_t>(header.size())}, context_.device);
  const Tensor dense = tensor.detach().contiguous();
  sent_.push_back({group.send(span_of(ahead), to, "shape"), ahead});
  sent_.push_back({group.send(span_of(dense), to, "micro-batch"), dense});
  stats_.bytes += static_cast<std::uint64_t>(dense.numel()) * size_of(dense.dtype());
}

Tensor PipelineStrategy::receive(int from, Communicator& group) {
  const PhaseScope phase = context_.timer.phase(Phase::communication);
  const TimePoint start = steady_clock().now();
  const Tensor ahead = Tensor::empty({std::tuple_size_v<Header>}, context_.device, DType::i64);
  group.receive(span_of(ahead), from, "shape")->wait(patience());
  ahead.mark_modified();
  const auto header = ahead.to_vector<std::int64_t>();
  std::vector<std::int64_t> extents(header.begin() + 2, header.begin() + 2 + header[1]);
  const Tensor tensor = Tensor::empty(Dims(extents), context_.device, static_cast<DType>(header[0]));
  group.receive(span_of(tensor), from, "micro-batch")->wait(patience());
  tensor.mark_modified();
  stats_.waiting += steady_clock().now() - start;
  return tensor;
}

void PipelineStrategy::finish_sends() {
  for (const Sent& sent : sent_) sent.work->wait(patience());
  sent_.clear();
}

void PipelineStrategy::forward(Passes& passes, std::size_t i) {
  // On every stage: it keys dropout's masks, and the last one needs the targets.
  const Tensors inputs = passes.inputs(i);
  if (inputs.size() != 1)
    throw UsageError(fmt::format("pipeline: expected a network of one input, got {}", inputs.size()));
  Alive& alive = alive_[i];
  if (!is_first()) {
    alive.input = receive(groups_.activations.rank() - 1, groups_.activations);
    alive.input.set_requires_grad(true);
  }
  {
    const PhaseScope phase = context_.timer.phase(Phase::forward);
    alive.output = (*stage_)(is_first() ? inputs.front() : alive.input);
    if (is_last()) alive.output = passes.loss(i, {alive.output});
  }
  if (!is_last()) send(alive.output, groups_.activations.rank() + 1, groups_.activations);
  if (i + 1 == passes.count()) passes.losses_done();
}

void PipelineStrategy::backward(Passes& passes, std::size_t i, bool exchange) {
  Alive& alive = alive_[i];
  Tensor grad;
  if (!is_last()) grad = receive(groups_.gradients.rank() + 1, groups_.gradients);
  {
    const PhaseScope phase = context_.timer.phase(Phase::backward);
    const auto run = [&] {
      if (is_last()) return start_backward(alive.output, passes.weight(i), nullptr);
      alive.output.backward(grad);
    };
    if (exchange) {
      run();
    } else {
      const auto no_sync = parallel_->no_sync();
      run();
    }
  }
  if (!is_first()) send(alive.input.grad(), groups_.gradients.rank() - 1, groups_.gradients);
  alive = {};
}

void PipelineStrategy::step(Passes& passes, Exchange exchange) {
  const bool all = exchange == Exchange::all;
  const auto count = static_cast<int>(passes.count());
  optimizer_->zero_grad();
  alive_.assign(passes.count(), {});
  const auto actions =
      stage_actions(schedule_, groups_.activations.rank(), groups_.activations.size(), count);
  stats_.most_alive = std::max(stats_.most_alive, most_alive(actions));
  const TimePoint start = steady_clock().now();
  for (const StageAction& action : actions) {
    const auto i = static_cast<std::size_t>(action.micro_batch);
    if (action.kind == StageAction::Kind::forward) {
      forward(passes, i);
    } else {
      backward(passes, i, all && action.micro_batch + 1 == count);
    }
  }
  stats_.steps += steady_clock().now() - start;
  {
    const PhaseScope phase = context_.timer.phase(Phase::communication);
    finish_sends();
    if (all) {
      parallel_->finish(patience());
      passes.gradients_done();
    }
  }
  const PhaseScope phase = context_.timer.phase(Phase::optimizer);
  limit();
  optimizer_->step();
}

// The norm of all stages' gradients together.
void PipelineStrategy::limit() {
  const std::vector<Tensor> gradients = optimizer_->gradients();
  if (limits_.value) clip_grad_value(gradients, *limits_.value);
  if (!limits_.norm) return;
  const Tensor own = total_norm(gradients);
  const Tensor squares = mul(own, own);
  groups_.activations.all_reduce(span_of(squares), ReduceOp::sum, "norm of the gradients")->wait(patience());
  squares.mark_modified();
  scale_to_norm(gradients, sqrt(squares), *limits_.norm);
}

Tensors PipelineStrategy::evaluate(const Tensors& inputs) {
  const NoGrad no_grad;
  const Tensor x = is_first() ? inputs.front() : receive(groups_.activations.rank() - 1, groups_.activations);
  const Tensor y = (*stage_)(x);
  if (is_last()) return {y};
  send(y, groups_.activations.rank() + 1, groups_.activations);
  finish_sends();
  return {};
}

void PipelineStrategy::load(const SavedState& state, const Deadline& deadline) {
  check_values_together(*state.model, context_.communicator, deadline);
  check_values_together(*state.optimizer, context_.communicator, deadline);
  stage_->load_state_dict(read_own(*state.model, stage_->state_dict(), context_.device));
  optimizer_->load_state(read_own(*state.optimizer, stage_->named_parameters(), context_.device));
}

// Of the copies of a stage each writes some: the n-th tensor is the n-th one's.
StateParts PipelineStrategy::save() {
  const auto own = [&](const NamedTensors& tensors) {
    NamedTensors mine;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (static_cast<int>(i % static_cast<std::size_t>(groups_.copies.size())) == groups_.copies.rank())
        mine.push_back(tensors[i]);
    }
    return whole(mine);
  };
  return {own(stage_->state_dict()), own(optimizer_->named_state())};
}

Replicas PipelineStrategy::replicas() {
  NamedTensors tensors = stage_->named_parameters();
  for (auto& state : optimizer_->named_state()) tensors.push_back(std::move(state));
  return {&groups_.copies, std::move(tensors)};
}

void PipelineStrategy::exchange_alone(const Deadline& deadline) {
  if (!idle_) idle_ = parallel_->make_idle_reducer();
  for (std::size_t index = idle_->slot_count(); index-- > 0;) idle_->mark_ready(index);
  idle_->finish(deadline);
}

}  // namespace dtrain
