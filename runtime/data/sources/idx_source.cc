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

void check_labels(const IdxArray& labels, std::int64_t classes, const std::string& path) {
  const auto bytes = labels.bytes;
  if (*std::max_element(bytes.begin(), bytes.end()) < classes) return;
  const auto bad =
      std::find_if(bytes.begin(), bytes.end(), [&](std::uint8_t label) { return label >= classes; });
  const auto index = bad - bytes.begin();
  throw DataError(path, static_cast<std::int64_t>(labels.header_bytes) + index,
                  fmt::format("a label from 0 to {}", classes - 1),
                  fmt::format("{} (label {})", *bad, index));
}

}  // namespace

IdxSource::IdxSource(const IdxSourceFiles& files, DataCache& cache)
    : name_(files.name),
      fields_(labelled_image({1, files.height, files.width}, files.classes)),
      pixels_(files.height * files.width) {
  labels_ = read_part(files.labels, {}, "labels", files, cache);
  check_labels(labels_, files.classes, files.labels);
  images_ = read_part(files.images, {files.height, files.width}, "images", files, cache);
  if (labels_.dims[0] != images_.dims[0]) {
    throw DataError(files.labels, 4,
                    fmt::format("{} labels, one for each image in {}", images_.dims[0], files.images),
                    std::to_string(labels_.dims[0]));
  }
}

void IdxSource::read(std::int64_t index, std::span<const View> outputs, KeyedGenerator&) const {
  images_.content.check_length();
  labels_.content.check_length();
  write_pixels(images_.bytes.data() + index * pixels_, outputs[0]);
  *outputs[1].as<std::int64_t>() = labels_.bytes[static_cast<std::size_t>(index)];
}

}  // namespace dtrain
