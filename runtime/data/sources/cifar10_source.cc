#include "runtime/data/sources/cifar10_source.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>

#include "runtime/base/error.h"
#include "runtime/data/sources/pixels.h"

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

Cifar10Source::Cifar10Source(std::string name, const std::vector<std::string>& files,
                             const std::string& remedy)
    : name_(std::move(name)), fields_(labelled_image({3, 32, 32}, kClasses)) {
  for (const std::string& file : files) append_file(file, remedy, bytes_);
}

std::int64_t Cifar10Source::size() const noexcept {
  return static_cast<std::int64_t>(bytes_.size()) / kRecord;
}

void Cifar10Source::read(std::int64_t index, std::span<const View> outputs, KeyedGenerator&) const {
  const auto* const record = reinterpret_cast<const std::uint8_t*>(bytes_.data()) + index * kRecord;
  *outputs[1].as<std::int64_t>() = record[0];
  write_pixels(record + 1, outputs[0]);
}

}  // namespace dtrain
