#include "parallel/schedule/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "parallel/span_of.h"
#include "runtime/base/error.h"
#include "runtime/nn/trainable.h"

namespace dtrain {
namespace {

/// What goes ahead of a tensor: its dtype (kNothing where none follows), whether it is channels-last, whether
/// its gradient is wanted, its rank and extents.
using Header = std::array<std::int64_t, 11>;
constexpr std::size_t kBeforeExtents = 4;
constexpr std::int64_t kNothing = -1;

/// Kernels may add up in another order where elements lie in another order, so that crosses the network too.
Header header_of(const Tensor& tensor) {
  if (!tensor.defined()) return {kNothing};
  Header header{static_cast<std::int64_t>(tensor.dtype()),
                tensor.memory_format() == MemoryFormat::channels_last ? 1 : 0, tensor.requires_grad() ? 1 : 0,
                tensor.rank()};
  for (int i = 0; i < tensor.rank(); ++i)
    header[static_cast<std::size_t>(i) + kBeforeExtents] = tensor.size(i);
  return header;
}

Tensor tensor_for(std::span<const std::int64_t> header, const std::shared_ptr<Device>& device) {
  const auto extents = header.subspan(kBeforeExtents, static_cast<std::size_t>(header[3]));
  return Tensor::empty(Dims(std::vector<std::int64_t>(extents.begin(), extents.end())), device,
                       static_cast<DType>(header[0]),
                       header[1] == 1 ? MemoryFormat::channels_last : MemoryFormat::contiguous);
}

}  // namespace

Pipeline::Pipeline(const StrategyContext& context, const PipelineLinks& links, const StageOptions& options)
    : context_(context),
      links_(links),
      options_(options),
      choice_(options_.cut, stage_count(), stage_count() * options_.chunks),
      layout_{.stages = links.stages()},
      alive_(static_cast<std::size_t>(options_.chunks)) {}

std::unique_ptr<Module> Pipeline::build(const ModelFactory& factory, PassHooks& /*hooks*/,
                                        const Deadline& deadline) {
  scaler_ = factory.scaler;
  choice_.decide(factory, context_.device, context_.communicator, deadline);
  const std::unique_ptr<Module> whole = factory.build(context_.device);
  const auto* const chained = dynamic_cast<const Chained*>(whole.get());
  if (chained == nullptr)
    throw UsageError("pipeline: expected a network that is a chain of parts, got one that is not");
  check_learns(*whole);
  auto stage = cut(*whole, chained->chain());
  stage_ = stage.get();
  return stage;
}

// The c-th chunk of stage s is the run of parts number c · stages + s.
std::unique_ptr<StageModule> Pipeline::cut(const Module& whole, const std::vector<LayerUnit>& chain) {
  const auto runs = static_cast<std::size_t>(stage_count()) * alive_.size();
  const auto ends = choice_.ends(chain);
  std::vector<Chunk> own;
  std::map<std::string, int> stage_of_module;
  for (std::size_t run = 0, begin = 0; run < runs; begin = ends[run++]) {
    const int holder = static_cast<int>(run) % stage_count();
    const auto at = [&](std::size_t part) { return chain.begin() + static_cast<std::ptrdiff_t>(part); };
    Chunk chunk(at(begin), at(ends[run]));
    if (std::ranges::all_of(chunk, [](const LayerUnit& part) { return parameter_count(part) == 0; })) {
      throw UsageError(fmt::format(
          "pipeline: expected parameters in each of the {} chunks of the network, got none in number {}",
          runs, run + 1));
    }
    for (const LayerUnit& part : chunk) {
      for (const auto& [name, module] : part.modules) stage_of_module.emplace(name, holder);
    }
    if (holder == stage()) own.push_back(std::move(chunk));
  }
  layout_.count = whole.named_parameters().size();
  layout_.parameters = parameters_of_stage(
      whole,
      [&](const std::string& name) {
        for (const auto& [module, holder] : stage_of_module) {
          if (name.starts_with(module + ".")) return holder;
        }
        throw UsageError("pipeline: expected each parameter in a part of the network, got none with " + name);
      },
      stage());
  return std::make_unique<StageModule>(std::move(own));
}

void Pipeline::send(const Tensor& tensor, int to, Communicator& group) {
  const Header header = header_of(tensor);
  const Tensor ahead = Tensor::from_data(std::span<const std::int64_t>(header),
                                         {static_cast<std::int64_t>(header.size())}, context_.device);
  std::erase_if(sent_, [](const Sent& sent) {
    if (!sent.work->done()) return false;
    sent.work->wait(Deadline::never());
    return true;
  });
  sent_.push_back({group.send(span_of(ahead), to, "shape"), ahead});
  if (!tensor.defined()) return;
  const Tensor dense = tensor.detach().contiguous(tensor.memory_format());
  sent_.push_back({group.send(span_of(dense), to, "micro-batch"), dense});
  stats_.bytes += static_cast<std::uint64_t>(dense.numel()) * size_of(dense.dtype());
}

Tensor Pipeline::receive(int from, Communicator& group) {
  const PhaseScope phase = context_.timer.phase(Phase::communication);
  const TimePoint start = steady_clock().now();
  const Tensor ahead = Tensor::empty({std::tuple_size_v<Header>}, context_.device, DType::i64);
  group.receive(span_of(ahead), from, "shape")->wait(patience());
  ahead.mark_modified();
  const auto header = ahead.to_vector<std::int64_t>();
  if (header[0] == kNothing) return {};
  Tensor tensor = tensor_for(header, context_.device);
  group.receive(span_of(tensor), from, "micro-batch")->wait(patience());
  tensor.mark_modified();
  tensor.set_requires_grad(header[2] == 1);
  stats_.waiting += steady_clock().now() - start;
  return tensor;
}

void Pipeline::finish_sends() {
  for (const Sent& sent : sent_) sent.work->wait(patience());
  sent_.clear();
}

template <class Body>
void Pipeline::compute(Phase phase, const Body& body) {
  const PhaseScope scope = context_.timer.phase(phase);
  const TimePoint start = steady_clock().now();
  body();
  stats_.computing += steady_clock().now() - start;
}

void Pipeline::forward(const Step& step, std::size_t chunk, std::size_t i) {
  // On every stage: it keys dropout's masks, the last one needs the targets, and each what is fed beside.
  const Tensors inputs = step.passes.inputs(i);
  Alive& alive = alive_[chunk][i];
  if (!is_first(chunk)) alive.input = receive(before(), links_.activations(before()));
  step.hooks.begin_use(ParameterUse::forward);
  compute(Phase::forward, [&] {
    alive.output = stage_->run(chunk, is_first(chunk) ? inputs.front() : alive.input, beside_first(inputs));
    if (is_last(chunk)) alive.output = step.passes.loss(i, {alive.output});
  });
  step.hooks.after_forward(i, step.passes.count());
  if (!is_last(chunk)) send(alive.output, behind(), links_.activations(stage()));
  if (chunk + 1 == alive_.size() && i + 1 == step.passes.count()) step.passes.losses_done();
}

// Each chunk's gradients are final after its last micro-batch. What the stage before waits for goes before
// what the copies share.
void Pipeline::backward(const Step& step, std::size_t chunk, std::size_t i) {
  Alive& alive = alive_[chunk][i];
  Tensor grad;
  // None comes where all up to here is frozen, and an undefined one where the output was not used.
  if (!is_last(chunk) && alive.output.requires_grad()) grad = receive(behind(), links_.gradients(stage()));
  const auto run = [&] {
    if (is_last(chunk))
      return start_backward(alive.output, step.passes.weight(i) / step.hooks.loss_divisor(), scaler_);
    if (grad.defined()) alive.output.backward(grad);
  };
  const MicroBatchBackward which{chunk, i + 1 == step.passes.count(), step.exchange};
  compute(Phase::backward, [&] { step.hooks.run_backward(which, run); });
  if (!is_first(chunk) && alive.input.requires_grad())
    send(alive.input.grad(), before(), links_.gradients(before()));
  alive = {};
  step.hooks.after_backward(which);
}

void Pipeline::run(MicroBatches& passes, PassHooks& hooks, bool exchange) {
  for (auto& alive : alive_) alive.assign(passes.count(), {});
  const auto actions = stage_actions(options_.schedule, stage(), stage_count(),
                                     static_cast<int>(passes.count()), options_.chunks);
  stats_.most_alive = std::max(stats_.most_alive, most_alive(actions));
  const Step step{passes, hooks, exchange};
  for (const StageAction& action : actions) {
    const auto i = static_cast<std::size_t>(action.micro_batch);
    const auto chunk = static_cast<std::size_t>(action.chunk);
    action.kind == StageAction::Kind::forward ? forward(step, chunk, i) : backward(step, chunk, i);
  }
  const PhaseScope phase = context_.timer.phase(Phase::communication);
  finish_sends();
}

Tensors Pipeline::evaluate(const Tensors& inputs, PassHooks& hooks) {
  hooks.begin_use(ParameterUse::evaluation);
  Tensors outputs;
  for (std::size_t chunk = 0; chunk < alive_.size(); ++chunk) {
    const Tensor x = is_first(chunk) ? inputs.front() : receive(before(), links_.activations(before()));
    const Tensor y = stage_->run(chunk, x, beside_first(inputs));
    if (is_last(chunk)) {
      outputs = {y};
    } else {
      send(y, behind(), links_.activations(stage()));
    }
  }
  finish_sends();
  return outputs;
}

}  // namespace dtrain
