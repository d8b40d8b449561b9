#include "runtime/device/cpu/dense/weight_pieces.h"

#include <algorithm>
#include <cstring>

#include "runtime/device/cpu/dense/product_pieces.h"
#include "runtime/device/cpu/features.h"
#include "runtime/device/cpu/loops/chunks.h"

namespace dtrain::cpu {
namespace {

/// Outputs that a library computes together, and so many that a matrix unit rearranges the input for.
constexpr std::int64_t kOutputBlock = 16, kUnitOutputBlock = 64;

constexpr std::int64_t divide_up(std::int64_t value, std::int64_t by) noexcept {
  return (value + by - 1) / by;
}

std::int64_t bytes_of(const View& view) { return view.numel() * size_of_one(view); }

/// Channels [first, first + to.shape[1]) of a channels-last array, packed.
void pack_channels(const View& from, std::int64_t first, const View& to) {
  const auto size = static_cast<std::int64_t>(size_of(from.dtype));
  const std::int64_t pixels = from.shape[0] * from.shape[2] * from.shape[3];
  const std::int64_t row = from.shape[1] * size, part = to.shape[1] * size;
  const auto* source = from.as<const std::byte>() + first * size;
  auto* target = to.as<std::byte>();
  for (std::int64_t i = 0; i < pixels; ++i, source += row, target += part)
    std::memcpy(target, source, static_cast<std::size_t>(part));
}

}  // namespace

WeightPieces::WeightPieces(const Conv2dGeometry& geometry, const WeightGradientViews& whole) : whole_(whole) {
  const View &dy = whole.grad_output, &dw = whole.grad_weight;
  const std::int64_t images = dy.shape[0], outputs = dy.shape[1], pixels = images * dy.shape[2] * dy.shape[3];
  const double all_ns = static_cast<double>(pixels) * static_cast<double>(dw.numel()) / kTermsANs;
  const bool packable = geometry.groups == 1 && dy.is_channels_last();
  const bool joinable = dw.dtype == DType::f32 && dw.is_contiguous() &&
                        (whole.grad_bias.data == nullptr || whole.grad_bias.dtype == DType::f32);
  const std::int64_t copied = bytes_of(dy), joined = 2 * kMostPieces * bytes_of(dw);
  const std::int64_t output_block =
      dy.dtype == DType::bf16 && has_amx_bf16() ? kUnitOutputBlock : kOutputBlock;
  by_outputs_ = packable && outputs > output_block && (!joinable || copied <= joined);
  const std::int64_t total = by_outputs_ ? outputs : images, block = by_outputs_ ? output_block : 1;
  step_ = total;
  if (all_ns < 2 * kLeastParallelNs || (!by_outputs_ && !joinable)) return;
  step_ = divide_up(divide_up(total, kMostPieces), block) * block;
  count_ = divide_up(total, step_);
  piece_ns_ = all_ns / static_cast<double>(count_);
}

WeightGradientViews WeightPieces::piece(std::int64_t index) const {
  WeightGradientViews views = whole_;
  if (count_ == 1) return views;
  const std::int64_t total = whole_.grad_output.shape[by_outputs_ ? 1 : 0];
  const std::int64_t first = index * step_, count = std::min(step_, total - first);
  if (!by_outputs_) {
    views.input = part_of(views.input, 0, first, count);
    views.grad_output = part_of(views.grad_output, 0, first, count);
    return views;
  }
  views.grad_output.shape[1] = count;
  views.grad_output.strides = channels_last_strides(views.grad_output.shape);
  views.grad_weight = part_of(views.grad_weight, 0, first, count);
  views.grad_bias = part_of(views.grad_bias, 0, first, count);
  return views;
}

void WeightPieces::run(const Compute& compute, Scratch& sums, WorkerScratch& copies) const {
  if (count_ == 1) return compute(whole_, 0);
  copies.prepare();
  by_outputs_ ? run_outputs(compute, copies) : run_images(compute, sums);
}

void WeightPieces::run_outputs(const Compute& compute, WorkerScratch& copies) const {
  for_chunks(count_, piece_ns_, [&](std::int64_t index, int worker) {
    WeightGradientViews views = piece(index);
    views.grad_output.data =
        copies.of(worker).at_least(static_cast<std::size_t>(bytes_of(views.grad_output)));
    pack_channels(whole_.grad_output, index * step_, views.grad_output);
    compute(views, worker);
  });
}

void WeightPieces::run_images(const Compute& compute, Scratch& sums) const {
  const std::int64_t weights = whole_.grad_weight.numel(),
                     biases = whole_.grad_bias.data == nullptr ? 0 : whole_.grad_bias.numel();
  ScratchPieces memory(sums, count_ * (weights + biases), 2);
  float *const of_weight = memory.take(count_ * weights), *const of_bias = memory.take(count_ * biases);
  for_chunks(count_, piece_ns_, [&](std::int64_t index, int worker) {
    WeightGradientViews views = piece(index);
    views.grad_weight.data = of_weight + index * weights;
    if (biases != 0) views.grad_bias = {of_bias + index * biases, DType::f32, {biases}, {1}};
    compute(views, worker);
  });
  const auto join = [&](const float* from, std::int64_t each, float* to, std::int64_t i) {
    float total = 0;
    for (std::int64_t index = 0; index < count_; ++index) total += from[index * each + i];
    to[i] = total;
  };
  for_ranges(weights, kElementsOfChunk, 0.2 * static_cast<double>(count_),
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t i = begin; i < end; ++i)
                 join(of_weight, weights, whole_.grad_weight.as<float>(), i);
             });
  for (std::int64_t i = 0; i < biases; ++i) join(of_bias, biases, whole_.grad_bias.as<float>(), i);
}

}  // namespace dtrain::cpu
