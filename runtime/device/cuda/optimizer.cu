// The optimizers' updates, PyTorch's rules operation by operation: one launch for all parameters of a dtype.
#include "runtime/device/cuda/cuda_kernels.h"
#include "runtime/device/cuda/launch.cuh"
#include "runtime/device/cuda/memory/slot_tables.h"

namespace dtrain::cuda {
namespace {

template <class C>
struct SgdRule {
  explicit SgdRule(const SgdStep& step)
      : lr(static_cast<C>(step.lr)),
        momentum(static_cast<C>(step.momentum)),
        keep(static_cast<C>(1 - step.dampening)),
        decay(static_cast<C>(step.weight_decay)),
        has_momentum(step.momentum != 0),
        nesterov(step.nesterov),
        first(step.first_step),
        attempts(step.attempts),
        skip(step.gate.skip.as<const float>()),
        skipped(step.gate.skipped.as<const std::int64_t>()),
        changes(step.changes.values.as<const double>()) {}

  __device__ bool begin() {
    if (skip != nullptr && *skip != 0.0F) return false;
    if (changes != nullptr) {
      lr = static_cast<C>(changes[0]);
      if (attempts >= 0) attempts += static_cast<std::int64_t>(changes[1]);
    }
    first = first || (skipped != nullptr && attempts == *skipped);
    return true;
  }

  template <class T>
  __device__ void operator()(const SlotEntry& slot, std::int64_t i) const {
    T& param = static_cast<T*>(slot.param)[i];
    const C p = load(param);
    const C g = load(static_cast<const T*>(slot.grad)[i]) + decay * p;
    if (!has_momentum) {
      param = cast<T>(p - lr * g);
      return;
    }
    T& kept = static_cast<T*>(slot.momentum)[i];
    const C buffer = first ? g : momentum * load(kept) + keep * g;
    kept = cast<T>(buffer);
    param = cast<T>(p - lr * (nesterov ? g + momentum * buffer : buffer));
  }

  C lr, momentum, keep, decay;
  bool has_momentum, nesterov, first;
  std::int64_t attempts;
  const float* skip;
  const std::int64_t* skipped;
  const double* changes;
};

template <class C>
struct AdamWRule {
  explicit AdamWRule(const AdamWStep& step)
      : beta1_rest(static_cast<C>(1 - step.beta1)),
        beta2(static_cast<C>(step.beta2)),
        beta2_rest(static_cast<C>(1 - step.beta2)),
        eps(static_cast<C>(step.eps)),
        decay(step.decoupled ? C{0} : static_cast<C>(step.weight_decay)),
        rule(step),
        skip(step.gate.skip.as<const float>()),
        skipped(step.gate.skipped.as<const std::int64_t>()),
        changes(step.changes.values.as<const double>()) {
    set_sizes(0);
  }

  /// What follows from the learning rate and the number of steps.
  __host__ __device__ void set_sizes(std::int64_t steps_skipped) {
    const auto t = static_cast<double>(rule.step - steps_skipped);
    shrink = static_cast<C>(1 - rule.lr * rule.decoupled_decay);
    size = static_cast<C>(rule.lr / (1 - pow(rule.beta1, t)));
    root = static_cast<C>(sqrt(1 - pow(rule.beta2, t)));
  }
  __device__ bool begin() {
    if (skip != nullptr && *skip != 0.0F) return false;
    if (changes != nullptr) {
      rule.lr = changes[0];
      rule.step += static_cast<std::int64_t>(changes[1]);
    }
    if (changes != nullptr || skipped != nullptr) set_sizes(skipped == nullptr ? 0 : *skipped);
    return true;
  }

  template <class T>
  __device__ void operator()(const SlotEntry& slot, std::int64_t i) const {
    T& param = static_cast<T*>(slot.param)[i];
    T& momentum = static_cast<T*>(slot.momentum)[i];
    T& variance = static_cast<T*>(slot.variance)[i];
    C g = load(static_cast<const T*>(slot.grad)[i]);
    if (decay != C{0}) g += decay * load(param);
    const C m = load(momentum) + beta1_rest * (g - load(momentum));
    const C v = beta2 * load(variance) + beta2_rest * g * g;
    momentum = cast<T>(m);
    variance = cast<T>(v);
    param = cast<T>(load(param) * shrink - size * (m / (sqrt(v) / root + eps)));
  }

  C shrink, beta1_rest, beta2, beta2_rest, eps, decay, size, root;
  struct Exact {
    explicit Exact(const AdamWStep& from)
        : step(from.step),
          lr(from.lr),
          beta1(from.beta1),
          beta2(from.beta2),
          decoupled_decay(from.decoupled ? from.weight_decay : 0.0) {}
    std::int64_t step;
    double lr, beta1, beta2, decoupled_decay;
  } rule;
  const float* skip;
  const std::int64_t* skipped;
  const double* changes;
};

template <class C>
struct RmsPropRule {
  explicit RmsPropRule(const RmsPropStep& step)
      : lr(static_cast<C>(step.lr)),
        alpha(static_cast<C>(step.alpha)),
        alpha_rest(static_cast<C>(1 - step.alpha)),
        eps(static_cast<C>(step.eps)),
        decay(static_cast<C>(step.weight_decay)),
        momentum(static_cast<C>(step.momentum)),
        has_momentum(step.momentum != 0),
        centered(step.centered),
        skip(step.gate.skip.as<const float>()),
        changes(step.changes.values.as<const double>()) {}

  __device__ bool begin() {
    if (skip != nullptr && *skip != 0.0F) return false;
    if (changes != nullptr) lr = static_cast<C>(changes[0]);
    return true;
  }

  template <class T>
  __device__ void operator()(const SlotEntry& slot, std::int64_t i) const {
    T& param = static_cast<T*>(slot.param)[i];
    T& square = static_cast<T*>(slot.variance)[i];
    const C p = load(param);
    const C g = load(static_cast<const T*>(slot.grad)[i]) + decay * p;
    C v = alpha * load(square) + alpha_rest * g * g;
    square = cast<T>(v);
    if (centered) {
      T& mean = static_cast<T*>(slot.mean)[i];
      const C m = load(mean) + alpha_rest * (g - load(mean));
      mean = cast<T>(m);
      v -= m * m;
    }
    C change = g / (sqrt(v) + eps);
    if (has_momentum) {
      T& buffer = static_cast<T*>(slot.momentum)[i];
      change = momentum * load(buffer) + change;
      buffer = cast<T>(change);
    }
    param = cast<T>(p - lr * change);
  }

  C lr, alpha, alpha_rest, eps, decay, momentum;
  bool has_momentum, centered;
  const float* skip;
  const double* changes;
};

template <class C>
struct AdagradRule {
  explicit AdagradRule(const AdagradStep& from)
      : decay(static_cast<C>(from.weight_decay)),
        eps(static_cast<C>(from.eps)),
        lr(from.lr),
        lr_decay(from.lr_decay),
        step(from.step),
        skip(from.gate.skip.as<const float>()),
        skipped(from.gate.skipped.as<const std::int64_t>()),
        changes(from.changes.values.as<const double>()) {}

  __device__ bool begin() {
    if (skip != nullptr && *skip != 0.0F) return false;
    if (changes != nullptr) {
      lr = changes[0];
      step += static_cast<std::int64_t>(changes[1]);
    }
    if (skipped != nullptr) step -= *skipped;
    rate = static_cast<C>(lr / (1 + static_cast<double>(step - 1) * lr_decay));
    return true;
  }

  template <class T>
  __device__ void operator()(const SlotEntry& slot, std::int64_t i) const {
    T& param = static_cast<T*>(slot.param)[i];
    T& sum = static_cast<T*>(slot.variance)[i];
    const C p = load(param);
    const C g = load(static_cast<const T*>(slot.grad)[i]) + decay * p;
    const C total = load(sum) + g * g;
    sum = cast<T>(total);
    param = cast<T>(p - rate * (g / (sqrt(total) + eps)));
  }

  C decay, eps, rate = 0;
  double lr, lr_decay;
  std::int64_t step;
  const float* skip;
  const std::int64_t* skipped;
  const double* changes;
};

/// A block takes one chunk.
template <class T, class Rule>
__global__ void step_kernel(SlotTable table, Rule rule) {
  if (!rule.begin()) return;
  for (std::int64_t at = blockIdx.x; at < table.chunk_count; at += gridDim.x) {
    const SlotChunk chunk = table.chunks[at];
    const SlotEntry slot = table.entries[chunk.slot];
    const std::int64_t end = min(slot.count, chunk.begin + kChunkElements);
    for (std::int64_t i = chunk.begin + threadIdx.x; i < end; i += blockDim.x)
      rule.template operator()<T>(slot, i);
  }
}

template <template <class> class Rule, class Step>
void run(const Context& context, SlotTables& tables, std::span<const OptimizerSlot> slots, const Step& step) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    std::vector<SlotEntry> entries;
    for (const OptimizerSlot& slot : slots) {
      if (slot.param.dtype != dtype || slot.param.numel() == 0) continue;
      entries.push_back({slot.param.data, slot.grad.data, slot.momentum.data, slot.variance.data,
                         slot.mean.data, slot.param.numel()});
    }
    if (entries.empty()) continue;
    const SlotTable table = tables.find(entries);
    dispatch_floating("optimizer step", dtype, [&](auto tag) {
      using T = decltype(tag);
      const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(table.chunk_count, INT32_MAX));
      DTRAIN_LAUNCH("optimizer step", context.stream, blocks, kThreads, step_kernel<T>, table,
                    Rule<Compute<T>>(step));
    });
  }
}

}  // namespace

void CudaKernels::sgd(std::span<const OptimizerSlot> slots, const SgdStep& step) {
  require_slots(slots, step);
  run<SgdRule>(context_, *slot_tables_, slots, step);
}

void CudaKernels::adamw(std::span<const OptimizerSlot> slots, const AdamWStep& step) {
  require_slots(slots, step);
  run<AdamWRule>(context_, *slot_tables_, slots, step);
}

void CudaKernels::rmsprop(std::span<const OptimizerSlot> slots, const RmsPropStep& step) {
  require_slots(slots, step);
  run<RmsPropRule>(context_, *slot_tables_, slots, step);
}

void CudaKernels::adagrad(std::span<const OptimizerSlot> slots, const AdagradStep& step) {
  require_slots(slots, step);
  run<AdagradRule>(context_, *slot_tables_, slots, step);
}

}  // namespace dtrain::cuda
