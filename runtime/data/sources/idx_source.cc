// Reads images and labels and holds them against each other.
#include "runtime/data/sources/idx_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/data/sources/pixels.h"

namespace dtrain {
namespace {

IdxArray read_part(const std::string& path, const Dims& item, const char* what, const IdxSourceFiles& files,
                   DataCache& cache) {
  IdxExpectation expectation;
  expectation.item = item;
  expectation.purpose = fmt::format("the {} of {}", what, files.name);
  if (!files.remedy.empty()) expectation.purpose += " (" + files.remedy + ")";
  return read_idx(path, expectation, cache);
}

/// `header_bytes` are in front of the labels in the file.
void check_labels(std::span<const std::uint8_t> labels, std::int64_t classes, std::size_t header_bytes,
                  const std::string& path) {
  const auto bad =
      std::find_if(labels.begin(), labels.end(), [&](std::uint8_t label) { return label >= classes; });
  if (bad == labels.end()) return;
  const auto index = bad - labels.begin();
  throw DataError(path, static_cast<std::int64_t>(header_bytes) + index,
                  fmt::format("a label from 0 to {}", classes - 1),
                  fmt::format("{} (label {})", *bad, index));
}

}  // namespace

IdxSource::IdxSource(const IdxSourceFiles& files, DataCache& cache)
    : name_(files.name),
      fields_(labelled_image({1, files.height, files.width}, files.classes)),
      pixels_(static_cast<std::size_t>(files.height * files.width)) {
  const IdxArray labels = read_part(files.labels, {}, "labels", files, cache);
  const auto bytes = labels.elements.read(0, labels.elements.size());
  labels_.assign(bytes.begin(), bytes.end());
  check_labels(labels_, files.classes, labels.header_bytes, files.labels);
  images_ = read_part(files.images, {files.height, files.width}, "images", files, cache);
  if (labels.dims[0] != images_.dims[0]) {
    throw DataError(files.labels, 4,
                    fmt::format("{} labels, one for each image in {}", images_.dims[0], files.images),
                    std::to_string(labels.dims[0]));
  }
}

void IdxSource::read(std::int64_t index, std::span<const View> outputs, KeyedGenerator&) const {
  const auto at = static_cast<std::size_t>(index);
  write_pixels(images_.elements.read(at * pixels_, pixels_).data(), outputs[0]);
  *outputs[1].as<std::int64_t>() = labels_[at];
}

}  // namespace dtrain
