#include "runtime/autograd/recompute.h"

#include <string>
#include <utility>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/gradients.h"
#include "runtime/autograd/node.h"
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
  TensorFunction function;
  std::vector<Saved> inputs;  ///< the function's input, then the parameters
  AutocastState precision;
  Dims shape;  ///< of the first result
  DType dtype = DType::f32;
};

Tensor run_again(const RecomputeSaved& saved, const Tensor& input) {
  const GradMode recorded(true);
  const SecondRun second;
  const Autocast precision(saved.precision);
  Tensor result = saved.function(input);
  if (result.shape() == saved.shape && result.dtype() == saved.dtype) return result;
  throw UsageError("backward of recomputed: expected the function to give " +
                   std::string(name_of(saved.dtype)) + " " + saved.shape.to_string() + " as before, got " +
                   result.describe() + "; it must compute the same each time");
}

void recompute_backward(const RecomputeSaved& saved, const Tensor& grad, GradSink& sink) {
  std::vector<Tensor> wanted;
  std::vector<int> places;
  // A leaf: the pass below ends here, whatever the input was computed from.
  Tensor input = saved.inputs[0].get(sink).detach();
  if (sink.wants(0)) input.set_requires_grad(true);
  // Parameters first: the sooner they are delivered, the sooner they can be sent to other ranks.
  for (int i = 1; i <= static_cast<int>(saved.inputs.size()); ++i) {
    const int place = i % static_cast<int>(saved.inputs.size());
    if (!sink.wants(place)) continue;
    wanted.push_back(place == 0 ? input : saved.inputs[static_cast<std::size_t>(place)].get(sink));
    places.push_back(place);
  }
  const Tensor result = run_again(saved, input);
  if (!result.requires_grad()) return;  // depends on none of them after all
  std::vector<Tensor> found = gradients(result, wanted, grad);
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i].defined()) sink.deliver(places[i], differentiable_once(sink, grad, std::move(found[i])));
  }
}

}  // namespace

bool recomputing() noexcept { return second_run; }

Tensor recomputed(TensorFunction function, const Tensor& input, const std::vector<Tensor>& parameters) {
  std::vector<Tensor> inputs{input};
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  if (!recording(inputs)) return function(input);
  RecomputeSaved saved;
  for (const Tensor& tensor : inputs) saved.inputs.push_back(Saved::input(tensor));
  saved.precision = AutocastState::now();
  Tensor result;
  {
    const NoGrad no_grad;
    result = function(input).detach();  // it may be the input itself
  }
  saved.shape = result.shape();
  saved.dtype = result.dtype();
  saved.function = std::move(function);
  return record("recomputed", std::move(result), inputs,
                [saved = std::move(saved)](const Tensor& grad, GradSink& sink) {
                  recompute_backward(saved, grad, sink);
                });
}

}  // namespace dtrain
