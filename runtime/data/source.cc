#include "runtime/data/source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/data/padding.h"

namespace dtrain {
namespace {

bool is_length(const Field* field) {
  return field != nullptr && field->dtype == DType::i64 && field->shape.rank() == 0;
}

/// The least and the largest value of an integer type, as far as a double has them exactly.
std::pair<double, double> range_of(DType dtype) {
  constexpr double kExact = 0x1p53;
  switch (dtype) {
    case DType::boolean:
      return {0, 1};
    case DType::u8:
      return {0, 255};
    case DType::i8:
      return {-128, 127};
    case DType::i16:
      return {-32768, 32767};
    case DType::i32:
      return {-0x1p31, 0x1p31 - 1};
    default:
      return {-kExact, kExact};
  }
}

std::string complaint_of_length(const Field& field, std::span<const Field> all) {
  if (field.length_field.empty()) return "";
  if (field.shape.rank() == 0) return "a first extent where samples have lengths, got a single value";
  if (!is_length(find_field(all, field.length_field)))
    return fmt::format("a field {} (int64 []) for its length, got {}", field.length_field, describe(all));
  if (is_floating(field.dtype)) return "";
  const auto [least, most] =
      field.values > 0 ? std::pair(field.has_none ? -1.0 : 0.0, static_cast<double>(field.values - 1))
                       : range_of(field.dtype);
  const double value = field.padding_value;
  if (std::trunc(value) == value && value >= least && value <= most) return "";
  return fmt::format("a padding value among its values, got {}", field.padding_value);
}

std::string complaint(const Field& field, std::span<const Field> before) {
  if (field.name.empty()) return "a name, got an empty one";
  if (find_field(before, field.name) != nullptr) return "a name of its own, got one that another field has";
  if (field.shape.rank() >= kMaxRank)
    return fmt::format("at most {} dimensions, got {}", kMaxRank - 1, field.shape.rank());
  const bool positive = std::all_of(field.shape.begin(), field.shape.end(), [](auto n) { return n >= 1; });
  if (!positive) return fmt::format("extents of at least 1, got {}", field.shape.to_string());
  if (field.values < 0) return fmt::format("a number of values of 0 or more, got {}", field.values);
  if (field.values > 0 && is_floating(field.dtype))
    return fmt::format("integers where values are limited (to {}), got {}", field.values,
                       name_of(field.dtype));
  if (field.has_none && field.dtype != DType::i32 && field.dtype != DType::i64)
    return fmt::format("int32 or int64 where a value may be none (-1), got {}", name_of(field.dtype));
  const auto columns = static_cast<std::int64_t>(field.columns.size());
  if (columns > 0 && columns != field.shape.product())
    return fmt::format("a name for each of {} elements, got {}", field.shape.product(), columns);
  const auto means = static_cast<std::int64_t>(field.mean.size());
  if (field.mean.size() != field.deviation.size() || (means > 0 && means != field.shape.product()))
    return fmt::format("a mean and a deviation for each of {} elements, got {} and {}", field.shape.product(),
                       means, field.deviation.size());
  const auto fills = static_cast<std::int64_t>(field.fill.size());
  if (fills > 0 && fills != field.shape.product())
    return fmt::format("a number to fill in for each of {} elements, got {}", field.shape.product(), fills);
  return "";
}

/// The same error, of the same class, with the sample in front of its message.
template <class E>
E placed(E error, const Source& source, std::int64_t index) {
  static_cast<std::runtime_error&>(error) = std::runtime_error(
      fmt::format("{}: sample {}: {}", source.name(), place_name(source, index), error.what()));
  return error;
}

}  // namespace

std::string Field::to_string() const {
  return fmt::format("{} {} {}", name, name_of(dtype), shape.to_string());
}

std::shared_ptr<const Source> in_epoch(const std::shared_ptr<const Source>& source, std::int64_t epoch) {
  auto seen = source->at_epoch(epoch);
  return seen == nullptr ? source : seen;
}

std::string place_name(const Source& source, std::int64_t index) {
  const std::int64_t place = source.place_of(index);
  return place == index ? std::to_string(index) : fmt::format("{} ({} of the file)", index, place);
}

const Field* find_field(std::span<const Field> fields, std::string_view name) noexcept {
  const auto found =
      std::find_if(fields.begin(), fields.end(), [&](const Field& field) { return field.name == name; });
  return found == fields.end() ? nullptr : &*found;
}

std::string describe(std::span<const Field> fields) {
  std::string text;
  for (const Field& field : fields) text += (text.empty() ? "" : ", ") + field.to_string();
  return text;
}

void check_fields(const Source& source) {
  const std::span<const Field> fields = source.fields();
  if (fields.empty())
    throw UsageError(fmt::format("{}: expected samples of at least one field, got none", source.name()));
  for (std::size_t i = 0; i < fields.size(); ++i) {
    std::string wrong = complaint(fields[i], fields.first(i));
    if (wrong.empty()) wrong = complaint_of_length(fields[i], fields);
    if (wrong.empty()) continue;
    throw UsageError(fmt::format("{}: field {} ({}): expected {}", source.name(), i, fields[i].name, wrong));
  }
}

void read_sample(const Source& source, std::int64_t index, std::span<const View> outputs,
                 KeyedGenerator& generator) {
  try {
    source.read(index, outputs, generator);
    pad_sample(source.fields(), outputs);
  } catch (const DataError& error) {
    throw placed(error, source, index);
  } catch (const SystemError& error) {
    throw placed(error, source, index);
  } catch (const DeviceError& error) {
    throw placed(error, source, index);
  } catch (const UsageError& error) {
    throw placed(error, source, index);
  } catch (const std::exception& error) {
    throw Error(fmt::format("{}: sample {}: {}", source.name(), place_name(source, index), error.what()));
  }
}

}  // namespace dtrain
