#include "models/tabular/standardize.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/node.h"
#include "runtime/autograd/ops/operators.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

void check(std::span<const float> mean, std::span<const float> deviation) {
  if (mean.empty() || mean.size() != deviation.size()) {
    throw UsageError(
        fmt::format("standardize: expected a mean and a deviation for each column, got {} and {}",
                    mean.size(), deviation.size()));
  }
  const auto bad = std::ranges::find_if(deviation, [](float each) { return !(each > 0); });
  if (bad != deviation.end()) {
    throw UsageError(fmt::format("standardize: expected deviations above 0, got {} for column {}", *bad,
                                 bad - deviation.begin()));
  }
}

Tensor row(std::span<const float> values, const std::shared_ptr<Device>& device) {
  return Tensor::from_data(values, {static_cast<std::int64_t>(values.size())}, device);
}

}  // namespace

Standardize::Standardize(std::span<const float> mean, std::span<const float> deviation,
                         const std::shared_ptr<Device>& device) {
  check(mean, deviation);
  mean_ = add_buffer("mean", row(mean, device));
  deviation_ = add_buffer("deviation", row(deviation, device));
}

Tensor Standardize::forward(const Tensor& x) { return (x - mean_) / deviation_; }

std::string Standardize::extra_repr() const { return std::to_string(mean_.size(0)); }

Unstandardize::Unstandardize(std::span<const float> mean, std::span<const float> deviation,
                             const std::shared_ptr<Device>& device) {
  check(mean, deviation);
  mean_ = add_buffer("mean", row(mean, device));
  deviation_ = add_buffer("deviation", row(deviation, device));
}

Tensor Unstandardize::forward(const Tensor& x) {
  const Tensor values = [&] {
    const NoGrad no_grad;
    return x * deviation_ + mean_;
  }();
  return record("unstandardize", values, {x},
                [deviation = deviation_](Tensor grad, GradSink& sink) { sink.deliver(0, grad / deviation); });
}

std::string Unstandardize::extra_repr() const { return std::to_string(mean_.size(0)); }

}  // namespace dtrain
