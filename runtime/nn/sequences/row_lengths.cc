#include "runtime/nn/sequences/row_lengths.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "runtime/autograd/ops/joining.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

Tensor indices(const std::vector<std::int64_t>& values, const std::shared_ptr<Device>& device) {
  return Tensor::from_data(values, {static_cast<std::int64_t>(values.size())}, device);
}

}  // namespace

std::unique_ptr<RowLengths> RowLengths::of(std::string_view layer, const Tensor& lengths,
                                           const Tensor& sequence) {
  const std::int64_t steps = sequence.size(0), rows = sequence.size(1);
  if (lengths.dtype() != DType::i64 || lengths.shape() != Dims{rows}) {
    throw UsageError(std::string(layer) + ": expected the lengths of " + std::to_string(rows) +
                     " sequences as int64 [" + std::to_string(rows) + "], got " + lengths.describe());
  }
  const auto values = lengths.to_vector<std::int64_t>();
  for (std::size_t row = 0; row < values.size(); ++row) {
    if (values[row] >= 1 && values[row] <= steps) continue;
    throw UsageError(std::string(layer) + ": expected lengths of 1 to " + std::to_string(steps) + ", got " +
                     std::to_string(values[row]) + " for sequence " + std::to_string(row));
  }
  const bool is_full = std::ranges::all_of(values, [steps](std::int64_t value) { return value == steps; });
  return is_full ? nullptr : std::unique_ptr<RowLengths>(new RowLengths(values, sequence));
}

RowLengths::RowLengths(const std::vector<std::int64_t>& lengths, const Tensor& sequence)
    : steps_(sequence.size(0)), rows_(sequence.size(1)) {
  std::vector<std::int64_t> order(lengths.size()), back(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  const auto length_of = [&](std::int64_t row) { return lengths[static_cast<std::size_t>(row)]; };
  std::ranges::stable_sort(order, std::ranges::greater{}, length_of);
  in_order_ = std::ranges::is_sorted(order);
  for (std::size_t i = 0; i < order.size(); ++i)
    back[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);

  const std::int64_t count = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  std::vector<std::int64_t> places, sources(static_cast<std::size_t>(steps_ * rows_), count);
  places.reserve(static_cast<std::size_t>(count));
  for (std::int64_t step = 0; step < length_of(order.front()); ++step) {
    const std::size_t before = places.size();
    for (const std::int64_t row : order) {
      if (length_of(row) <= step) break;
      const std::int64_t place = step * rows_ + row;
      sources[static_cast<std::size_t>(place)] = static_cast<std::int64_t>(places.size());
      places.push_back(place);
    }
    rows_by_step_.push_back(static_cast<std::int64_t>(places.size() - before));
  }
  const auto& device = sequence.shared_device();
  places_ = indices(places, device);
  sources_ = indices(sources, device);
  order_ = indices(order, device);
  back_ = indices(back, device);
}

Tensor RowLengths::packed(const Tensor& sequence) const {
  return sequence.reshape({steps_ * rows_, sequence.size(2)}).index_select(0, places_);
}

Tensor RowLengths::padded(const Tensor& packed) const {
  const Tensor none = Tensor::zeros({1, packed.size(1)}, packed.shared_device(), packed.dtype());
  return cat({packed, none}).index_select(0, sources_).reshape({steps_, rows_, packed.size(1)});
}

Tensor RowLengths::sorted(const Tensor& states) const {
  return in_order_ ? states : states.index_select(1, order_);
}

Tensor RowLengths::unsorted(const Tensor& states) const {
  return in_order_ ? states : states.index_select(1, back_);
}

}  // namespace dtrain
