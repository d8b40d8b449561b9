// The operations of Pillow 13 (ImagingResample for 8 bits a channel): weights in double precision, made
// whole numbers of 22 bits; then integers alone, so that vectors of any length give the same bits.
#include "runtime/data/images/resize.h"

#include <algorithm>
#include <cmath>

#include "runtime/data/images/passes.h"

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

/// One direction of a resizing.
struct Axis {
  int from, to;
  int first, count;  ///< of the results that are wanted
  Filter filter;

  double stretch() const { return std::max(static_cast<double>(from) / to, 1.0); }
  double support() const { return (filter == Filter::bilinear ? 1.0 : 2.0) * stretch(); }
  double center(int place) const { return (place + 0.5) * (static_cast<double>(from) / to); }
  int begin(int place) const { return std::max(static_cast<int>(center(place) - support() + 0.5), 0); }
  int end(int place) const { return std::min(static_cast<int>(center(place) + support() + 0.5), from); }
  /// What the wanted results are made of.
  int needed_begin() const { return from == to ? first : begin(first); }
  int needed_end() const { return from == to ? first + count : end(first + count - 1); }
};

Axis columns_of(const Resizing& how) {
  return {how.from.width, how.to.width, how.part.left, how.part.width, how.filter};
}
Axis rows_of(const Resizing& how) {
  return {how.from.height, how.to.height, how.part.top, how.part.height, how.filter};
}

/// Of the wanted places, for inputs that are counted from the first needed one.
void make_weights(const Axis& axis, ResizeMemory::Weights& weights) {
  const double step = 1.0 / axis.stretch();
  const auto places = static_cast<std::size_t>(axis.count);
  weights.taps = static_cast<int>(std::ceil(axis.support())) * 2 + 1;
  weights.begins.resize(places);
  weights.counts.resize(places);
  weights.values.assign(places * static_cast<std::size_t>(weights.taps), 0);
  std::vector<double> exact(static_cast<std::size_t>(weights.taps));
  for (std::size_t i = 0; i < places; ++i) {
    const int place = axis.first + static_cast<int>(i), begin = axis.begin(place);
    const int count = axis.end(place) - begin;
    const double center = axis.center(place);
    double sum = 0;
    for (int k = 0; k < count; ++k) {
      exact[static_cast<std::size_t>(k)] = weight_at(axis.filter, (k + begin - center + 0.5) * step);
      sum += exact[static_cast<std::size_t>(k)];
    }
    std::int32_t* const values = weights.values.data() + i * static_cast<std::size_t>(weights.taps);
    for (int k = 0; k < count; ++k) {
      const double weight = exact[static_cast<std::size_t>(k)];
      values[k] = whole(sum != 0.0 ? weight / sum : weight);
    }
    weights.begins[i] = begin - axis.needed_begin();
    weights.counts[i] = count;
  }
}

/// Whether rows are made fewer before they are made another length. Older versions than 13 never do.
bool goes_down_first(const Resizing& how) {
  return how.to.height < how.from.height &&
         how.from.height - how.to.height > 2 * (how.from.width - how.to.width);
}

PictureView across(const PictureView& from, const Axis& columns, ResizeMemory& memory) {
  if (columns.from == columns.to) return from;
  make_weights(columns, memory.weights);
  memory.across.resize({columns.count, from.height});
  resize_across(from, memory.weights, memory.across);
  return memory.across.view();
}

PictureView down(const PictureView& from, const Axis& rows, ResizeMemory& memory) {
  if (rows.from == rows.to) return from;
  make_weights(rows, memory.weights);
  memory.down.resize({from.width, rows.count});
  resize_down(from, memory.weights, memory.down);
  return memory.down.view();
}

}  // namespace

Region pixels_needed(const Resizing& how) {
  const Axis columns = columns_of(how), rows = rows_of(how);
  return {columns.needed_begin(), rows.needed_begin(), columns.needed_end() - columns.needed_begin(),
          rows.needed_end() - rows.needed_begin()};
}

PictureView resize(const PictureView& needed, const Resizing& how, ResizeMemory& memory) {
  const Axis columns = columns_of(how), rows = rows_of(how);
  if (goes_down_first(how)) return across(down(needed, rows, memory), columns, memory);
  return down(across(needed, columns, memory), rows, memory);
}

PictureView resize(const PictureView& from, PictureSize size, Filter filter, ResizeMemory& memory) {
  const Resizing how{{from.width, from.height}, size, {0, 0, size.width, size.height}, filter};
  return resize(from.part(pixels_needed(how)), how, memory);
}

}  // namespace dtrain
