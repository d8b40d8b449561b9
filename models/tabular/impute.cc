#include "models/tabular/impute.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/autograd/ops/masks.h"
#include "runtime/base/error.h"

namespace dtrain {

Impute::Impute(std::span<const float> fill, const std::shared_ptr<Device>& device) {
  if (fill.empty()) throw UsageError("impute: expected a number for each column, got none");
  const auto bad = std::ranges::find_if(fill, [](float each) { return !std::isfinite(each); });
  if (bad != fill.end())
    throw UsageError(
        fmt::format("impute: expected finite numbers, got {} for column {}", *bad, bad - fill.begin()));
  fill_ = add_buffer("fill", Tensor::from_data(fill, {static_cast<std::int64_t>(fill.size())}, device));
}

Tensor Impute::forward(const Tensor& x) { return where(isnan(x), fill_, x); }

std::string Impute::extra_repr() const { return std::to_string(fill_.size(0)); }

}  // namespace dtrain
