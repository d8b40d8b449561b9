#include "runtime/data/sources/npy_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/data/formats/elements.h"
#include "runtime/data/formats/idx.h"
#include "runtime/data/formats/npz.h"
#include "runtime/data/sources/class_labels.h"
#include "runtime/data/sources/pixels.h"

namespace dtrain {
namespace {

constexpr int kGreyImagesRank = 3, kImagesRank = 4, kClipsRank = 5, kMasksRank = 3;
constexpr std::uint64_t kMostLookedThrough = 1ULL << 30;

/// Whether the bytes are those of images, or of clips.
bool has_pixels(const NpyField& file) {
  const int rank = file.array.header.shape.rank();
  return file.array.header.type == NpyType::u1 &&
         ((file.name == "image" && (rank == kImagesRank || rank == kGreyImagesRank)) ||
          (file.name == "clip" && rank == kClipsRank));
}

/// Image by image, [C, H, W], where `out` is a clip.
void write_all_pixels(const std::uint8_t* pixels, const View& out) {
  if (out.rank() == 3) return write_pixels(pixels, out);
  View frame{out.data,
             out.dtype,
             {out.shape[1], out.shape[2], out.shape[3]},
             {out.strides[1], out.strides[2], out.strides[3]}};
  for (std::int64_t t = 0; t < out.shape[0]; ++t, pixels += frame.numel()) {
    write_pixels(pixels, frame);
    frame.data = frame.as<std::byte>() + out.strides[0] * static_cast<std::int64_t>(size_of(out.dtype));
  }
}

/// Byte of the file where element `element` of the array begins; -1 where elements were brought in order.
std::int64_t offset_of(const NpyField& file, std::int64_t element) {
  if (file.array.header.fortran) return -1;
  return static_cast<std::int64_t>(file.array.header.bytes) +
         element * static_cast<std::int64_t>(size_of(file.array.header.type));
}

float shown(Float16 value) { return static_cast<float>(value); }
template <class T>
T shown(T value) {
  return value;
}

/// Throws DataError unless all of `count` elements, at `bytes`, from number `first` on are finite in float32.
template <class T>
void check_finite(const NpyField& file, std::int64_t first, std::int64_t count, const std::uint8_t* bytes) {
  const auto value_at = [bytes](std::int64_t i) {
    T value;
    std::memcpy(&value, bytes + i * static_cast<std::int64_t>(sizeof(T)), sizeof value);
    return value;
  };
  const auto is_bad = [](T value) { return !std::isfinite(static_cast<float>(value)); };
  std::int64_t bad = 0;  // counted without a branch, which is what vectors can do
  for (std::int64_t i = 0; i < count; ++i) bad += is_bad(value_at(i)) ? 1 : 0;
  for (std::int64_t i = 0; bad > 0 && i < count; ++i) {
    if (!is_bad(value_at(i))) continue;
    const std::int64_t elements = file.array.header.shape.product() / file.array.header.shape[0];
    throw DataError(file.path, offset_of(file, first + i), "a finite number that float32 can hold",
                    fmt::format("{} (sample {})", shown(value_at(i)), (first + i) / elements));
  }
}

void check_finite(const NpyField& file, std::int64_t first, std::int64_t count, const std::uint8_t* bytes) {
  if (file.array.header.type == NpyType::f4) return check_finite<float>(file, first, count, bytes);
  if (file.array.header.type == NpyType::f2) return check_finite<Float16>(file, first, count, bytes);
  if (file.array.header.type == NpyType::f8) check_finite<double>(file, first, count, bytes);
}

/// Calls `visit(first, count, bytes)` for runs of the array's elements.
template <class Visit>
void for_each_run(const NpyField& file, Visit visit) {
  const std::size_t each = size_of(file.array.header.type);
  file.array.elements.for_each_piece([&](std::size_t offset, std::span<const std::uint8_t> bytes) {
    visit(static_cast<std::int64_t>(offset / each), static_cast<std::int64_t>(bytes.size() / each),
          bytes.data());
  });
}

/// The element at `bytes`, which is no float32.
std::int64_t integer_at(NpyType type, const std::uint8_t* bytes) {
  const auto as = [bytes](auto value) {
    std::memcpy(&value, bytes, sizeof value);
    return static_cast<std::int64_t>(value);
  };
  switch (type) {
    case NpyType::i4:
      return as(std::int32_t{});
    case NpyType::i8:
      return as(std::int64_t{});
    case NpyType::i2:
      return as(std::int16_t{});
    case NpyType::i1:
      return as(std::int8_t{});
    case NpyType::f8:
      return as(double{});
    default:
      return as(std::uint8_t{});
  }
}

bool all_whole(const NpyField& file) {
  bool whole = true;
  for_each_run(file, [&](std::int64_t, std::int64_t count, const std::uint8_t* bytes) {
    for (std::int64_t i = 0; i < count && whole; ++i) {
      double value = 0;
      std::memcpy(&value, bytes + i * static_cast<std::int64_t>(sizeof value), sizeof value);
      whole = std::floor(value) == value && std::abs(value) <= 9007199254740992.0;  // 2^53
    }
  });
  return whole;
}

/// Whether the field is read as classes.
bool is_label(const NpyField& file) {
  const NpyHeader& header = file.array.header;
  const bool one_each = header.shape.rank() == 1 || (header.shape.rank() == 2 && header.shape[1] == 1);
  if (file.name != "label" || !one_each || header.type == NpyType::f4 || header.type == NpyType::f2)
    return false;
  return header.type != NpyType::f8 || all_whole(file);
}

/// Whether the field is read as classes of pixels.
bool is_mask(const NpyField& file, const NpyLimits& limits) {
  const NpyType type = file.array.header.type;
  return file.name == "mask" && limits.classes > 0 && file.array.header.shape.rank() == kMasksRank &&
         (type == NpyType::u1 || type == NpyType::i2 || type == NpyType::i4 || type == NpyType::i8);
}

void write_mask(const NpyField& file, const View& sample, const NpyLimits& limits, std::int64_t* out) {
  const auto* bytes = sample.as<std::uint8_t>();
  const std::size_t each = size_of(file.array.header.type);
  for (std::int64_t i = 0; i < sample.numel(); ++i, bytes += each) {
    const std::int64_t value = integer_at(file.array.header.type, bytes);
    out[i] = value == limits.ignored ? -1 : value;
  }
}

/// How many classes there are: `limit`, or counted where that is 0. Throws DataError for a label that is
/// negative or not below `limit`.
std::int64_t classes_of(const NpyField& file, std::int64_t limit) {
  std::vector<std::int64_t> labels;
  const NpyType type = file.array.header.type;
  for_each_run(file, [&](std::int64_t first, std::int64_t count, const std::uint8_t* bytes) {
    for (std::int64_t i = 0; i < count; ++i) {
      labels.push_back(integer_at(type, bytes + i * static_cast<std::int64_t>(size_of(type))));
      if (labels.back() >= 0 && (limit == 0 || labels.back() < limit)) continue;
      throw DataError(
          file.path, offset_of(file, first + i),
          limit > 0 ? fmt::format("a class from 0 to {}", limit - 1) : "a class, an integer from 0 on",
          fmt::format("{} (label {})", labels.back(), first + i));
    }
  });
  return limit > 0 ? limit : count_classes(std::move(labels), file.path);
}

Field field_of(const NpyField& file, const NpyLimits& limits) {
  const NpyHeader& header = file.array.header;
  if (is_label(file))
    return {.name = file.name, .dtype = DType::i64, .values = classes_of(file, limits.classes)};
  if (is_mask(file, limits)) {
    return {.name = file.name,
            .dtype = DType::i64,
            .shape = {header.shape[1], header.shape[2]},
            .values = limits.classes,
            .has_none = true};
  }
  Field field{.name = file.name,
              .dtype = dtype_of_npy(header.type),
              .shape = Dims(std::span(header.shape.begin() + 1, header.shape.end())),
              .values = header.type == NpyType::b1 ? 2 : 0};
  if (is_floating(field.dtype) || has_pixels(file)) field.dtype = DType::f32;
  if (has_pixels(file) && field.shape.rank() == 2) field.shape = {1, field.shape[0], field.shape[1]};
  if (field.dtype == DType::i16 || field.dtype == DType::i8) field.dtype = DType::i32;
  if (file.name == "tokens" && !is_floating(field.dtype)) field.values = limits.vocabulary;
  return field;
}

/// Into float32 and int32.
void convert(const View& sample, const View& out) {
  const auto to_float = [](auto value) { return static_cast<float>(value); };
  const auto to_int = [](auto value) { return static_cast<std::int32_t>(value); };
  if (sample.dtype == DType::f16) return convert_elements<Float16, float>(sample, out, to_float);
  if (sample.dtype == DType::i16) return convert_elements<std::int16_t, std::int32_t>(sample, out, to_int);
  if (sample.dtype == DType::i8) return convert_elements<std::int8_t, std::int32_t>(sample, out, to_int);
  convert_elements<double, float>(sample, out, to_float);
}

}  // namespace

NpyField open_npy_field(std::string name, std::string path) {
  NpyField file{std::move(name), std::move(path), {}};
  if (const auto in_archive = npz_name(file.path)) {
    const NpzFile archive(in_archive->file);
    std::string array = in_archive->array.empty() ? file.name : in_archive->array;
    if (in_archive->array.empty() && archive.names().size() == 1) array = archive.names().front();
    file.path = fmt::format("{}:{}", in_archive->file, array);
    file.array = archive.array(array);
  } else {
    file.array = read_npy(file.path);
  }
  const Dims& shape = file.array.header.shape;
  if (shape.rank() == 0 || shape.product() == 0) {
    throw DataError(file.path, static_cast<std::int64_t>(file.array.header.bytes),
                    "an array of samples, [N, ...], with at least one", "shape " + shape.to_string());
  }
  return file;
}

NpyField open_idx_field(std::string name, std::string path, DataCache& cache) {
  const IdxArray array = read_idx(path, {.item = std::nullopt}, cache);
  const NpyHeader header{.type = NpyType::u1,
                         .shape = array.dims,
                         .bytes = array.header_bytes,
                         .total = array.header_bytes + array.elements.size()};
  return {std::move(name), std::move(path), {header, array.elements}};
}

NpySource::NpySource(std::string name, std::vector<NpyField> files, const NpyLimits& limits)
    : name_(std::move(name)), files_(std::move(files)), limits_(limits) {
  for (const NpyField& file : files_) {
    const NpyField& first = files_.front();
    if (file.array.header.shape[0] != first.array.header.shape[0]) {
      throw DataError(file.path, static_cast<std::int64_t>(file.array.header.bytes),
                      fmt::format("{} samples, as in {}", first.array.header.shape[0], first.path),
                      "shape " + file.array.header.shape.to_string());
    }
    looked_through_.push_back(file.array.header.total <= kMostLookedThrough);
    if (looked_through_.back()) {
      for_each_run(file, [&](std::int64_t begin, std::int64_t count, const std::uint8_t* bytes) {
        check_finite(file, begin, count, bytes);
      });
    }
    labels_.push_back(is_label(file));
    fields_.push_back(field_of(file, limits));
  }
  check_fields(*this);
}

bool NpySource::has_bytes(std::size_t field) const noexcept { return has_pixels(files_[field]); }

std::vector<std::int64_t> NpySource::labels() const {
  std::vector<std::int64_t> labels;
  const auto at = std::ranges::find(labels_, true) - labels_.begin();
  if (at == static_cast<std::ptrdiff_t>(labels_.size())) return labels;
  const NpyField& file = files_[static_cast<std::size_t>(at)];
  for (std::int64_t i = 0; i < size(); ++i)
    labels.push_back(integer_at(file.array.header.type, file.array.row(i).as<std::uint8_t>()));
  return labels;
}

void NpySource::read(std::int64_t index, std::span<const View> outputs, KeyedGenerator&) const {
  for (std::size_t i = 0; i < files_.size(); ++i) {
    const NpyField& file = files_[i];
    const View sample = file.array.row(index);
    if (!looked_through_[i])
      check_finite(file, index * sample.numel(), sample.numel(), sample.as<std::uint8_t>());
    if (has_pixels(file)) {
      write_all_pixels(sample.as<std::uint8_t>(), outputs[i]);
    } else if (is_mask(file, limits_)) {
      write_mask(file, sample, limits_, outputs[i].as<std::int64_t>());
    } else if (labels_[i]) {
      *outputs[i].as<std::int64_t>() = integer_at(file.array.header.type, sample.as<std::uint8_t>());
    } else if (sample.dtype == outputs[i].dtype) {
      copy_elements(sample, outputs[i]);
    } else {
      convert(sample, outputs[i]);
    }
  }
}

}  // namespace dtrain
