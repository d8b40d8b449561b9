#include "runtime/data/images/transform.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "runtime/base/error.h"
#include "runtime/data/images/draws.h"
#include "runtime/data/images/resize.h"

namespace dtrain {
namespace {

/// A number for each byte of each channel.
using NumberTable = std::array<std::array<float, 256>, 3>;

NumberTable make_numbers(const PixelNumbers& numbers) {
  NumberTable table;
  for (std::size_t c = 0; c < table.size(); ++c) {
    for (std::size_t byte = 0; byte < table[c].size(); ++byte)
      table[c][byte] = (static_cast<float>(byte) / 255.0F - numbers.mean[c]) / numbers.deviation[c];
  }
  return table;
}

void write_numbers(const PictureView& pixels, bool mirrored, const NumberTable& numbers, const View& image) {
  const std::int64_t step = mirrored ? -image.strides[2] : image.strides[2];
  for (std::int64_t c = 0; c < 3; ++c) {
    const auto& table = numbers[static_cast<std::size_t>(c)];
    for (int y = 0; y < pixels.height; ++y) {
      float* out = image.as<float>() + c * image.strides[0] + y * image.strides[1];
      if (mirrored) out += (pixels.width - 1) * image.strides[2];
      const std::uint8_t* pixel = pixels.row(y) + c;
      for (int x = 0; x < pixels.width; ++x, pixel += 3, out += step) *out = table[*pixel];
    }
  }
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

/// What a thread keeps from picture to picture.
struct Scratch {
  Picture decoded;
  ResizeMemory resized;
  Picture changed, spare;
};

Scratch& scratch() {
  thread_local Scratch memory;
  return memory;
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
    : size_(size), resize_(resize), augmentation_(augmentation), numbers_(make_numbers(numbers)) {
  if (size < 1 || resize < size) {
    throw UsageError(fmt::format(
        "pictures: expected a size of at least 1 and a short side of at least that, got {} and {}", size,
        resize));
  }
}

// Only what the middle is made of is decoded and resized.
PictureView PictureTransform::middle(PictureDecoder& picture) const {
  const PictureSize to = with_short_side(picture.size(), resize_);
  const Region part{draws::rounded((to.width - size_) / 2.0), draws::rounded((to.height - size_) / 2.0),
                    size_, size_};
  const Resizing how{picture.size(), to, part, Filter::bilinear};
  return resize(picture.decode(pixels_needed(how), scratch().decoded), how, scratch().resized);
}

template <class Words>
void PictureTransform::change(Picture& picture, Words& words) const {
  const auto apply_all = [&](const std::vector<PictureOp>& ops) {
    for (const PictureOp& op : ops) dtrain::apply(op, picture, scratch().spare);
  };
  if (augmentation_.jitter != ColorJitter{}) apply_all(draws::color_jitter(words, augmentation_.jitter));
  if (augmentation_.rand_augment.ops > 0)
    apply_all(draws::rand_augment(words, augmentation_.rand_augment, picture.size()));
  if (augmentation_.trivial_augment) apply_all({draws::trivial_augment(words)});
}

template <class Words>
void PictureTransform::apply(PictureDecoder& picture, Words& words, const View& image) const {
  PictureView seen;
  if (augmentation_.crop) {
    const Region crop = draws::random_resized_crop(words, picture.size());
    const PictureView part = picture.decode(crop, scratch().decoded);
    seen = resize(part, {size_, size_}, Filter::bilinear, scratch().resized);
  } else {
    seen = middle(picture);
  }
  const bool mirrored = augmentation_.flip && draws::flip(words);
  if (augmentation_.changes_pixels()) {
    Picture& changed = scratch().changed;
    copy(seen, mirrored, changed);
    change(changed, words);
    write_numbers(changed.view(), false, numbers_, image);
  } else {
    write_numbers(seen, mirrored, numbers_, image);
  }
  if (augmentation_.erase > 0)
    erase(draws::random_erasing(words, {size_, size_}, augmentation_.erase), image);
}

void PictureTransform::operator()(PictureDecoder& picture, KeyedGenerator& generator,
                                  const View& image) const {
  apply(picture, generator, image);
}

void PictureTransform::operator()(PictureDecoder& picture, Generator& generator, const View& image) const {
  apply(picture, generator, image);
}

}  // namespace dtrain
