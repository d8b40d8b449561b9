#include "parallel/schedule/pipeline_strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "parallel/span_of.h"
#include "parallel/sync/part_tree.h"
#include "parallel/sync/sharded/shard_state.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/joining.h"
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

/// Of the copies of a stage one has each share, or with virtual workers some parts.
DataShare share_of(const Communicator& copies, const PipelineOptions& options) {
  const int parts = options.virtual_workers;
  if (parts == 0) return {copies.rank(), copies.size()};
  const bool cuts = options.shard && options.shard->stage != ShardStage::optimizer;
  if (parts < copies.size() || options.chunks > 1 || cuts) {
    throw UsageError(fmt::format(
        "pipeline: expected at least one part for each of {} copies, one chunk a stage and whole gradients "
        "beside virtual workers, got {} parts, {} chunks{}",
        copies.size(), parts, options.chunks, cuts ? " and ranges" : ""));
  }
  const PartRange run = parts_of(parts, copies.rank(), copies.size());
  return {run.first, parts, run.count()};
}

}  // namespace

PipelineStrategy::PipelineStrategy(const StrategyContext& context, const PipelineGroups& groups,
                                   PipelineOptions options)
    : context_(context),
      groups_(groups),
      options_(std::move(options)),
      share_(share_of(groups_.copies, options_)),
      choice_(options_.cut, stages(), stages() * options_.chunks),
      alive_(static_cast<std::size_t>(options_.chunks)) {}

PipelineStrategy::~PipelineStrategy() = default;

void PipelineStrategy::prepare(const TrainingParts& parts, const Deadline& deadline) {
  limits_ = parts.limits;
  scaler_ = parts.scaler;
  before_update_ = parts.before_update;
  choice_.decide(parts, context_.device, context_.communicator, deadline);
  const std::unique_ptr<Module> whole = parts.build(context_.device);
  const auto* const chained = dynamic_cast<const Chained*>(whole.get());
  if (chained == nullptr)
    throw UsageError("pipeline: expected a network that is a chain of parts, got one that is not");
  if (trainable_parameters(*whole).empty())
    throw UsageError("pipeline: expected a network with a parameter that requires a gradient, got none");
  cut(*whole, chained->chain());
  sharing_ = make_sharing(parts);
  optimizer_ = parts.make_optimizer(sharing_->updated());
  guard_ = parts.update_guard();
  if (guard_ != nullptr) guard_->attach(*optimizer_);
  if (GradientExchange* exchange = remembers(); exchange != nullptr && scaler_ != nullptr)
    exchange->await_decisions();
}

std::unique_ptr<StageSharing> PipelineStrategy::make_sharing(const TrainingParts& parts) {
  const bool deals = options_.shard && options_.shard->stage == ShardStage::optimizer;
  if (trainable_parameters(*stage_).empty())
    return share_frozen(*stage_, groups_.copies, options_.virtual_workers);
  if (options_.virtual_workers > 0)
    return share_parts(*stage_, groups_.copies, context_.device, options_.virtual_workers, deals);
  if (!options_.shard || deals) return share_whole(*stage_, groups_.copies, options_.reducer, deals);
  ShardOptions shard = *options_.shard;
  shard.patience = context_.patience;
  return share_ranges(*stage_, alive_.size(), groups_.copies, shard,
                      parts.slices ? parts.slices(*stage_) : std::map<std::string, TensorPart>());
}

// The c-th chunk of stage s is the run of parts number c · stages + s.
void PipelineStrategy::cut(const Module& whole, const std::vector<ChainPart>& chain) {
  const auto runs = static_cast<std::size_t>(stages()) * alive_.size();
  const auto ends = choice_.ends(chain);
  std::vector<Chunk> own;
  std::map<std::string, int> stage_of_module;
  for (std::size_t run = 0, begin = 0; run < runs; begin = ends[run++]) {
    const int holder = static_cast<int>(run) % stages();
    const auto at = [&](std::size_t part) { return chain.begin() + static_cast<std::ptrdiff_t>(part); };
    Chunk chunk(at(begin), at(ends[run]));
    if (std::ranges::all_of(chunk, [](const ChainPart& part) { return parameter_count(part) == 0; })) {
      throw UsageError(fmt::format(
          "pipeline: expected parameters in each of the {} chunks of the network, got none in number {}",
          runs, run + 1));
    }
    for (const ChainPart& part : chunk) {
      for (const auto& [name, module] : part.modules) stage_of_module.emplace(name, holder);
    }
    if (holder == stage()) own.push_back(std::move(chunk));
  }
  stage_ = std::make_unique<StageModule>(std::move(own));
  order_ = ParameterOrder(whole);
  ties_ = Ties(
      whole,
      [&](const std::string& name) {
        for (const auto& [module, holder] : stage_of_module) {
          if (name.starts_with(module + ".")) return holder;
        }
        throw UsageError("pipeline: expected each parameter in a part of the network, got none with " + name);
      },
      stage());
}

void PipelineStrategy::send(const Tensor& tensor, int to, Communicator& group) {
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

Tensor PipelineStrategy::receive(int from, Communicator& group) {
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

void PipelineStrategy::finish_sends() {
  for (const Sent& sent : sent_) sent.work->wait(patience());
  sent_.clear();
}

template <class Body>
void PipelineStrategy::compute(Phase phase, const Body& body) {
  const PhaseScope scope = context_.timer.phase(phase);
  const TimePoint start = steady_clock().now();
  body();
  stats_.computing += steady_clock().now() - start;
}

void PipelineStrategy::forward(Passes& passes, std::size_t chunk, std::size_t i) {
  // On every stage: it keys dropout's masks, and the last one needs the targets.
  const Tensors inputs = passes.inputs(i);
  if (inputs.size() != 1)
    throw UsageError(fmt::format("pipeline: expected a network of one input, got {}", inputs.size()));
  Alive& alive = alive_[chunk][i];
  if (!is_first(chunk)) alive.input = receive(before(), groups_.links.activations(before()));
  sharing_->begin_use(ParameterUse::forward);
  compute(Phase::forward, [&] {
    alive.output = stage_->run(chunk, is_first(chunk) ? inputs.front() : alive.input);
    if (is_last(chunk)) alive.output = passes.loss(i, {alive.output});
  });
  sharing_->after_forward(i, passes.count());
  if (!is_last(chunk)) send(alive.output, behind(), groups_.links.activations(stage()));
  if (chunk + 1 == alive_.size() && i + 1 == passes.count()) passes.losses_done();
}

// Each chunk's gradients are final after its last micro-batch. What the stage before waits for goes before
// what the copies share.
void PipelineStrategy::backward(Passes& passes, std::size_t chunk, std::size_t i, bool exchange) {
  Alive& alive = alive_[chunk][i];
  Tensor grad;
  // None comes where all up to here is frozen, and an undefined one where the output was not used.
  if (!is_last(chunk) && alive.output.requires_grad())
    grad = receive(behind(), groups_.links.gradients(stage()));
  const auto run = [&] {
    if (is_last(chunk))
      return start_backward(alive.output, passes.weight(i) / sharing_->loss_divisor(), scaler_);
    if (grad.defined()) alive.output.backward(grad);
  };
  const StageBackward which{chunk, i + 1 == passes.count(), exchange};
  compute(Phase::backward, [&] { sharing_->run_backward(which, run); });
  if (!is_first(chunk) && alive.input.requires_grad())
    send(alive.input.grad(), before(), groups_.links.gradients(before()));
  alive = {};
  const PhaseScope phase = context_.timer.phase(Phase::communication);
  sharing_->after_backward(which);
}

void PipelineStrategy::run(Passes& passes, std::span<const StageAction> actions, bool exchange) {
  for (const StageAction& action : actions) {
    const auto i = static_cast<std::size_t>(action.micro_batch);
    const auto chunk = static_cast<std::size_t>(action.chunk);
    if (action.kind == StageAction::Kind::forward) {
      forward(passes, chunk, i);
    } else {
      backward(passes, chunk, i, exchange);
    }
  }
}

void PipelineStrategy::step(Passes& passes, Exchange exchange) {
  const bool all = exchange == Exchange::all;
  if (options_.virtual_workers > 0 && passes.count() != static_cast<std::size_t>(share_.parts)) {
    throw UsageError(fmt::format("pipeline: expected a micro-batch for each of {} parts of this copy, got {}",
                                 share_.parts, passes.count()));
  }
  sharing_->begin_step();
  for (auto& alive : alive_) alive.assign(passes.count(), {});
  const auto actions =
      stage_actions(options_.schedule, stage(), stages(), static_cast<int>(passes.count()), options_.chunks);
  stats_.most_alive = std::max(stats_.most_alive, most_alive(actions));
  run(passes, actions, all);
  {
    const PhaseScope phase = context_.timer.phase(Phase::communication);
    finish_sends();
    if (all) {
      sharing_->finish(patience());
      ties_.add_up_gradients(sharing_->parameters(), groups_.links.stages(), patience());
      passes.gradients_done();
    } else {
      sharing_->drop_step();
      if (cuts_ranges()) return;  // there is nothing to update by
    }
  }
  const PhaseScope phase = context_.timer.phase(Phase::optimizer);
  update();
}

// Of an overflow one stage may know alone: whether there is an update is said by all ranks.
void PipelineStrategy::update() {
  if (guard_ != nullptr) {
    guard_->inspect(gradients());
    agree_on_overflow(*guard_, context_.communicator, patience());
  }
  if (GradientExchange* exchange = remembers(); exchange != nullptr && scaler_ != nullptr)
    exchange->decided(scaler_->found());
  if (before_update_) before_update_();
  limit();
  optimizer_->step();
  if (guard_ != nullptr) guard_->update();
  sharing_->take_update(patience());
}

std::vector<Tensor> PipelineStrategy::gradients() const {
  std::vector<Tensor> gradients;
  for (const auto& [name, tensor] : sharing_->parameters()) gradients.push_back(tensor.grad());
  return gradients;
}

// The norm of all stages' gradients together, with the bits that one process gets from all of them where they
// are whole; ranges are added up over the copies first.
void PipelineStrategy::limit() {
  const NoGrad no_grad;
  const std::vector<Tensor> gradients = this->gradients();
  if (limits_.value) clip_grad_value(gradients, *limits_.value);
  if (!limits_.norm) return;
  Tensors norms(order_.size(), Tensor::zeros({}, context_.device));
  for (const auto& [name, tensor] : sharing_->parameters()) {
    if (!ties_.is_copy(name) && tensor.grad().defined())
      norms[order_.at(name)] = gradient_norm(tensor.grad());
  }
  Tensor all = stack(norms);  // of each parameter one stage has the norm, the others 0
  if (ranges() != nullptr) {
    const Tensor squares = square(all);
    add_up(squares, *ranges());
    all = sqrt(squares);
  }
  add_up(all, groups_.links.stages());
  scale_to_norm(gradients, norm_of_norms(all), *limits_.norm);
}

void PipelineStrategy::add_up(const Tensor& numbers, Communicator& ranks) {
  ranks.all_reduce(span_of(numbers), ReduceOp::sum, "norms of the gradients")->wait(patience());
  numbers.mark_modified();
}

void PipelineStrategy::settle(const Deadline& deadline) {
  sharing_->settle(deadline);
  if (GradientExchange* exchange = remembers()) exchange->settle(groups_.copies, deadline);
}

Tensors PipelineStrategy::evaluate(const Tensors& inputs) {
  const NoGrad no_grad;
  sharing_->begin_use(ParameterUse::evaluation);
  Tensors outputs;
  for (std::size_t chunk = 0; chunk < alive_.size(); ++chunk) {
    const Tensor x =
        is_first(chunk) ? inputs.front() : receive(before(), groups_.links.activations(before()));
    const Tensor y = stage_->run(chunk, x);
    if (is_last(chunk)) {
      outputs = {y};
    } else {
      send(y, behind(), groups_.links.activations(stage()));
    }
  }
  finish_sends();
  return outputs;
}

void PipelineStrategy::load(const SavedState& state, const Deadline& deadline) {
  check_values_together(*state.model, context_.communicator, deadline);
  check_values_together(*state.optimizer, context_.communicator, deadline);
  sharing_->load_model(*state.model);
  const NamedTensors own = sharing_->updated();
  optimizer_->load_state(sharing_->load_state(*state.optimizer, [&](const std::string& saved) {
    auto name = ties_.copy_of(saved).value_or(saved);
    return belongs_to(name, own) ? std::optional(std::move(name)) : std::nullopt;
  }));
  if (GradientExchange* exchange = remembers()) {
    const NamedTensors here = stage_->named_parameters();
    exchange->load(load_exchange_state(*state.optimizer, context_.device, [&](const std::string& name) {
      const bool is_everyones = name.find('.') == std::string::npos;
      return is_everyones || belongs_to(name, here) ? std::optional(name) : std::nullopt;
    }));
  }
}

StateParts PipelineStrategy::save() {
  NamedTensors state = optimizer_->named_state();
  std::erase_if(state, [&](const NamedTensor& named) { return ties_.is_copy(named.first); });
  StateParts parts = sharing_->save(state);
  if (remembers() == nullptr) return parts;
  for (SavedPart& part : written_here(remembered_here(), groups_.copies))
    parts.optimizer.push_back(std::move(part));
  return parts;
}

// Copies of tied weights lose something each, which they keep under their own names. What belongs to no
// parameter the first stage saves.
NamedTensors PipelineStrategy::remembered_here() {
  NamedTensors state = saved_state(remembers());
  const NamedTensors here = stage_->named_parameters();
  std::erase_if(state, [&](const NamedTensor& named) {
    return stage() > 0 && !belongs_to(*name_in_exchange(named.first), here);
  });
  return state;
}

}  // namespace dtrain
