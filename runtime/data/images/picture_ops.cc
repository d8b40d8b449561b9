#include "runtime/data/images/picture_ops.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/data/images/hue.h"
#include "runtime/data/images/moved.h"

namespace dtrain {
namespace {

constexpr std::array<std::string_view, 15> kKinds = {
    "identity", "shear_x",   "shear_y",   "translate_x", "translate_y",   "rotate",   "brightness", "color",
    "contrast", "sharpness", "posterize", "solarize",    "auto_contrast", "equalize", "hue"};

/// What each value of a channel becomes.
using ByteTable = std::array<std::uint8_t, 256>;
using Histogram = std::array<std::int64_t, 256>;

template <class Value>
ByteTable table_of(const Value& value) {
  ByteTable table;
  for (std::size_t byte = 0; byte < table.size(); ++byte) table[byte] = value(static_cast<int>(byte));
  return table;
}

std::uint8_t clipped(int value) { return static_cast<std::uint8_t>(std::clamp(value, 0, 255)); }

void look_up(const std::array<ByteTable, 3>& tables, Picture& picture) {
  for (int y = 0; y < picture.size().height; ++y) {
    std::uint8_t* pixel = picture.row(y);
    for (int x = 0; x < picture.size().width; ++x, pixel += 3)
      for (std::size_t c = 0; c < 3; ++c) pixel[c] = tables[c][pixel[c]];
  }
}

void look_up(const ByteTable& table, Picture& picture) { look_up({table, table, table}, picture); }

std::array<Histogram, 3> histograms(const Picture& picture) {
  std::array<Histogram, 3> counts{};
  const PictureView view = picture.view();
  for (int y = 0; y < view.height; ++y) {
    const std::uint8_t* pixel = view.row(y);
    for (int x = 0; x < view.width; ++x, pixel += 3)
      for (std::size_t c = 0; c < 3; ++c) ++counts[c][pixel[c]];
  }
  return counts;
}

/// From `a` to `b` by `share`, which may lead beyond both.
std::uint8_t blended(int a, int b, float share) {
  const float value = static_cast<float>(a) + share * static_cast<float>(b - a);
  return static_cast<std::uint8_t>(std::clamp(value, 0.0F, 255.0F));
}

int luminance(const std::uint8_t* rgb) {
  return static_cast<int>((19595U * rgb[0] + 38470U * rgb[1] + 7471U * rgb[2] + 0x8000U) >> 16);
}

void blend_with_gray(Picture& picture, float share) {
  for (int y = 0; y < picture.size().height; ++y) {
    std::uint8_t* pixel = picture.row(y);
    for (int x = 0; x < picture.size().width; ++x, pixel += 3) {
      const int gray = luminance(pixel);
      for (int c = 0; c < 3; ++c) pixel[c] = blended(gray, pixel[c], share);
    }
  }
}

int mean_luminance(const Picture& picture) {
  const PictureView view = picture.view();
  std::int64_t sum = 0;
  for (int y = 0; y < view.height; ++y) {
    for (int x = 0; x < view.width; ++x) sum += luminance(view.row(y) + 3 * x);
  }
  const double count = static_cast<double>(view.width) * view.height;
  return static_cast<int>(static_cast<double>(sum) / count + 0.5);
}

ByteTable blend_with(int gray, float share) {
  return table_of([&](int byte) { return blended(gray, byte, share); });
}

/// Each pixel inside weighs five times as much as its eight neighbours; those at the border stay.
void smooth(const PictureView& from, Picture& to) {
  constexpr float kOne = 1.0F / 13.0F, kFive = 5.0F / 13.0F;
  to.resize({from.width, from.height});
  for (int y = 0; y < from.height; ++y) std::copy_n(from.row(y), to.row_bytes(), to.row(y));
  const auto three = [](const std::uint8_t* p, float middle) {
    return static_cast<float>(p[-3]) * kOne + static_cast<float>(p[0]) * middle +
           static_cast<float>(p[3]) * kOne;
  };
  for (int y = 1; y + 1 < from.height; ++y) {
    const std::uint8_t *above = from.row(y - 1), *here = from.row(y), *below = from.row(y + 1);
    std::uint8_t* out = to.row(y);
    for (int i = 3; i < 3 * (from.width - 1); ++i) {
      float sum = 0.5F;
      sum += three(below + i, kOne);
      sum += three(here + i, kFive);
      sum += three(above + i, kOne);
      out[i] = static_cast<std::uint8_t>(std::clamp(sum, 0.0F, 255.0F));
    }
  }
}

void sharpen(Picture& picture, float share, Picture& spare) {
  smooth(picture.view(), spare);
  for (int y = 0; y < picture.size().height; ++y) {
    std::uint8_t* out = picture.row(y);
    const std::uint8_t* smoothed = spare.row(y);
    for (std::size_t i = 0; i < picture.row_bytes(); ++i) out[i] = blended(smoothed[i], out[i], share);
  }
}

ByteTable stretched(const Histogram& counts) {
  const auto used = [](std::int64_t count) { return count > 0; };
  const int least = static_cast<int>(std::ranges::find_if(counts, used) - counts.begin());
  const int most =
      255 - static_cast<int>(std::find_if(counts.rbegin(), counts.rend(), used) - counts.rbegin());
  if (most <= least) return table_of([](int byte) { return static_cast<std::uint8_t>(byte); });
  const double scale = 255.0 / (most - least), offset = -least * scale;
  return table_of([&](int byte) { return clipped(static_cast<int>(byte * scale + offset)); });
}

ByteTable equalized(const Histogram& counts) {
  std::int64_t total = 0, last = 0;
  for (const std::int64_t count : counts) {
    total += count;
    if (count > 0) last = count;
  }
  const std::int64_t step = (total - last) / 255;
  if (step == 0) return table_of([](int byte) { return static_cast<std::uint8_t>(byte); });
  std::int64_t below = step / 2;
  return table_of([&](int byte) {
    const int value = static_cast<int>(below / step);
    below += counts[static_cast<std::size_t>(byte)];
    return clipped(value);
  });
}

template <class Table>
void look_up_by_channel(const Table& table, Picture& picture) {
  const auto counts = histograms(picture);
  look_up({table(counts[0]), table(counts[1]), table(counts[2])}, picture);
}

ByteTable posterized(int bits) {
  return table_of([&](int byte) { return static_cast<std::uint8_t>(byte & -(1 << (8 - bits))); });
}

ByteTable solarized(double threshold) {
  return table_of([&](int byte) { return static_cast<std::uint8_t>(byte < threshold ? byte : 255 - byte); });
}

}  // namespace

PictureOpKind picture_op_kind_named(std::string_view name) {
  const auto found = std::ranges::find(kKinds, name);
  if (found != kKinds.end()) return static_cast<PictureOpKind>(found - kKinds.begin());
  throw UsageError(
      fmt::format("picture: expected one of the changes {}, got \"{}\"", fmt::join(kKinds, ", "), name));
}

void apply(const PictureOp& op, Picture& picture, Picture& spare) {
  const auto share = static_cast<float>(op.amount);
  switch (op.kind) {
    case PictureOpKind::identity:
      return;
    case PictureOpKind::shear_x:
    case PictureOpKind::shear_y:
    case PictureOpKind::translate_x:
    case PictureOpKind::translate_y:
      move_pixels(picture.view(), affine_map(op, picture.size()), spare);
      return std::swap(picture, spare);
    case PictureOpKind::rotate:
      rotate(picture.view(), op.amount, spare);
      return std::swap(picture, spare);
    case PictureOpKind::brightness:
      return look_up(blend_with(0, share), picture);
    case PictureOpKind::contrast:
      return look_up(blend_with(mean_luminance(picture), share), picture);
    case PictureOpKind::color:
      return blend_with_gray(picture, share);
    case PictureOpKind::sharpness:
      return sharpen(picture, share, spare);
    case PictureOpKind::posterize:
      return look_up(posterized(static_cast<int>(op.amount)), picture);
    case PictureOpKind::solarize:
      return look_up(solarized(op.amount), picture);
    case PictureOpKind::auto_contrast:
      return look_up_by_channel(stretched, picture);
    case PictureOpKind::equalize:
      return look_up_by_channel(equalized, picture);
    case PictureOpKind::hue:
      return turn_hue(picture, op.amount);
  }
}

}  // namespace dtrain
