// The operations of Pillow 13 (ImagingResample for 8 bits a channel): weights in double precision, made
// whole numbers of 22 bits; then integers alone, so that vectors of any length give the same bits.
#include "runtime/data/images/resize.h"

#include <algorithm>
#include <cmath>

#include "runtime/data/images/across.h"
#include "runtime/device/cpu/loops/widest.h"

namespace dtrain {
namespace {

double weight_at(Filter filter, double x) {
  x = std::abs(x);
  if (filter == Filter::bilinear) return x < 1.0 ? 1.0 - x : 0.0;
  constexpr double a = -0.5;
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

/// Half away from zero.
std::int32_t whole(double weight) {
  return static_cast<std::int32_t>((weight < 0 ? -0.5 : 0.5) + weight * (1 << kWeightBits));
}

void make_weights(int from, int to, Filter filter, ResizeMemory::Weights& weights) {
  const double scale = static_cast<double>(from) / to, stretch = std::max(scale, 1.0);
  const double support = (filter == Filter::bilinear ? 1.0 : 2.0) * stretch, step = 1.0 / stretch;
  const auto places = static_cast<std::size_t>(to);
  weights.taps = static_cast<int>(std::ceil(support)) * 2 + 1;
  weights.begins.resize(places);
  weights.counts.resize(places);
  weights.values.assign(places * static_cast<std::size_t>(weights.taps), 0);
  std::vector<double> exact(static_cast<std::size_t>(weights.taps));
  for (std::size_t i = 0; i < places; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const int begin = std::max(static_cast<int>(center - support + 0.5), 0);
    const int count = std::min(static_cast<int>(center + support + 0.5), from) - begin;
    double sum = 0;
    for (int k = 0; k < count; ++k) {
      exact[static_cast<std::size_t>(k)] = weight_at(filter, (k + begin - center + 0.5) * step);
      sum += exact[static_cast<std::size_t>(k)];
    }
    std::int32_t* const values = weights.values.data() + i * static_cast<std::size_t>(weights.taps);
    for (int k = 0; k < count; ++k) {
      const double weight = exact[static_cast<std::size_t>(k)];
      values[k] = whole(sum != 0.0 ? weight / sum : weight);
    }
    weights.begins[i] = begin;
    weights.counts[i] = count;
  }
}

std::uint8_t clip(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

void down(const PictureView& from, const ResizeMemory::Weights& weights, Picture& to) {
  const std::size_t bytes = to.row_bytes();
  std::vector<std::int32_t> sums(bytes);
  for (int y = 0; y < to.size().height; ++y) {
    const auto place = static_cast<std::size_t>(y);
    const std::int32_t* const values = weights.values.data() + place * static_cast<std::size_t>(weights.taps);
    cpu::widest([&] {
      std::int32_t* const sum = sums.data();
      std::fill_n(sum, bytes, 1 << (kWeightBits - 1));
      for (int k = 0; k < weights.counts[place]; ++k) {
        const std::uint8_t* const row = from.row(weights.begins[place] + k);
        const std::int32_t weight = values[k];
        DTRAIN_INDEPENDENT
        for (std::size_t i = 0; i < bytes; ++i) sum[i] += weight * row[i];
      }
      std::uint8_t* const out = to.row(y);
      DTRAIN_INDEPENDENT
      for (std::size_t i = 0; i < bytes; ++i) out[i] = clip(sum[i]);
    });
  }
}

/// Whether rows are made fewer before they are made another length. Older versions than 13 never do.
bool goes_down_first(const PictureView& from, PictureSize size) {
  return size.height < from.height && from.height - size.height > 2 * (from.width - size.width);
}

PictureView across(const PictureView& from, int width, Filter filter, ResizeMemory& memory) {
  if (width == from.width) return from;
  make_weights(from.width, width, filter, memory.weights);
  memory.across.resize({width, from.height});
  resize_across(from, memory.weights, memory.across);
  return memory.across.view();
}

PictureView down(const PictureView& from, int height, Filter filter, ResizeMemory& memory) {
  if (height == from.height) return from;
  make_weights(from.height, height, filter, memory.weights);
  memory.down.resize({from.width, height});
  down(from, memory.weights, memory.down);
  return memory.down.view();
}

}  // namespace

PictureView resize(const PictureView& from, PictureSize size, Filter filter, ResizeMemory& memory) {
  if (goes_down_first(from, size))
    return across(down(from, size.height, filter, memory), size.width, filter, memory);
  return down(across(from, size.width, filter, memory), size.height, filter, memory);
}

}  // namespace dtrain
