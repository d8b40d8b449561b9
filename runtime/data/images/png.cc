// PNG by libpng, with Pillow's conversions to RGB. Its errors come back by longjmp: what runs inside
// attempt() has no destructors.
#include <fmt/format.h>
#include <png.h>

#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/images/formats.h"

namespace dtrain {
namespace {

struct Png {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::span<const std::uint8_t> bytes;
  std::size_t position = 0;
  char message[128]{};

  explicit Png(std::span<const std::uint8_t> content) : bytes(content) {
    png = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, [](png_structp, png_const_charp) {});
    if (png != nullptr) info = png_create_info_struct(png);
    if (info == nullptr) {
      png_destroy_read_struct(&png, nullptr, nullptr);
      throw std::bad_alloc();
    }
    png_set_read_fn(png, this, read);
  }
  ~Png() { png_destroy_read_struct(&png, &info, nullptr); }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;

  static void on_error(png_structp png, png_const_charp text) {
    auto* const self = static_cast<Png*>(png_get_error_ptr(png));
    std::snprintf(self->message, sizeof self->message, "%s", text);
    png_longjmp(png, 1);
  }
  static void read(png_structp png, png_bytep to, std::size_t count) {
    auto* const self = static_cast<Png*>(png_get_io_ptr(png));
    if (count > self->bytes.size() - self->position) png_error(png, "a file cut short");
    std::memcpy(to, self->bytes.data() + self->position, count);
    self->position += count;
  }

  /// False where the library gave up; `message` says why.
  template <class Step>
  bool attempt(Step step) {
    if (setjmp(png_jmpbuf(png)) != 0) return false;
    step();
    return true;
  }
};

[[noreturn]] void refuse(const EncodedPicture& picture, const Png& png) {
  throw DataError(picture.path, picture.offset + static_cast<std::int64_t>(png.position),
                  "a whole PNG picture", png.message);
}

class PngDecoder final : public PictureDecoder {
 public:
  PngDecoder(const EncodedPicture& picture, std::unique_ptr<Png> png, PictureSize size)
      : PictureDecoder(size), picture_(picture), png_(std::move(png)) {}

 private:
  /// What a row holds before it is RGB.
  enum class Row { rgb, indices, gray16 };

  PictureView decode_region(const Region& region, Picture& memory) override;
  Row set_up_rows(png_byte colour, png_byte depth);
  void expand_indices(const std::uint8_t* from, std::size_t count, std::uint8_t* to);

  EncodedPicture picture_;
  std::unique_ptr<Png> png_;
};

/// Runs inside attempt().
PngDecoder::Row PngDecoder::set_up_rows(png_byte colour, png_byte depth) {
  png_structp png = png_->png;
  png_set_interlace_handling(png);
  if (colour == PNG_COLOR_TYPE_PALETTE) {
    png_set_packing(png);
    return Row::indices;
  }
  if (colour == PNG_COLOR_TYPE_GRAY && depth == 16) return Row::gray16;
  if (depth == 16) png_set_strip_16(png);
  if (depth < 8) png_set_expand_gray_1_2_4_to_8(png);
  if ((colour & PNG_COLOR_MASK_ALPHA) != 0) png_set_strip_alpha(png);
  if ((colour & PNG_COLOR_MASK_COLOR) == 0) png_set_gray_to_rgb(png);
  return Row::rgb;
}

/// An index behind the palette is as gray as its number, as in Pillow's palettes before they are filled.
void PngDecoder::expand_indices(const std::uint8_t* from, std::size_t count, std::uint8_t* to) {
  png_colorp palette = nullptr;
  int entries = 0;
  png_get_PLTE(png_->png, png_->info, &palette, &entries);
  std::uint8_t colours[256][3];
  for (int i = 0; i < 256; ++i) {
    const auto gray = static_cast<std::uint8_t>(i);
    const png_color colour = i < entries ? palette[i] : png_color{gray, gray, gray};
    colours[i][0] = colour.red;
    colours[i][1] = colour.green;
    colours[i][2] = colour.blue;
  }
  for (std::size_t i = 0; i < count; ++i) std::memcpy(to + 3 * i, colours[from[i]], 3);
}

PictureView PngDecoder::decode_region(const Region& region, Picture& memory) {
  const auto width = static_cast<std::size_t>(size().width), height = static_cast<std::size_t>(size().height);
  const png_byte colour = png_get_color_type(png_->png, png_->info);
  Row kind = Row::rgb;
  if (!png_->attempt([&] {
        kind = set_up_rows(colour, png_get_bit_depth(png_->png, png_->info));
        png_read_update_info(png_->png, png_->info);
      }))
    refuse(picture_, *png_);
  memory.resize(size());
  const std::size_t row_bytes = kind == Row::rgb ? memory.row_bytes() : width * (kind == Row::gray16 ? 2 : 1);
  std::vector<std::uint8_t> raw(kind == Row::rgb ? 0 : row_bytes * height);
  std::uint8_t* const pixels = kind == Row::rgb ? memory.row(0) : raw.data();
  std::vector<png_bytep> rows(height);
  for (std::size_t y = 0; y < height; ++y) rows[y] = pixels + y * row_bytes;
  png_bytepp const all_rows = rows.data();
  if (!png_->attempt([&] { png_read_image(png_->png, all_rows); })) refuse(picture_, *png_);
  std::uint8_t* const out = memory.row(0);
  if (kind == Row::indices) expand_indices(raw.data(), width * height, out);
  for (std::size_t i = 0; kind == Row::gray16 && i < width * height; ++i)
    std::memset(out + 3 * i, raw[2 * i] != 0 ? 255 : raw[2 * i + 1], 3);
  return memory.view().part(region);
}

/// Reads the header.
std::unique_ptr<Png> open_header(const EncodedPicture& picture, PictureSize& size) {
  auto png = std::make_unique<Png>(picture.bytes);
  if (!png->attempt([&] { png_read_info(png->png, png->info); })) refuse(picture, *png);
  const auto width = png_get_image_width(png->png, png->info),
             height = png_get_image_height(png->png, png->info);
  check_size(picture, width, height);
  size = {static_cast<int>(width), static_cast<int>(height)};
  return png;
}

/// "RGB of 8 bits"
std::string kind_of(png_byte colour, png_byte depth) {
  const char* const name = colour == PNG_COLOR_TYPE_GRAY         ? "gray"
                           : colour == PNG_COLOR_TYPE_GRAY_ALPHA ? "gray with alpha"
                           : colour == PNG_COLOR_TYPE_RGB_ALPHA  ? "RGB with alpha"
                                                                 : "RGB";
  return fmt::format("{} of {} bits", name, depth);
}

}  // namespace

std::unique_ptr<PictureDecoder> open_png(const EncodedPicture& picture) {
  PictureSize size;
  auto png = open_header(picture, size);
  return std::make_unique<PngDecoder>(picture, std::move(png), size);
}

ClassMap read_png_numbers(const EncodedPicture& picture) {
  ClassMap map;
  const auto png = open_header(picture, map.size);
  const png_byte colour = png_get_color_type(png->png, png->info),
                 depth = png_get_bit_depth(png->png, png->info);
  const bool is_gray = colour == PNG_COLOR_TYPE_GRAY && depth != 2 && depth != 4;
  if (colour != PNG_COLOR_TYPE_PALETTE && !is_gray) {
    throw DataError(picture.path, picture.offset,
                    "a PNG of class numbers: a palette, or gray of 1, 8 or 16 bits", kind_of(colour, depth));
  }
  if (!png->attempt([&] {
        png_set_interlace_handling(png->png);
        png_set_packing(png->png);
        png_read_update_info(png->png, png->info);
      }))
    refuse(picture, *png);
  const auto width = static_cast<std::size_t>(map.size.width),
             height = static_cast<std::size_t>(map.size.height);
  const std::size_t each = depth == 16 ? 2 : 1;
  std::vector<std::uint8_t> raw(width * height * each);
  std::vector<png_bytep> rows(height);
  for (std::size_t y = 0; y < height; ++y) rows[y] = raw.data() + y * width * each;
  png_bytepp const all_rows = rows.data();
  if (!png->attempt([&] { png_read_image(png->png, all_rows); })) refuse(picture, *png);
  map.values.resize(width * height);
  for (std::size_t i = 0; i < map.values.size(); ++i)
    map.values[i] = each == 2 ? static_cast<std::uint16_t>(raw[2 * i] << 8 | raw[2 * i + 1]) : raw[i];
  return map;
}

}  // namespace dtrain
