#include "models/tasks/mixing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

/// In (0, 1).
double open_uniform(KeyedGenerator& generator) {
  return (static_cast<double>(generator.next32()) + 0.5) * 0x1p-32;
}

double normal(KeyedGenerator& generator) {
  const double radius = std::sqrt(-2 * std::log(open_uniform(generator)));
  return radius * std::cos(2 * std::numbers::pi * open_uniform(generator));
}

/// The logarithm of a number from Gamma(alpha, 1), which for a small alpha is too small for a double.
/// Marsaglia and Tsang, "A simple method for generating gamma variables", 2000: of alpha + 1, then scaled
/// down.
double log_gamma_draw(double alpha, KeyedGenerator& generator) {
  const double d = alpha + 1 - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = normal(generator), root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(open_uniform(generator)) < 0.5 * x * x + d - d * v + d * std::log(v))
      return std::log(d * v) + std::log(open_uniform(generator)) / alpha;
  }
}

/// Number `i` of a batch's mixture, with `rank` dimensions of one element.
Tensor number(const Tensor& mixture, std::int64_t i, int rank) {
  return mixture.slice(0, 0, 1).slice(1, i, i + 1).reshape(Dims::filled(rank, 1));
}

/// Row i is x's row i - 1, the first its last.
Tensor neighbours(const Tensor& x) {
  if (x.size(0) == 1) return x;
  return cat({x.slice(0, x.size(0) - 1, x.size(0)), x.slice(0, 0, x.size(0) - 1)});
}

/// 1 inside the box, 0 outside: [1, 1, H, W].
Tensor inside(const Tensor& images, const Tensor& mixture) {
  const auto places = [&](int dim) {
    return Tensor::arange(images.size(dim), images.shared_device(), DType::f32);
  };
  const Tensor columns = places(3).reshape({1, 1, 1, images.size(3)});
  const Tensor rows = places(2).reshape({1, 1, images.size(2), 1});
  const auto within = [&](const Tensor& at, std::int64_t begin, std::int64_t end) {
    return mul(greater_equal(at, number(mixture, begin, 4)), less(at, number(mixture, end, 4)));
  };
  return mul(within(columns, 2, 4), within(rows, 3, 5));
}

}  // namespace

Mixture mixup_of(double share) {
  const auto own = static_cast<float>(share), other = static_cast<float>(1 - share);
  return {.own = own, .other = other, .own_label = own, .other_label = other};
}

Mixture cutmix_of(double share, std::int64_t x, std::int64_t y, std::int64_t width, std::int64_t height) {
  const double half = 0.5 * std::sqrt(1 - share);
  const auto half_width = static_cast<std::int64_t>(half * static_cast<double>(width));
  const auto half_height = static_cast<std::int64_t>(half * static_cast<double>(height));
  const std::int64_t left = std::max<std::int64_t>(x - half_width, 0),
                     right = std::min(x + half_width, width);
  const std::int64_t top = std::max<std::int64_t>(y - half_height, 0),
                     bottom = std::min(y + half_height, height);
  const double own =
      1 - static_cast<double>((right - left) * (bottom - top)) / static_cast<double>(width * height);
  return {.left = static_cast<float>(left),
          .top = static_cast<float>(top),
          .right = static_cast<float>(right),
          .bottom = static_cast<float>(bottom),
          .own_label = static_cast<float>(own),
          .other_label = static_cast<float>(1 - own)};
}

double draw_share(double alpha, KeyedGenerator& generator) {
  const double own = log_gamma_draw(alpha, generator), other = log_gamma_draw(alpha, generator);
  return 1 / (1 + std::exp(other - own));
}

MixedSource::MixedSource(std::shared_ptr<const Source> samples, std::size_t image, const Mixing& mixing)
    : samples_(std::move(samples)), mixing_(mixing) {
  const Field& field = samples_->fields()[image];
  if (field.dtype != DType::f32 || (mixing.cutmix > 0 && field.shape.rank() != 3)) {
    throw UsageError(fmt::format(
        "--{}: expected samples of {}, got {}", mixing.cutmix > 0 ? "cutmix" : "mixup",
        mixing.cutmix > 0 ? "images float32 [C, H, W]" : "numbers of float32", field.to_string()));
  }
  if (field.shape.rank() == 3) {
    height_ = field.shape[1];
    width_ = field.shape[2];
  }
  fields_.assign(samples_->fields().begin(), samples_->fields().end());
  fields_.push_back({.name = kField, .shape = {Mixture::kNumbers}});
}

Mixture MixedSource::draw(KeyedGenerator& generator) const {
  const bool both = mixing_.mixup > 0 && mixing_.cutmix > 0;
  const bool cut = both ? generator.below(2) == 1 : mixing_.cutmix > 0;
  const double share = draw_share(cut ? mixing_.cutmix : mixing_.mixup, generator);
  if (!cut) return mixup_of(share);
  const auto x = static_cast<std::int64_t>(generator.below(static_cast<std::uint64_t>(width_)));
  const auto y = static_cast<std::int64_t>(generator.below(static_cast<std::uint64_t>(height_)));
  return cutmix_of(share, x, y, width_, height_);
}

void MixedSource::read(std::int64_t index, std::span<const View> outputs, KeyedGenerator& generator) const {
  samples_->read(index, outputs.first(outputs.size() - 1), generator);
  const Mixture m = draw(generator);
  const float numbers[] = {m.own, m.other, m.left, m.top, m.right, m.bottom, m.own_label, m.other_label};
  std::ranges::copy(numbers, outputs.back().as<float>());
}

Tensor mixed(const Tensor& images, const Tensor& mixture) {
  const int rank = images.rank();
  Tensor own = number(mixture, 0, rank), other = number(mixture, 1, rank);
  if (rank == 4) {
    const Tensor box = inside(images, mixture), outside = add(neg(box), 1);
    own = mul(own, outside);
    other = add(mul(other, outside), box);
  }
  return add(mul(neighbours(images), other), mul(images, own));
}

namespace {

/// [B, classes], in the dtype of `logits`.
Tensor distributions(const Tensor& logits, const Tensor& labels) {
  if (labels.rank() == 2) return labels.to(logits.dtype());
  const Tensor places = Tensor::arange(logits.size(1), logits.shared_device());
  return equal(labels.unsqueeze(1), places.unsqueeze(0)).to(logits.dtype());
}

}  // namespace

Tensor soft_cross_entropy(const Tensor& logits, const Tensor& labels, const Tensor* mixture, double smoothing,
                          const Tensor& weight) {
  const std::int64_t classes = logits.size(1);
  Tensor targets = distributions(logits, labels);
  if (mixture != nullptr) {
    const Tensor own = number(*mixture, 6, 2).to(logits.dtype());
    const Tensor other = number(*mixture, 7, 2).to(logits.dtype());
    targets = add(mul(neighbours(targets), other), mul(targets, own));
  }
  if (smoothing > 0) targets = add(mul(targets, 1 - smoothing), smoothing / static_cast<double>(classes));
  if (weight.defined()) targets = mul(targets, weight.to(logits.dtype()).unsqueeze(0));
  return div(neg(sum(mul(log_softmax(logits), targets))), static_cast<double>(logits.size(0)));
}

}  // namespace dtrain
