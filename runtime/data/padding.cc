#include "runtime/data/padding.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

template <class T>
void fill(const View& view, T value) {
  std::fill_n(view.as<T>(), view.numel(), value);
}

/// `view` is dense.
void fill(const View& view, double value) {
  switch (view.dtype) {
    case DType::f32:
      return fill(view, static_cast<float>(value));
    case DType::f64:
      return fill<double>(view, value);
    case DType::f16:
      return fill(view, Float16(static_cast<float>(value)));
    case DType::bf16:
      return fill(view, BFloat16(static_cast<float>(value)));
    case DType::i64:
      return fill(view, static_cast<std::int64_t>(value));
    case DType::i32:
      return fill(view, static_cast<std::int32_t>(value));
    case DType::i16:
      return fill(view, static_cast<std::int16_t>(value));
    case DType::i8:
      return fill(view, static_cast<std::int8_t>(value));
    case DType::u8:
      return fill(view, static_cast<std::uint8_t>(value));
    case DType::boolean:
      return fill(view, Bool(value != 0));
  }
}

}  // namespace

std::int64_t length_of(const Field& field, std::span<const Field> fields, std::span<const View> sample) {
  if (field.length_field.empty()) return field.shape[0];
  const auto place = static_cast<std::size_t>(find_field(fields, field.length_field) - fields.data());
  const std::int64_t length = *sample[place].as<std::int64_t>();
  if (length >= 0 && length <= field.shape[0]) return length;
  throw Error(fmt::format("expected field {} from 0 to {}, the most rows of field {}, got {}",
                          field.length_field, field.shape[0], field.name, length));
}

void pad_sample(std::span<const Field> fields, std::span<const View> sample) {
  for (std::size_t i = 0; i < sample.size(); ++i) {
    const Field& field = fields[i];
    if (field.length_field.empty()) continue;
    const std::int64_t length = length_of(field, fields, sample), row = sample[i].numel() / field.shape[0];
    View rest = sample[i];
    rest.shape[0] -= length;
    rest.data = rest.as<std::byte>() + static_cast<std::size_t>(length * row) * size_of(rest.dtype);
    fill(rest, field.padding_value);
  }
}

}  // namespace dtrain
