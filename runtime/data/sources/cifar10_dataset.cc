#include "runtime/data/sources/cifar10_dataset.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr std::int64_t kPlane = 32 * 32, kPixels = 3 * kPlane, kRecord = 1 + kPixels;
constexpr int kClasses = 10;

void append_file(const std::string& path, const std::string& remedy, std::string& bytes) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    throw DataError(path, -1, "a file of CIFAR-10's binary version", "no such file; " + remedy);
  }
  const std::size_t before = bytes.size();
  bytes.append(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  const auto size = static_cast<std::int64_t>(bytes.size() - before);
  if (size == 0 || size % kRecord != 0) {
    throw DataError(path, -1, fmt::format("a multiple of {} bytes (label and 3 x 32 x 32 pixels)", kRecord),
                    fmt::format("{} bytes", size));
  }
  for (std::int64_t offset = 0; offset < size; offset += kRecord) {
    const auto label = static_cast<unsigned char>(bytes[before + static_cast<std::size_t>(offset)]);
    if (label >= kClasses) {
      throw DataError(path, offset, fmt::format("a label below {}", kClasses), std::to_string(label));
    }
  }
}

}  // namespace

Cifar10Dataset::Cifar10Dataset(std::string name, const std::vector<std::string>& files,
                               const std::string& remedy)
    : name_(std::move(name)) {
  for (const std::string& file : files) append_file(file, remedy, bytes_);
}

std::int64_t Cifar10Dataset::size() const noexcept {
  return static_cast<std::int64_t>(bytes_.size()) / kRecord;
}

const unsigned char* Cifar10Dataset::record(std::int64_t index) const {
  return reinterpret_cast<const unsigned char*>(bytes_.data()) + index * kRecord;
}

void Cifar10Dataset::decode(std::int64_t index, PixelLayout layout, float* out) const {
  const unsigned char* pixels = record(index) + 1;
  for (std::int64_t i = 0; i < kPixels; ++i) {
    const std::int64_t to = layout == PixelLayout::chw ? i : i % kPlane * 3 + i / kPlane;
    out[to] = static_cast<float>(pixels[i]) / 255.0F;
  }
}

std::int64_t Cifar10Dataset::label(std::int64_t index) const { return record(index)[0]; }

}  // namespace dtrain
