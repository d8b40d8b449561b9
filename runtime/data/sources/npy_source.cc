#include "runtime/data/sources/npy_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/data/formats/elements.h"
#include "runtime/data/sources/pixels.h"

namespace dtrain {
namespace {

constexpr int kImagesRank = 4;

bool is_integer(NpyType type) { return type != NpyType::f4 && type != NpyType::f8; }

bool is_image(const NpyField& file) {
  return file.name == "image" && file.array.header.type == NpyType::u1 &&
         file.array.header.shape.rank() == kImagesRank;
}

Field field_of(const NpyField& file, std::int64_t classes) {
  const NpyHeader& header = file.array.header;
  Field field{.name = file.name,
              .dtype = dtype_of_npy(header.type),
              .shape = Dims(std::span(header.shape.begin() + 1, header.shape.end())),
              .values = header.type == NpyType::b1 ? 2 : 0};
  if (header.type == NpyType::f8 || is_image(file)) field.dtype = DType::f32;
  if (NpySource::is_label(file)) {
    field.dtype = DType::i64;
    field.values = NpySource::count_classes(file, classes);
    if (classes > 0) field.values = classes;
  }
  return field;
}

void read_element(const View& sample, NpyType type, const View& out) {
  const auto widened = [](auto value) { return static_cast<std::int64_t>(value); };
  switch (type) {
    case NpyType::i4:
      return convert_elements<std::int32_t, std::int64_t>(sample, out, widened);
    case NpyType::i8:
      return convert_elements<std::int64_t, std::int64_t>(sample, out, widened);
    case NpyType::f8:
      return convert_elements<double, float>(sample, out,
                                             [](double value) { return static_cast<float>(value); });
    default:
      return convert_elements<std::uint8_t, std::int64_t>(sample, out, widened);
  }
}

}  // namespace

NpyField open_npy_field(std::string name, std::string path) {
  NpyField file{std::move(name), std::move(path), {}};
  file.array = read_npy(file.path);
  const Dims& shape = file.array.header.shape;
  if (shape.rank() == 0 || shape.product() == 0) {
    throw DataError(file.path, static_cast<std::int64_t>(file.array.header.bytes),
                    "an array of samples, [N, ...], with at least one", "shape " + shape.to_string());
  }
  return file;
}

bool NpySource::is_label(const NpyField& file) {
  const NpyHeader& header = file.array.header;
  return file.name == "label" && is_integer(header.type) && header.shape.rank() == 1;
}

std::int64_t NpySource::count_classes(const NpyField& file, std::int64_t limit) {
  const View labels = file.array.view();
  std::int64_t most = -1;
  for (std::int64_t i = 0; i < labels.shape[0]; ++i) {
    std::int64_t label = 0;
    read_element(sample_of(labels, i), file.array.header.type, View{&label, DType::i64, {}, {}});
    if (label < 0 || label >= (limit > 0 ? limit : INT64_MAX)) {
      const auto element = static_cast<std::int64_t>(size_of(file.array.header.type));
      throw DataError(
          file.path, static_cast<std::int64_t>(file.array.header.bytes) + i * element,
          limit > 0 ? fmt::format("a class from 0 to {}", limit - 1) : "a class, an integer from 0 on",
          fmt::format("{} (label {})", label, i));
    }
    most = std::max(most, label);
  }
  return most + 1;
}

NpySource::NpySource(std::string name, std::vector<NpyField> files, std::int64_t classes)
    : name_(std::move(name)), files_(std::move(files)) {
  for (const NpyField& file : files_) {
    const NpyField& first = files_.front();
    if (file.array.header.shape[0] != first.array.header.shape[0]) {
      throw DataError(file.path, static_cast<std::int64_t>(file.array.header.bytes),
                      fmt::format("{} samples, as in {}", first.array.header.shape[0], first.path),
                      "shape " + file.array.header.shape.to_string());
    }
    fields_.push_back(field_of(file, classes));
  }
  check_fields(*this);
}

bool NpySource::has_bytes(std::size_t field) const noexcept { return is_image(files_[field]); }

void NpySource::read(std::int64_t index, std::span<const View> outputs, KeyedGenerator&) const {
  for (std::size_t i = 0; i < files_.size(); ++i) {
    const View sample = sample_of(files_[i].array.view(), index);
    if (is_image(files_[i])) {
      write_pixels(sample.as<std::uint8_t>(), outputs[i]);
    } else if (sample.dtype == outputs[i].dtype) {
      copy_elements(sample, outputs[i]);
    } else {
      read_element(sample, files_[i].array.header.type, outputs[i]);
    }
  }
}

}  // namespace dtrain
