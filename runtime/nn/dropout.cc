#include "runtime/nn/dropout.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "runtime/autograd/recompute.h"
#include "runtime/base/error.h"

namespace dtrain {

void DropoutKey::set_step(std::int64_t step) {
  if (!step_.defined()) step_ = Tensor::zeros({1}, device_, DType::i64);
  // Not fill(), whose number is a double.
  step_.copy_from(Tensor::from_data({step}, {1}, device_));
}

void DropoutKey::set_rows(const Tensor& rows) {
  if (rows.defined() && (rows.dtype() != DType::i64 || rows.rank() != 1 || !rows.is_contiguous())) {
    throw UsageError("dropout: expected rows of int64 [N], got " + rows.describe());
  }
  rows_ = rows.defined() ? rows.to(device_) : rows;
}

Dropout::Dropout(double probability, std::shared_ptr<DropoutKey> key, int part)
    : probability_(probability), key_(std::move(key)), part_(part) {
  if (!(probability >= 0 && probability <= 1) || key_ == nullptr) {
    throw UsageError("Dropout: expected a probability of 0 to 1 and a key, got " +
                     std::to_string(probability) + (key_ == nullptr ? " and null" : ""));
  }
  if (part < 0) throw UsageError("Dropout: expected a part of 0 or more, got " + std::to_string(part));
  layer_ = key_->add_layer();
}

Dropout::Draw Dropout::new_draw(const Tensor& x) {
  if (key_->step().defined()) return {key_->step(), key_->rows()};
  if (recomputing()) {
    throw UsageError(
        "backward of recomputed: expected dropout to know the step, so that it has the mask of its first "
        "run; "
        "call DropoutKey::set_step(), or recompute a module instead of a function");
  }
  if (!passes_.defined()) passes_ = Tensor::zeros({1}, x.shared_device(), DType::i64);
  Draw draw{passes_.clone(), key_->rows()};
  const Tensor one = Tensor::ones({1}, x.shared_device(), DType::i64);
  x.device().kernels().binary(BinaryOp::add, passes_.view(), one.view(), passes_.view());
  passes_.mark_modified();
  return draw;
}

Dropout::Draw Dropout::next_draw(const Tensor& x) {
  const auto repeating = std::find_if(runs_.rbegin(), runs_.rend(), [](const auto& run) {
    return run->repeats && run->next < run->draws.size();
  });
  const Draw draw = repeating == runs_.rend() ? new_draw(x) : (*repeating)->draws[(*repeating)->next++];
  for (const auto& run : runs_) {
    if (!run->repeats) run->draws.push_back(draw);
  }
  return draw;
}

// Places count from the beginning of a sample: what the parts before this one hold comes first.
MaskNumbers Dropout::numbers_of(const Draw& draw, const Tensor& x) const {
  const bool named = draw.rows.defined();
  const std::int64_t samples = named ? draw.rows.numel() : x.rank() == 0 ? 1 : x.size(0);
  return {.seed = key_->seed(),
          .layer = layer_,
          .step = draw.step.view(),
          .rows = named ? draw.rows.view() : View{},
          .first = samples == 0 ? 0 : part_ * (x.numel() / samples)};
}

Tensor Dropout::forward(const Tensor& x) {
  if (!is_training() || probability_ == 0) return x;
  if (probability_ == 1) return mul(x, 0.0);
  const Draw draw = next_draw(x);
  const Tensor mask = Tensor::empty(x.shape(), x.shared_device(), x.dtype());
  x.device().kernels().dropout_mask(numbers_of(draw, x), 1 - probability_, mask.view());
  return mul(x, mask);
}

std::vector<std::shared_ptr<DropoutKey>> dropout_keys(Module& module) {
  std::vector<std::shared_ptr<DropoutKey>> keys;
  module.visit([&keys](Module& part) {
    const auto* dropout = dynamic_cast<const Dropout*>(&part);
    if (dropout == nullptr || std::find(keys.begin(), keys.end(), dropout->key()) != keys.end()) return;
    keys.push_back(dropout->key());
  });
  return keys;
}

}  // namespace dtrain
