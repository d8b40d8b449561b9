#include "runtime/autograd/autocast.h"

#include <string>
#include <utility>

#include "runtime/autograd/elementwise.h"
#include "runtime/autograd/node.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

// Per thread for the same reason as the recording flag in grad_mode.cc.
thread_local Precision current = Precision::fp32;
thread_local LowPrecisionWeights* current_weights = nullptr;

/// Values rounded to float16, and so is the gradient on its way back.
Tensor round_half(const Tensor& x) {
  Tensor result = apply(UnaryOp::round_half, x);
  if (!recording(x)) return result;
  return record("round_half", std::move(result), {x},
                [](const Tensor& grad, GradSink& sink) { sink.deliver(0, round_half(grad)); });
}

bool emulates_half(const Tensor& x) {
  return current == Precision::fp16 && x.defined() && x.dtype() == DType::f32;
}

}  // namespace

Precision parse_precision(std::string_view name) {
  if (name == "fp32") return Precision::fp32;
  if (name == "bf16") return Precision::bf16;
  if (name == "fp16") return Precision::fp16;
  throw UsageError("--precision: expected fp32, bf16 or fp16, got '" + std::string(name) + "'");
}

Tensor LowPrecisionWeights::get(const Tensor& weight, DType dtype) {
  Copy& copy = copies_[weight.view().data];
  if (!copy.value.defined() || copy.version != weight.version() || copy.value.dtype() != dtype ||
      copy.value.shape() != weight.shape()) {
    copy = {weight.version(), weight.detach(), weight.detach().to(dtype)};
  }
  return copy.value;
}

Autocast::Autocast(Precision precision, LowPrecisionWeights& weights) noexcept
    : before_(std::exchange(current, precision)), weights_before_(std::exchange(current_weights, &weights)) {}

Autocast::~Autocast() {
  current = before_;
  current_weights = weights_before_;
}

bool autocast_enabled() noexcept { return current != Precision::fp32; }

Tensor autocast_low(const Tensor& x) {
  if (current == Precision::bf16 && x.dtype() == DType::f32) return x.to(DType::bf16);
  return emulates_half(x) ? round_half(x) : x;
}

Tensor autocast_full(const Tensor& x) {
  return current == Precision::bf16 && x.dtype() == DType::bf16 ? x.to(DType::f32) : x;
}

Tensor autocast_weight(const Tensor& weight, const Tensor& x) {
  const bool lower = current == Precision::bf16 && x.dtype() == DType::bf16 && weight.dtype() == DType::f32;
  return lower ? current_weights->get(weight, DType::bf16) : weight;
}

Tensor autocast_rounded(const Tensor& x) { return emulates_half(x) ? round_half(x) : x; }

}  // namespace dtrain
