#include "runtime/data/batch_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/data/padding.h"

namespace dtrain {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr int kImageRank = 3;

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Bounded far from overflow, so that a few of these may be added up.
class Bytes {
 public:
  Bytes(const Source& source, std::int64_t batch_size) : source_(source), batch_size_(batch_size) {}

  std::size_t of(const Field& field, DType dtype, std::int64_t samples) const {
    std::size_t bytes = checked(times(size_of(dtype), samples));
    for (const std::int64_t extent : field.shape) bytes = checked(times(bytes, extent));
    return bytes;
  }
  std::size_t of_indices() const { return checked(times(sizeof(std::int64_t), batch_size_)); }
  std::size_t checked(std::size_t bytes) const {
    if (bytes <= kMost) return bytes;
    throw UsageError(fmt::format("loader: expected a batch that fits in memory, got {} samples of {} ({})",
                                 batch_size_, source_.name(), describe(source_.fields())));
  }

 private:
  static constexpr std::size_t kMost = SIZE_MAX / 16;
  static std::size_t times(std::size_t bytes, std::int64_t count) {
    return __builtin_mul_overflow(bytes, static_cast<std::size_t>(count), &bytes) ? SIZE_MAX : bytes;
  }

  const Source& source_;
  std::int64_t batch_size_;
};

Dims sample_strides(const Field& field, bool channels_last) {
  if (!channels_last) return contiguous_strides(field.shape);
  const Dims& shape = field.shape;
  const Dims whole = channels_last_strides({1, shape[0], shape[1], shape[2]});
  return {whole[1], whole[2], whole[3]};
}

/// The first of some integers that is not in [0, values).
struct Stray {
  std::size_t place;
  std::int64_t value;
};

template <class T>
std::optional<Stray> find_stray(const std::byte* elements, std::size_t count, const Field& field) {
  const auto* const begin = reinterpret_cast<const T*>(elements);
  const auto least = static_cast<std::uint64_t>(field.has_none ? -1 : 0);
  const auto values = static_cast<std::uint64_t>(field.values);
  const auto* const bad = std::find_if(begin, begin + count, [&](T value) {
    return static_cast<std::uint64_t>(value) - least >= values - least;
  });
  if (bad == begin + count) return std::nullopt;
  return Stray{static_cast<std::size_t>(bad - begin), static_cast<std::int64_t>(*bad)};
}

std::optional<Stray> find_stray(const Field& field, const std::byte* elements, std::size_t count) {
  switch (field.dtype) {
    case DType::i64:
      return find_stray<std::int64_t>(elements, count, field);
    case DType::i32:
      return find_stray<std::int32_t>(elements, count, field);
    case DType::u8:
      return find_stray<std::uint8_t>(elements, count, field);
    default:
      return std::nullopt;
  }
}

}  // namespace

BatchLayout::BatchLayout(const Source& source, std::int64_t batch_size,
                         const std::vector<std::string>& channels_last, bool bytes, bool all_rows) {
  check_fields(source);
  const auto fields = source.fields();
  fields_ = std::make_shared<const std::vector<Field>>(fields.begin(), fields.end());
  for (const std::string& name : channels_last) {
    const Field* const field = find_field(*fields_, name);
    if (field != nullptr && field->shape.rank() == kImageRank && field->length_field.empty()) continue;
    throw UsageError(
        fmt::format("loader: expected a field of shape [C, H, W] to lie channels-last, got \"{}\"; {} has {}",
                    name, source.name(), describe(*fields_)));
  }
  const Bytes size(source, batch_size);
  for (std::size_t i = 0; i < fields_->size(); ++i) {
    const Field& field = (*fields_)[i];
    const bool has_lengths = !field.length_field.empty();
    const DType dtype = bytes && !has_lengths && source.has_bytes(i) ? DType::u8 : field.dtype;
    cuts_ = cuts_ || (has_lengths && !all_rows);
    if (dtype != field.dtype && field.dtype != DType::f32) {
      throw UsageError(fmt::format("{}: field {}: expected float32 values that bytes stand for, got {}",
                                   source.name(), i, field.to_string()));
    }
    // With one channel both orders are the same.
    const bool by_pixel =
        std::find(channels_last.begin(), channels_last.end(), field.name) != channels_last.end() &&
        field.shape[0] != 1;
    places_.push_back({indices_offset_, size.of(field, dtype, 1), dtype, sample_strides(field, by_pixel)});
    indices_offset_ = size.checked(indices_offset_ + aligned(size.of(field, dtype, batch_size)));
  }
  rows_offset_ = indices_offset_ + size.of_indices();
  bytes_ = rows_offset_ + (cuts_ ? places_.size() * sizeof(std::int64_t) : 0);
}

std::vector<View> BatchLayout::first_sample(std::byte* piece) const {
  std::vector<View> views;
  views.reserve(places_.size());
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const Field& field = (*fields_)[i];
    views.push_back({piece + places_[i].offset, places_[i].dtype, field.shape, places_[i].strides});
  }
  return views;
}

void BatchLayout::next(std::span<View> sample) const noexcept {
  for (std::size_t i = 0; i < sample.size(); ++i)
    sample[i].data = sample[i].as<std::byte>() + places_[i].sample_bytes;
}

// Each sample moves to the front, over what was padding of those before it.
void BatchLayout::cut_padding(std::byte* piece, std::int64_t count) const {
  if (!cuts_) return;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const Field& field = (*fields_)[i];
    if (field.length_field.empty()) continue;
    std::int64_t longest = 1;
    std::vector<View> sample = first_sample(piece);
    for (std::int64_t k = 0; k < count; ++k, next(sample))
      longest = std::max(longest, length_of(field, *fields_, sample));
    rows(piece)[i] = longest;
    const std::size_t whole = places_[i].sample_bytes;
    const std::size_t kept =
        whole / static_cast<std::size_t>(field.shape[0]) * static_cast<std::size_t>(longest);
    std::byte* const first = piece + places_[i].offset;
    for (std::size_t k = 1; k < static_cast<std::size_t>(count); ++k)
      std::memmove(first + k * kept, first + k * whole, kept);
  }
}

Batch BatchLayout::batch(std::shared_ptr<std::byte> piece, std::int64_t count) const {
  std::vector<View> views = first_sample(piece.get());
  for (std::size_t i = 0; i < views.size(); ++i) {
    View& view = views[i];
    if (cuts_ && !(*fields_)[i].length_field.empty()) view.shape[0] = rows(piece.get())[i];
    const Dims sample = view.shape, strides = view.strides;
    view.shape = {count};
    view.strides = {sample.product()};
    for (const std::int64_t extent : sample) view.shape.push_back(extent);
    for (const std::int64_t stride : strides) view.strides.push_back(stride);
  }
  Batch batch(fields_, std::move(views));
  batch.indices = {indices(piece.get()), static_cast<std::size_t>(count)};
  batch.memory = std::move(piece);
  return batch;
}

void BatchLayout::check_unchanged(const Source& source, std::int64_t index) const {
  const std::span<const Field> now = source.fields();
  if (std::equal(now.begin(), now.end(), fields_->begin(), fields_->end())) return;
  const auto [was, is] = std::mismatch(fields_->begin(), fields_->end(), now.begin(), now.end());
  throw Error(
      fmt::format("{}: sample {}: expected field {}, as at the start, got {}; all samples of a source have "
                  "the same fields",
                  source.name(), index, was == fields_->end() ? "list to end" : was->to_string(),
                  is == now.end() ? "none" : is->to_string()));
}

// Samples are dense in some order, which does not matter here.
void BatchLayout::check_values(const Source& source, std::byte* piece,
                               std::span<const std::int64_t> indices) const {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const Field& field = (*fields_)[i];
    if (field.values == 0) continue;
    const std::size_t each = places_[i].sample_bytes / size_of(field.dtype);
    const auto stray = find_stray(field, piece + places_[i].offset, indices.size() * each);
    if (!stray) continue;
    throw Error(fmt::format("{}: sample {}: expected field {} to hold integers from {} to {}, got {}",
                            source.name(), indices[stray->place / each], field.name, field.has_none ? -1 : 0,
                            field.values - 1, stray->value));
  }
}

}  // namespace dtrain
