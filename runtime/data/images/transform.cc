#include "runtime/data/images/transform.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/images/draws.h"
#include "runtime/data/images/resize.h"
#include "runtime/device/cpu/loops/widest.h"

namespace dtrain {
namespace {

/// What a thread keeps from picture to picture.
struct Scratch {
  Picture decoded;
  ResizeMemory resized;
  Picture changed, spare;
  std::vector<std::uint8_t> colours;  ///< a row of each
};

Scratch& scratch() {
  thread_local Scratch memory;
  return memory;
}

/// The three colours of a row, each of its own, from right to left where mirrored.
void separate(const std::uint8_t* pixels, std::size_t width, bool mirrored, std::uint8_t* red,
              std::uint8_t* green, std::uint8_t* blue) {
  DTRAIN_INDEPENDENT
  for (std::size_t x = 0; x < width; ++x) {
    red[x] = pixels[3 * x];
    green[x] = pixels[3 * x + 1];
    blue[x] = pixels[3 * x + 2];
  }
  if (!mirrored) return;
  for (std::uint8_t* const colour : {red, green, blue}) std::reverse(colour, colour + width);
}

/// (byte / 255 - mean) / deviation by divisions, as torchvision has it: a product with an inverse is rounded
/// in another way.
struct ByDivisions {
  float mean, deviation;

  float operator()(std::uint8_t byte) const { return (static_cast<float>(byte) / 255.0F - mean) / deviation; }
};

/// The same by products with inverses of twice float's digits, which take a fourth of the time: for nearly
/// all means and deviations the 256 results have the same bits. fma() is an instruction where there is AVX2.
struct ByProducts {
  static constexpr float kHigh = 1 / 255.0F, kLow = static_cast<float>(1 / 255.0 - kHigh);
  float mean, high, low;

  ByProducts(float from, float deviation)
      : mean(from), high(1 / deviation), low(static_cast<float>(1 / static_cast<double>(deviation) - high)) {}
  float operator()(std::uint8_t byte) const {
    const auto value = static_cast<float>(byte);
    const float from_mean = __builtin_fmaf(value, kHigh, value * kLow) - mean;
    return __builtin_fmaf(from_mean, high, from_mean * low);
  }
};

bool products_are_exact(const PixelNumbers& numbers) {
  for (std::size_t c = 0; c < 3; ++c) {
    const ByDivisions division{numbers.mean[c], numbers.deviation[c]};
    const ByProducts product{numbers.mean[c], numbers.deviation[c]};
    for (unsigned byte = 0; byte < 256; ++byte) {
      const auto value = static_cast<std::uint8_t>(byte);
      if (std::bit_cast<std::uint32_t>(division(value)) != std::bit_cast<std::uint32_t>(product(value)))
        return false;
    }
  }
  return true;
}

template <class Number>
void normalise(const std::uint8_t* bytes, std::size_t count, const Number& number, float* out,
               std::int64_t step) {
  if (step == 1) {
    DTRAIN_INDEPENDENT
    for (std::size_t x = 0; x < count; ++x) out[x] = number(bytes[x]);
  } else {
    for (std::size_t x = 0; x < count; ++x, out += step) *out = number(bytes[x]);
  }
}

template <class Number>
void write_numbers(const PictureView& pixels, bool mirrored, const PixelNumbers& numbers, const View& image) {
  const auto width = static_cast<std::size_t>(pixels.width);
  std::vector<std::uint8_t>& colours = scratch().colours;
  colours.resize(3 * width);
  cpu::widest([&] {
    for (int y = 0; y < pixels.height; ++y) {
      std::uint8_t* const row = colours.data();
      separate(pixels.row(y), width, mirrored, row, row + width, row + 2 * width);
      for (std::size_t c = 0; c < 3; ++c) {
        normalise(row + c * width, width, Number{numbers.mean[c], numbers.deviation[c]},
                  image.as<float>() + static_cast<std::int64_t>(c) * image.strides[0] + y * image.strides[1],
                  image.strides[2]);
      }
    }
  });
}

void write_numbers(const PictureView& pixels, bool mirrored, const PixelNumbers& numbers, bool by_products,
                   const View& image) {
  if (by_products)
    write_numbers<ByProducts>(pixels, mirrored, numbers, image);
  else
    write_numbers<ByDivisions>(pixels, mirrored, numbers, image);
}

/// A normalised value of 0, the mean colour.
void erase(const Region& region, const View& image) {
  for (std::int64_t c = 0; c < 3; ++c) {
    for (int y = region.top; y < region.top + region.height; ++y) {
      for (int x = region.left; x < region.left + region.width; ++x)
        image.as<float>()[c * image.strides[0] + y * image.strides[1] + x * image.strides[2]] = 0;
    }
  }
}

void copy(const PictureView& from, bool mirrored, Picture& to) {
  to.resize({from.width, from.height});
  for (int y = 0; y < from.height; ++y) {
    if (!mirrored) {
      std::copy_n(from.row(y), to.row_bytes(), to.row(y));
      continue;
    }
    std::uint8_t* out = to.row(y) + 3 * (from.width - 1);
    for (int x = 0; x < from.width; ++x, out -= 3) std::copy_n(from.row(y) + 3 * x, 3, out);
  }
}

/// Resize(short_side): the long side is cut to a whole number.
PictureSize with_short_side(PictureSize size, int short_side) {
  const auto long_side = [&](int a, int b) {
    return static_cast<int>(static_cast<double>(static_cast<std::int64_t>(short_side) * a) / b);
  };
  return size.width <= size.height ? PictureSize{short_side, long_side(size.height, size.width)}
                                   : PictureSize{long_side(size.width, size.height), short_side};
}

}  // namespace

PictureTransform::PictureTransform(int size, int resize, const Augmentation& augmentation,
                                   const PixelNumbers& numbers)
    : size_(size),
      resize_(resize),
      augmentation_(augmentation),
      numbers_(numbers),
      by_products_(cpu::has_avx2() && products_are_exact(numbers)) {
  if (size < 1 || resize < size) {
    throw UsageError(fmt::format(
        "pictures: expected a size of at least 1 and a short side of at least that, got {} and {}", size,
        resize));
  }
}

template <class Words>
DrawnChanges PictureTransform::draw_from(PictureSize size, Words& words) const {
  DrawnChanges drawn;
  const auto add = [&](const std::vector<PictureOp>& ops) {
    drawn.ops.insert(drawn.ops.end(), ops.begin(), ops.end());
  };
  if (augmentation_.crop) drawn.crop = draws::random_resized_crop(words, size);
  drawn.flip = augmentation_.flip && draws::flip(words);
  if (augmentation_.jitter != ColorJitter{}) add(draws::color_jitter(words, augmentation_.jitter));
  if (augmentation_.rand_augment.ops > 0)
    add(draws::rand_augment(words, augmentation_.rand_augment, {size_, size_}));
  if (augmentation_.trivial_augment) add({draws::trivial_augment(words)});
  if (augmentation_.erase > 0)
    drawn.erased = draws::random_erasing(words, {size_, size_}, augmentation_.erase);
  return drawn;
}

SeenRegion PictureTransform::seen_region(PictureSize size, const DrawnChanges& changes) const {
  const PictureSize image{size_, size_};
  if (changes.crop)
    return {*changes.crop, {{changes.crop->width, changes.crop->height}, image, {0, 0, size_, size_}}};
  const PictureSize to = with_short_side(size, resize_);
  const Region middle{draws::rounded((to.width - size_) / 2.0), draws::rounded((to.height - size_) / 2.0),
                      size_, size_};
  return {{0, 0, size.width, size.height}, {size, to, middle}};
}

// Only what the image is made of is decoded and resized.
void PictureTransform::operator()(PictureDecoder& picture, const DrawnChanges& changes,
                                  const View& image) const {
  const auto [crop, how] = seen_region(picture.size(), changes);
  Region needed = pixels_needed(how);
  needed.left += crop.left;
  needed.top += crop.top;
  const PictureView seen = resize(picture.decode(needed, scratch().decoded), how, scratch().resized);
  if (changes.ops.empty()) {
    write_numbers(seen, changes.flip, numbers_, by_products_, image);
  } else {
    Picture& changed = scratch().changed;
    copy(seen, changes.flip, changed);
    for (const PictureOp& op : changes.ops) apply(op, changed, scratch().spare);
    write_numbers(changed.view(), false, numbers_, by_products_, image);
  }
  erase(changes.erased, image);
}

DrawnChanges PictureTransform::draw(PictureSize size, KeyedGenerator& generator) const {
  return draw_from(size, generator);
}

void PictureTransform::operator()(PictureDecoder& picture, KeyedGenerator& generator,
                                  const View& image) const {
  (*this)(picture, draw_from(picture.size(), generator), image);
}

void PictureTransform::operator()(PictureDecoder& picture, Generator& generator, const View& image) const {
  (*this)(picture, draw_from(picture.size(), generator), image);
}

}  // namespace dtrain
