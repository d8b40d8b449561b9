// Chooses and runs cuDNN's convolution algorithms. Only deterministic ones: a resumed run must end with the
// weights of an undisturbed one.
#include <array>
#include <optional>
#include <unordered_map>

#include "runtime/device/cuda/convolution/cudnn_plan.h"
#include "runtime/device/cuda/notices.h"

namespace dtrain::cuda {
namespace {

constexpr std::size_t kMostWorkspaceBytes = std::size_t{512} << 20;
constexpr int kMostAlgorithms = 16;  // more than any pass has
constexpr float kOne = 1, kZero = 0;

/// Takes the best of what cuDNN proposes, best first. It proposes other arithmetic than the descriptor asked
/// for too: without tensor cores only plain f32 will do, whose workspace is another.
template <class Result>
void choose(ConvPlan& plan, const std::array<Result, kMostAlgorithms>& results, int count,
            bool tensor_cores) {
  for (int i = 0; i < count; ++i) {
    const Result& result = results[static_cast<std::size_t>(i)];
    if (result.status != CUDNN_STATUS_SUCCESS || result.determinism != CUDNN_DETERMINISTIC) continue;
    if (result.memory > kMostWorkspaceBytes) continue;
    if (!tensor_cores && result.mathType != CUDNN_FMA_MATH) continue;
    plan.algorithm = static_cast<int>(result.algo);
    plan.workspace_bytes = result.memory;
    plan.usable = true;
    if (tensor_cores) {
      check(cudnnSetConvolutionMathType(plan.convolution.get(), result.mathType), "describe a convolution");
    }
    return;
  }
}

}  // namespace

class Convolutions::Plans {
 public:
  explicit Plans(const Context& context) : context_(context) {
    cudnnHandle_t handle = nullptr;
    check(cudnnCreate(&handle), "start cuDNN");
    handle_.reset(handle);
    check(cudnnSetStream(handle, context.stream), "give cuDNN its stream");
    cudnnActivationDescriptor_t identity = nullptr;
    check(cudnnCreateActivationDescriptor(&identity), "describe an activation");
    identity_.reset(identity);
    check(cudnnSetActivationDescriptor(identity, CUDNN_ACTIVATION_IDENTITY, CUDNN_NOT_PROPAGATE_NAN, 0.0),
          "describe an activation");
  }

  /// The plan for `key`; the arrays (x, w, y in the roles of the key's pass) are there to try algorithms on,
  /// what the pass writes is overwritten.
  ConvPlan& plan(const ConvKey& key, void* input, void* weight, void* output) {
    const auto found = plans_.find(key);
    if (found != plans_.end()) return found->second;
    const bool tensor_cores = key.dtype != DType::f32 || context_.options.tf32;
    ConvPlan plan = describe_convolution(key, tensor_cores);
    if (key.pass == ConvPass::forward) find_forward(plan, input, weight, output, tensor_cores);
    if (key.pass == ConvPass::backward_input) find_backward_input(plan, input, weight, output, tensor_cores);
    if (key.pass == ConvPass::backward_weight)
      find_backward_weight(plan, input, weight, output, tensor_cores);
    if (!plan.usable) {
      give_notice("cuDNN has no deterministic algorithm for " + describe(key) +
                  ": a direct kernel does it, many times slower");
    } else if (plan.untried) {
      give_notice("cuDNN would not try algorithms for " + describe(key) + ": algorithm " +
                  std::to_string(plan.algorithm) + " is used, which its heuristic names");
    }
    return plans_.emplace(key, std::move(plan)).first->second;
  }

  bool has(const ConvKey& key) const { return plans_.contains(key); }

  /// grad_input = its gradient + before · grad_input. False without an algorithm.
  bool run_backward_input(const ConvPlan& plan, const View& grad_output, const View& weight, float before,
                          const View& grad_input) {
    if (!plan.usable) return false;
    const Scratch workspace(context_.memory, plan.workspace_bytes);
    check(cudnnConvolutionBackwardData(
              handle(), &kOne, plan.weight.get(), weight.data, plan.output.get(), grad_output.data,
              plan.convolution.get(), static_cast<cudnnConvolutionBwdDataAlgo_t>(plan.algorithm),
              workspace.data(), plan.workspace_bytes, &before, plan.input.get(), grad_input.data),
          "convolve back to the input");
    return true;
  }

  cudnnHandle_t handle() const noexcept { return handle_.get(); }
  const Context& context() const noexcept { return context_; }
  cudnnActivationDescriptor_t identity() const noexcept { return identity_.get(); }

 private:
  template <class Result, class Find, class Guess>
  void settle(ConvPlan& plan, bool tensor_cores, Find find, Guess guess) {
    std::array<Result, kMostAlgorithms> results{};
    int count = 0;
    if (context_.options.autotune) {
      const Scratch workspace(context_.memory, kMostWorkspaceBytes);
      if (supported(find(&count, results.data(), workspace.data()), "try convolution algorithms"))
        choose(plan, results, count, tensor_cores);
    }
    if (plan.usable) return;
    plan.untried = context_.options.autotune;
    if (supported(guess(&count, results.data()), "choose a convolution algorithm"))
      choose(plan, results, count, tensor_cores);
  }

  void find_forward(ConvPlan& plan, const void* input, const void* weight, void* output, bool tensor_cores) {
    const auto x = plan.input.get(), y = plan.output.get();
    const auto w = plan.weight.get();
    const auto c = plan.convolution.get();
    settle<cudnnConvolutionFwdAlgoPerf_t>(
        plan, tensor_cores,
        [&](int* count, auto* results, void* memory) {
          return cudnnFindConvolutionForwardAlgorithmEx(handle(), x, input, w, weight, c, y, output,
                                                        kMostAlgorithms, count, results, memory,
                                                        kMostWorkspaceBytes);
        },
        [&](int* count, auto* results) {
          return cudnnGetConvolutionForwardAlgorithm_v7(handle(), x, w, c, y, kMostAlgorithms, count,
                                                        results);
        });
  }

  void find_backward_input(ConvPlan& plan, void* input, const void* weight, const void* output,
                           bool tensor_cores) {
    const auto x = plan.input.get(), y = plan.output.get();
    const auto w = plan.weight.get();
    const auto c = plan.convolution.get();
    settle<cudnnConvolutionBwdDataAlgoPerf_t>(
        plan, tensor_cores,
        [&](int* count, auto* results, void* memory) {
          return cudnnFindConvolutionBackwardDataAlgorithmEx(handle(), w, weight, y, output, c, x, input,
                                                             kMostAlgorithms, count, results, memory,
                                                             kMostWorkspaceBytes);
        },
        [&](int* count, auto* results) {
          return cudnnGetConvolutionBackwardDataAlgorithm_v7(handle(), w, y, c, x, kMostAlgorithms, count,
                                                             results);
        });
  }

  void find_backward_weight(ConvPlan& plan, const void* input, void* weight, const void* output,
                            bool tensor_cores) {
    const auto x = plan.input.get(), y = plan.output.get();
    const auto w = plan.weight.get();
    const auto c = plan.convolution.get();
    settle<cudnnConvolutionBwdFilterAlgoPerf_t>(
        plan, tensor_cores,
        [&](int* count, auto* results, void* memory) {
          return cudnnFindConvolutionBackwardFilterAlgorithmEx(handle(), x, input, y, output, c, w, weight,
                                                               kMostAlgorithms, count, results, memory,
                                                               kMostWorkspaceBytes);
        },
        [&](int* count, auto* results) {
          return cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle(), x, y, c, w, kMostAlgorithms, count,
                                                               results);
        });
  }

  Context context_;
  UniqueDnn handle_;
  UniqueActivation identity_;
  std::unordered_map<ConvKey, ConvPlan, ConvKeyHash> plans_;
};

Convolutions::Convolutions(const Context& context) : plans_(std::make_unique<Plans>(context)) {}
Convolutions::~Convolutions() = default;

bool Convolutions::forward(const ConvKey& key, const View& input, const View& weight, const View& bias,
                           Activation activation, const View& output, bool& finished) {
  ConvPlan& plan = plans_->plan(key, input.data, weight.data, output.data);
  finished = false;
  if (!plan.usable) return false;
  const Scratch workspace(plans_->context().memory, plan.workspace_bytes);
  const auto algorithm = static_cast<cudnnConvolutionFwdAlgo_t>(plan.algorithm);
  // cuDNN adds a bias without an activation only in this one algorithm. Its relu takes no NaN through, and is
  // refused where it should: ours does, and adds the bias on its way.
  const bool fits =
      activation == Activation::none && algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  if (plan.can_finish && fits && bias.data != nullptr && bias.strides[0] == 1) {
    const cudnnStatus_t status = cudnnConvolutionBiasActivationForward(
        plans_->handle(), &kOne, plan.input.get(), input.data, plan.weight.get(), weight.data,
        plan.convolution.get(), algorithm, workspace.data(), plan.workspace_bytes, &kZero, plan.output.get(),
        output.data, plan.bias.get(), bias.data, plans_->identity(), plan.output.get(), output.data);
    finished = plan.can_finish = supported(status, "convolve");
    if (finished) return true;
    give_notice("cuDNN does not add the bias in " + describe(key) + ", algorithm " +
                std::to_string(plan.algorithm) + ": a kernel of its own does");
  }
  check(cudnnConvolutionForward(plans_->handle(), &kOne, plan.input.get(), input.data, plan.weight.get(),
                                weight.data, plan.convolution.get(), algorithm, workspace.data(),
                                plan.workspace_bytes, &kZero, plan.output.get(), output.data),
        "convolve");
  return true;
}

bool Convolutions::backward_input(const ConvKey& key, const View& grad_output, const View& weight,
                                  const View& grad_input) {
  const ConvPlan& plan = plans_->plan(key, grad_input.data, weight.data, grad_output.data);
  return plans_->run_backward_input(plan, grad_output, weight, kZero, grad_input);
}

bool Convolutions::add_backward_input(const ConvKey& key, const View& grad_output, const View& weight,
                                      const View& grad_input) {
  std::optional<Scratch> to_try_on;  // trying algorithms overwrites the output
  if (!plans_->has(key)) {
    to_try_on.emplace(plans_->context().memory,
                      static_cast<std::size_t>(grad_input.numel()) * size_of(grad_input.dtype));
  }
  const ConvPlan& plan =
      plans_->plan(key, to_try_on ? to_try_on->data() : nullptr, weight.data, grad_output.data);
  return plans_->run_backward_input(plan, grad_output, weight, kOne, grad_input);
}

bool Convolutions::backward_weight(const ConvKey& key, const View& input, const View& grad_output,
                                   const View& grad_weight) {
  ConvPlan& plan = plans_->plan(key, input.data, grad_weight.data, grad_output.data);
  if (!plan.usable) return false;
  const Scratch workspace(plans_->context().memory, plan.workspace_bytes);
  check(cudnnConvolutionBackwardFilter(
            plans_->handle(), &kOne, plan.input.get(), input.data, plan.output.get(), grad_output.data,
            plan.convolution.get(), static_cast<cudnnConvolutionBwdFilterAlgo_t>(plan.algorithm),
            workspace.data(), plan.workspace_bytes, &kZero, plan.weight.get(), grad_weight.data),
        "convolve back to the weight");
  return true;
}

}  // namespace dtrain::cuda
