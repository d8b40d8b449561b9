#include "models/tasks/soft_labels.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/tasks/fed_field.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr std::int64_t kLookedAt = 256;
constexpr double kTolerance = 1e-3;

/// All of `source`, or some.
std::vector<std::int64_t> looked_at(const Source& source) {
  const std::int64_t size = source.size(), count = source.in_memory() ? size : std::min(size, kLookedAt);
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) order[static_cast<std::size_t>(i)] = i * size / count;
  return order;
}

void check_row(std::span<const float> row, const Source& source, std::int64_t sample) {
  const double sum = std::accumulate(row.begin(), row.end(), 0.0);
  if (std::ranges::all_of(row, [](float share) { return share >= 0; }) && std::abs(sum - 1) <= kTolerance)
    return;
  constexpr std::size_t kShown = 8;
  throw DataError(source.name(), -1,
                  fmt::format("label of sample {} to be the probabilities of {} classes, at least 0 and "
                              "together 1 (divide each row by its sum)",
                              place_name(source, sample), row.size()),
                  fmt::format("{}{}, together {:g}", fmt::join(row.first(std::min(row.size(), kShown)), ", "),
                              row.size() > kShown ? ", ..." : "", sum));
}

}  // namespace

bool is_soft_label(const Field& label) noexcept {
  return label.dtype == DType::f32 && label.shape.rank() == 1 && label.shape[0] > 1;
}

std::int64_t classes_of_label(const Field& label) noexcept {
  if (is_soft_label(label)) return label.shape[0];
  return label.dtype == DType::i64 && label.shape.rank() == 0 ? label.values : 0;
}

void check_soft_labels(const Source& source) {
  const Field* const label = find_field(source.fields(), kLabelField);
  if (label == nullptr || !is_soft_label(*label)) return;
  // Other fields may be large: one sample's memory for all of them.
  std::vector<std::vector<std::byte>> memory;
  std::vector<View> views;
  for (const Field& field : source.fields()) {
    memory.emplace_back(static_cast<std::size_t>(field.shape.product()) * size_of(field.dtype));
    views.push_back({memory.back().data(), field.dtype, field.shape, contiguous_strides(field.shape)});
  }
  const View& row = views[static_cast<std::size_t>(label - source.fields().data())];
  for (const std::int64_t sample : looked_at(source)) {
    KeyedGenerator generator(0, 0, static_cast<std::uint64_t>(sample));
    read_sample(source, sample, views, generator);
    check_row({row.as<float>(), static_cast<std::size_t>(row.numel())}, source, sample);
  }
}

Tensor likeliest(const Tensor& labels) { return labels.rank() == 2 ? argmax(labels, 1) : labels; }

}  // namespace dtrain
