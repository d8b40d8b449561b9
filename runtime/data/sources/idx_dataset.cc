// Reads images and labels and holds them against each other.
#include "runtime/data/sources/idx_dataset.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

IdxArray read_part(const std::string& path, const Dims& item, const char* what, const IdxDatasetFiles& files,
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

IdxDataset::IdxDataset(const IdxDatasetFiles& files, DataCache& cache)
    : name_(files.name), shape_{1, files.height, files.width}, classes_(files.classes) {
  labels_ = read_part(files.labels, {}, "labels", files, cache);
  check_labels(labels_, classes_, files.labels);
  images_ = read_part(files.images, {files.height, files.width}, "images", files, cache);
  if (labels_.dims[0] != images_.dims[0]) {
    throw DataError(files.labels, 4,
                    fmt::format("{} labels, one for each image in {}", images_.dims[0], files.images),
                    std::to_string(labels_.dims[0]));
  }
}

void IdxDataset::decode(std::int64_t index, PixelLayout, float* out) const {
  const std::int64_t pixels = shape_.numel();
  const std::uint8_t* in = images_.bytes.data() + index * pixels;
  for (std::int64_t i = 0; i < pixels; ++i) out[i] = static_cast<float>(in[i]) / 255.0F;
}

}  // namespace dtrain
