#include "runtime/nn/dropout.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "runtime/autograd/recompute.h"
#include "runtime/base/error.h"
#include "runtime/nn/print.h"

namespace dtrain {

void DropoutKey::set_step(std::int64_t step) {
  if (!step_.defined()) step_ = Tensor::zeros({1}, device_, DType::i64);
  // Not fill(), whose number is a double.
  step_.copy_from(Tensor::from_data({step}, {1}, device_));
}

void DropoutKey::move_to(const std::shared_ptr<Device>& device) {
  device_ = device;
  if (step_.defined()) step_ = step_.to(device);
  if (rows_.defined()) rows_ = rows_.to(device);
}

void DropoutKey::set_rows(const Tensor& rows) {
  if (rows.defined() && (rows.dtype() != DType::i64 || rows.rank() != 1 || !rows.is_contiguous())) {
    throw UsageError("dropout: expected rows of int64 [N], got " + rows.describe());
  }
  rows_ = rows.defined() ? rows.to(device_) : rows;
}

KeyedDraws::KeyedDraws(std::string_view module, std::shared_ptr<DropoutKey> key, int part)
    : key_(std::move(key)), part_(part) {
  if (key_ == nullptr) throw UsageError(std::string(module) + ": expected a key, got null");
  if (part < 0)
    throw UsageError(std::string(module) + ": expected a part of 0 or more, got " + std::to_string(part));
  layer_ = key_->add_layer();
}

Dropout::Dropout(std::string_view module, double probability, std::shared_ptr<DropoutKey> key, int part)
    : KeyedDraws(module, std::move(key), part), probability_(probability) {
  if (probability >= 0 && probability <= 1) return;
  throw UsageError(std::string(module) + ": expected a probability of 0 to 1, got " +
                   std::to_string(probability));
}

void KeyedDraws::on_move(const std::shared_ptr<Device>& device) {
  key_->move_to(device);
  if (passes_.defined()) passes_ = passes_.to(device);
}

KeyedDraws::Draw KeyedDraws::new_draw(const Tensor& x) {
  if (key_->step().defined()) return {key_->step(), key_->rows()};
  if (recomputing()) {
    throw UsageError(
        "backward of recomputed: expected dropout or noise to know the step, so that it has the numbers of "
        "its first run; call DropoutKey::set_step(), or recompute a module instead of a function");
  }
  if (!passes_.defined()) passes_ = Tensor::zeros({1}, x.shared_device(), DType::i64);
  Draw draw{passes_.clone(), key_->rows()};
  const Tensor one = Tensor::ones({1}, x.shared_device(), DType::i64);
  x.device().kernels().binary(BinaryOp::add, passes_.view(), one.view(), passes_.view());
  passes_.mark_modified();
  return draw;
}

KeyedDraws::Draw KeyedDraws::next_draw(const Tensor& x) {
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
MaskNumbers KeyedDraws::numbers_of(const Draw& draw, const Tensor& x) const {
  const bool named = draw.rows.defined();
  const std::int64_t samples = named ? draw.rows.numel() : x.rank() == 0 ? 1 : x.size(0);
  return {.seed = key_->seed(),
          .layer = layer_,
          .step = draw.step.view(),
          .rows = named ? draw.rows.view() : View{},
          .first = samples == 0 ? 0 : part_ * (x.numel() / samples)};
}

MaskPlace KeyedDraws::place_of(const Draw& draw, const Tensor& x) const {
  const MaskNumbers numbers = numbers_of(draw, x);
  MaskPlace place{numbers.seed, numbers.layer,
                  static_cast<std::uint64_t>(draw.step.to_vector<std::int64_t>()[0])};
  const std::int64_t extent = x.rank() == 0 ? 1 : x.size(0);
  if (draw.rows.defined()) {
    place.rows = draw.rows.to_vector<std::int64_t>();
  } else {
    for (std::int64_t row = 0; row < extent; ++row) place.rows.push_back(row);
  }
  const auto samples = static_cast<std::int64_t>(place.rows.size());
  if (samples == 0 ? extent != 0 : extent % samples != 0) {
    throw UsageError("noise: expected rows for " + std::to_string(samples) + " samples, or a multiple, got " +
                     x.describe());
  }
  place.first = numbers.first;
  place.each = samples == 0 ? 0 : x.numel() / samples;
  return place;
}

Tensor Dropout::dropped(const Tensor& x, const Dims& shape) {
  if (!is_training() || probability_ == 0) return x;
  if (probability_ == 1) return mul(x, 0.0);
  const Draw draw = next_draw(x);
  const Tensor mask = Tensor::empty(shape, x.shared_device(), x.dtype());
  x.device().kernels().dropout_mask(numbers_of(draw, mask), 1 - probability_, mask.view());
  Dims over = Dims::filled(x.rank(), 1);
  for (int i = 0; i < shape.rank(); ++i) over[i] = shape[i];
  return mul(x, mask.reshape(over));
}

std::string Dropout::extra_repr() const { return "p=" + repr::number(probability_) + ", inplace=False"; }

Tensor Dropout2d::forward(const Tensor& x) {
  if (x.rank() < 2) throw UsageError("Dropout2d: expected x [N, C, …], got " + x.describe());
  return dropped(x, {x.size(0), x.size(1)});
}

Tensor DropPath::forward(const Tensor& x) {
  if (x.rank() < 1) throw UsageError("DropPath: expected x [N, …], got " + x.describe());
  return dropped(x, {x.size(0)});
}

std::string DropPath::extra_repr() const { return "drop_prob=" + repr::number(probability()); }

AttentionDropout::AttentionDropout(double probability, std::shared_ptr<DropoutKey> key, int part)
    : KeyedDraws("AttentionDropout", std::move(key), part), probability_(probability) {
  if (probability >= 0 && probability < 1) return;
  throw UsageError("AttentionDropout: expected a probability of at least 0 and below 1, got " +
                   std::to_string(probability));
}

std::string AttentionDropout::extra_repr() const { return "p=" + repr::number(probability_); }

std::optional<DroppedWeights> AttentionDropout::next(const Tensor& query) {
  if (!is_training() || probability_ == 0) return std::nullopt;
  const Draw draw = next_draw(query);
  const MaskNumbers numbers = numbers_of(draw, query);
  return DroppedWeights{probability_, numbers.seed, numbers.layer, draw.step, draw.rows, part()};
}

// A row of the mask is as long as the next multiple of 4: four neighbours are one draw.
Tensor AttentionDropout::forward(const Tensor& weights) {
  if (!is_training() || probability_ == 0) return weights;
  const std::int64_t keys = weights.size(-1);
  Dims shape = weights.shape();
  shape[shape.rank() - 1] = (keys + 3) / 4 * 4;
  const Tensor mask = Tensor::empty(shape, weights.shared_device(), weights.dtype());
  weights.device().kernels().dropout_mask(numbers_of(next_draw(weights), mask), 1 - probability_,
                                          mask.view());
  return mul(weights, mask.slice(-1, 0, keys));
}

std::vector<std::shared_ptr<DropoutKey>> dropout_keys(Module& module) {
  std::vector<std::shared_ptr<DropoutKey>> keys;
  module.visit([&keys](Module& part) {
    const auto* draws = dynamic_cast<const KeyedDraws*>(&part);
    if (draws == nullptr || std::find(keys.begin(), keys.end(), draws->key()) != keys.end()) return;
    keys.push_back(draws->key());
  });
  return keys;
}

}  // namespace dtrain
