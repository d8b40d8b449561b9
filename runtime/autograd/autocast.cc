#include "runtime/autograd/autocast.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "runtime/autograd/functions/elementwise.h"
#include "runtime/autograd/node.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

// Per thread for the same reason as the recording flag in grad_mode.cc.
thread_local AutocastState current;

/// Values rounded to float16, and so is the gradient on its way back.
Tensor round_half(const Tensor& x) {
  Tensor result = apply(UnaryOp::round_half, x);
  if (!recording(x)) return result;
  return record("round_half", std::move(result), {x},
                [](const Tensor& grad, GradSink& sink) { sink.deliver(0, round_half(grad)); });
}

/// The dtype of the low precision on x's device; none where it is off, or emulated.
std::optional<DType> low_dtype(const Tensor& x) {
  if (current.precision == Precision::bf16) return DType::bf16;
  if (current.precision != Precision::fp16 || !x.device().has_float16()) return std::nullopt;
  return DType::f16;
}

bool emulates_half(const Tensor& x) {
  return current.precision == Precision::fp16 && x.defined() && x.dtype() == DType::f32 && !low_dtype(x);
}

}  // namespace

std::string_view name_of(Precision precision) noexcept {
  switch (precision) {
    case Precision::fp32:
      return "fp32";
    case Precision::tf32:
      return "tf32";
    case Precision::bf16:
      return "bf16";
    case Precision::fp16:
      return "fp16";
  }
  return "unknown";
}

Precision precision_named(std::string_view name) {
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16, Precision::fp16}) {
    if (name == name_of(precision)) return precision;
  }
  throw UsageError("precision: expected fp32, tf32, bf16 or fp16, got '" + std::string(name) + "'");
}

namespace {

/// A GPU's convolutions want filters channels-last: order and dtype change in one pass.
Tensor lowered(const Tensor& weight, DType dtype) {
  if (weight.rank() != 4 || weight.device().type() != DeviceType::cuda) return weight.to(dtype);
  Tensor result = Tensor::empty(weight.shape(), weight.shared_device(), dtype, MemoryFormat::channels_last);
  result.copy_from(weight);
  return result;
}

/// Makes the copy of a weight again whose memory was let go of with the weight's.
class CopyHook final : public StorageHook {
 public:
  CopyHook(const Tensor& weight, const Tensor& copy)
      : weight_(weight.detach()),
        copy_(copy.view()),
        bytes_(static_cast<std::size_t>(copy.numel()) * size_of(copy.dtype())) {}
  void materialize(Storage& storage) override {
    if (storage.is_there()) return;
    const View from = weight_.view();
    storage.resize(bytes_);
    View to = copy_;
    to.data = storage.data();
    storage.device()->kernels().copy(from, to);
  }

 private:
  Tensor weight_;
  View copy_;
  std::size_t bytes_;
};

/// A copy that comes and goes with its weight.
Tensor lowered_together(const Tensor& weight, DType dtype) {
  Tensor copy = lowered(weight, dtype);
  copy.shared_storage()->set_hook(std::make_shared<CopyHook>(weight, copy));
  weight.shared_storage()->take_along(copy.shared_storage());
  return copy;
}

}  // namespace

Tensor LowPrecisionWeights::get(const Tensor& weight, DType dtype) {
  const std::lock_guard lock(mutex_);
  // The address of memory that comes and goes says nothing.
  const bool kept = weight.shared_storage()->had_hook();
  Copy& copy = copies_[kept ? weight.shared_storage().get() : weight.view().data];
  if (!copy.value.defined() || copy.version != weight.version() || copy.value.dtype() != dtype ||
      copy.source.shape() != weight.shape() || copy.source.strides() != weight.strides()) {
    copy = {weight.version(), weight.detach(),
            kept ? lowered_together(weight.detach(), dtype) : lowered(weight.detach(), dtype)};
  }
  return copy.value;
}

void LowPrecisionWeights::clear() {
  const std::lock_guard lock(mutex_);
  copies_.clear();
}

AutocastState AutocastState::now() noexcept { return current; }

Autocast::Autocast(const AutocastState& state) noexcept : before_(std::exchange(current, state)) {}

Autocast::~Autocast() { current = before_; }

bool autocast_enabled() noexcept {
  return current.precision == Precision::bf16 || current.precision == Precision::fp16;
}

Tensor autocast_low(const Tensor& x) {
  if (x.dtype() != DType::f32) return x;
  if (const auto dtype = low_dtype(x)) return x.to(*dtype);
  return emulates_half(x) ? round_half(x) : x;
}

Tensor autocast_full(const Tensor& x) {
  return x.defined() && x.dtype() == low_dtype(x) ? x.to(DType::f32) : x;
}

bool autocast_mixes(const Tensor& a, const Tensor& b) noexcept {
  const auto low = low_dtype(a);
  const auto pair = [&](DType one, DType other) { return a.dtype() == one && b.dtype() == other; };
  return low && (pair(DType::f32, *low) || pair(*low, DType::f32));
}

Tensor autocast_weight(const Tensor& weight, const Tensor& x) {
  const bool lower = x.dtype() == low_dtype(x) && weight.dtype() == DType::f32;
  return lower ? current.weights->get(weight, x.dtype()) : weight;
}

Tensor autocast_rounded(const Tensor& x) { return emulates_half(x) ? round_half(x) : x; }

}  // namespace dtrain
