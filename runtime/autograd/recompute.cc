#include "runtime/autograd/recompute.h"

#include <optional>
#include <string>
#include <utility>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/backward_pass.h"
#include "runtime/autograd/node.h"
#include "runtime/base/draw_guard.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

// Per thread for the same reason as the recording flag in grad_mode.cc.
thread_local bool second_run = false;

class SecondRun {
 public:
  SecondRun() noexcept : before_(std::exchange(second_run, true)) {}
  ~SecondRun() { second_run = before_; }
  SecondRun(const SecondRun&) = delete;
  SecondRun& operator=(const SecondRun&) = delete;

 private:
  bool before_;
};

struct RecomputeSaved {
  TensorsFunction function;
  std::size_t input_count = 0;  ///< the first of `tensors`; the rest are parameters
  std::vector<bool> defined;    ///< of the inputs
  std::vector<Saved> tensors;
  AutocastState precision;
  std::vector<std::pair<DType, Dims>> results;  ///< of the first run
};

std::vector<Tensor> run_again(const RecomputeSaved& saved, const std::vector<Tensor>& inputs) {
  const GradMode recorded(true);
  const SecondRun second;
  const DrawGuard draws;
  const Autocast precision(saved.precision);
  std::vector<Tensor> results = saved.function(inputs);
  for (std::size_t i = 0; i < saved.results.size(); ++i) {
    const auto& [dtype, shape] = saved.results[i];
    const Tensor again = i < results.size() ? results[i] : Tensor();
    if (again.defined() && again.shape() == shape && again.dtype() == dtype) continue;
    throw UsageError("backward of recomputed: expected the function to give " + std::string(name_of(dtype)) +
                     " " + shape.to_string() + " as before, got " + again.describe() +
                     "; it must compute the same each time");
  }
  return results;
}

/// What the pass that called wants a gradient of: its place among the inputs of the recomputed operation, and
/// the tensor of the second run.
struct Wanted {
  int place = 0;
  Tensor tensor;
};

/// What operations recorded from now on outnumber, and those that `wanted` come from do not.
std::uint64_t floor_above(const std::vector<Wanted>& wanted) {
  for (const auto& [place, tensor] : wanted) {
    const auto state = grad_state(tensor);
    if (state != nullptr && state->node != nullptr) number_after(state->node->sequence());
  }
  return reserve_sequence();
}

/// Adds the gradients of `wanted` by operations above `floor` to what the pass that called has of them, one
/// after the other as without recomputation: sums of parts would be rounded otherwise. Parameters may be
/// results themselves (a replica's copies): what they come from is left to that pass.
void deliver_above(std::uint64_t floor, const std::vector<BackwardPass::Root>& roots,
                   const std::vector<Wanted>& wanted, GradSink& sink) {
  std::vector<BackwardPass::Captured> captured;
  for (const auto& [place, tensor] : wanted) {
    // An input of the second run is another leaf than that of the first.
    const auto state = grad_state(tensor);
    const bool in_place =
        state == sink.node()->inputs()[static_cast<std::size_t>(place)].state && sink.is_leaf_in_place(place);
    captured.push_back({state, in_place ? Tensor() : sink.take_total(place), in_place});
  }
  std::vector<Tensor> found;
  std::vector<bool> reached;
  {
    BackwardPass pass({});
    pass.capture(captured, floor);
    pass.run(roots);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      found.push_back(pass.captured(i));
      reached.push_back(captured[i].in_place && pass.reached(i));
    }
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (reached[i]) sink.delivered_in_place(wanted[i].place);
    if (!captured[i].in_place && found[i].defined())
      sink.deliver(wanted[i].place, once_differentiable(sink, roots[0].seed, std::move(found[i])));
  }
}

/// An input before the i-th that is the same tensor: they have one gradient.
std::optional<std::size_t> same_before(const GradSink& sink, std::size_t i) {
  const auto& edges = sink.node()->inputs();
  for (std::size_t j = 0; j < i; ++j) {
    if (edges[i].state != nullptr && edges[j].state == edges[i].state) return j;
  }
  return std::nullopt;
}

void recompute_backward(const RecomputeSaved& saved, const std::vector<Tensor>& grads, GradSink& sink) {
  std::vector<Wanted> wanted;
  std::vector<Tensor> inputs(saved.input_count);
  // Leaves: the pass below ends here, whatever the inputs were computed from.
  for (std::size_t i = 0; i < saved.input_count; ++i) {
    if (!saved.defined[i]) continue;
    if (const auto same = same_before(sink, i)) {
      inputs[i] = inputs[*same];
      continue;
    }
    inputs[i] = saved.tensors[i].get(sink).detach();
    if (sink.wants(static_cast<int>(i))) inputs[i].set_requires_grad(true);
  }
  // Parameters first: the sooner they are delivered, the sooner they can be sent to other ranks.
  const std::size_t count = saved.tensors.size();
  for (std::size_t k = 0; k < count; ++k) {
    const std::size_t i = (saved.input_count + k) % count;
    if (!sink.wants(static_cast<int>(i)) || (i < saved.input_count && same_before(sink, i))) continue;
    wanted.push_back({static_cast<int>(i), i < saved.input_count ? inputs[i] : saved.tensors[i].get(sink)});
  }
  const std::uint64_t floor = floor_above(wanted);
  const std::vector<Tensor> results = run_again(saved, inputs);
  std::vector<BackwardPass::Root> roots;
  for (std::size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].defined() || !results[i].requires_grad()) continue;  // depends on none of them after all
    roots.push_back({results[i], grads[i]});
  }
  if (!roots.empty()) deliver_above(floor, roots, wanted, sink);
}

/// The results of the first run, without history.
std::vector<Tensor> run_first(const TensorsFunction& function, const std::vector<Tensor>& inputs) {
  const NoGrad no_grad;
  const DrawGuard draws;  // the second run's would be others
  std::vector<Tensor> results = function(inputs);
  for (Tensor& result : results) result = result.detach();  // it may be an input itself
  return results;
}

}  // namespace

bool recomputing() noexcept { return second_run; }

std::vector<Tensor> recomputed(TensorsFunction function, const std::vector<Tensor>& inputs,
                               const std::vector<Tensor>& parameters) {
  std::vector<Tensor> tensors = inputs;
  tensors.insert(tensors.end(), parameters.begin(), parameters.end());
  if (!recording(tensors)) return function(inputs);
  RecomputeSaved saved;
  saved.input_count = inputs.size();
  for (const Tensor& input : inputs) saved.defined.push_back(input.defined());
  for (const Tensor& tensor : tensors) saved.tensors.push_back(Saved::input_if(tensor.defined(), tensor));
  saved.precision = AutocastState::now();
  std::vector<Tensor> results = run_first(function, inputs);
  for (const Tensor& result : results) saved.results.emplace_back(result.dtype(), result.shape());
  saved.function = std::move(function);
  if (results.size() == 1) {
    results[0] = record("recomputed", std::move(results[0]), tensors,
                        [saved = std::move(saved)](const Tensor& grad, GradSink& sink) {
                          recompute_backward(saved, {grad}, sink);
                        });
    return results;
  }
  return record_several("recomputed", std::move(results), tensors,
                        [saved = std::move(saved)](const std::vector<Tensor>& grads, GradSink& sink) {
                          recompute_backward(saved, grads, sink);
                        });
}

Tensor recomputed(TensorFunction function, const Tensor& input, const std::vector<Tensor>& parameters) {
  if (!input.defined()) throw UsageError("recomputed: expected an input, got an undefined tensor");
  const TensorsFunction several = [function = std::move(function)](const std::vector<Tensor>& inputs) {
    return std::vector<Tensor>{function(inputs[0])};
  };
  return recomputed(several, std::vector<Tensor>{input}, parameters)[0];
}

}  // namespace dtrain
