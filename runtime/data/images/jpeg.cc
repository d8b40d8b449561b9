// JPEG by libjpeg-turbo, with Pillow's bytes: exact integer DCT and smooth upsampling of colours, which are
// the library's defaults. Its errors come back by longjmp: what runs inside attempt() has no destructors.

#include <csetjmp>
#include <cstdio>
// After <cstdio>, which it wants and does not include.
#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/data/images/formats.h"

namespace dtrain {
namespace {

/// The library's state. `source` has all bytes from the start: to ask for more is the error of a file cut
/// short.
struct Jpeg {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_source_mgr source{};
  std::jmp_buf escape{};
  char message[JMSG_LENGTH_MAX]{};

  Jpeg() {
    info.err = jpeg_std_error(&errors);
    info.client_data = this;
    errors.error_exit = [](j_common_ptr common) {
      auto* const jpeg = static_cast<Jpeg*>(common->client_data);
      jpeg->errors.format_message(common, jpeg->message);
      std::longjmp(jpeg->escape, 1);
    };
    errors.emit_message = [](j_common_ptr, int) {};  // warnings, as Pillow has it
    source.init_source = [](j_decompress_ptr) {};
    source.term_source = [](j_decompress_ptr) {};
    source.resync_to_restart = jpeg_resync_to_restart;
    source.fill_input_buffer = [](j_decompress_ptr from) -> boolean {
      ERREXIT(from, JERR_INPUT_EOF);
      return TRUE;
    };
    source.skip_input_data = [](j_decompress_ptr from, long count) {
      if (count <= 0) return;
      if (static_cast<unsigned long>(count) > from->src->bytes_in_buffer) ERREXIT(from, JERR_INPUT_EOF);
      from->src->next_input_byte += count;
      from->src->bytes_in_buffer -= static_cast<std::size_t>(count);
    };
  }
  ~Jpeg() { jpeg_destroy_decompress(&info); }
  Jpeg(const Jpeg&) = delete;
  Jpeg& operator=(const Jpeg&) = delete;

  /// False where the library gave up; `message` says why.
  template <class Step>
  bool attempt(Step step) {
    if (setjmp(escape) != 0) return false;
    step();
    return true;
  }
};

/// Four bytes a pixel, inverted CMYK, as RGB with Pillow's rounding.
void cmyk_to_rgb(const std::uint8_t* from, int width, std::uint8_t* to) {
  for (int x = 0; x < width; ++x, from += 4, to += 3) {
    const int without_black = from[3];
    for (int c = 0; c < 3; ++c) {
      const int product = (255 - from[c]) * without_black + 128;
      const int value = without_black - (((product >> 8) + product) >> 8);
      to[c] = static_cast<std::uint8_t>(std::clamp(value, 0, 255));
    }
  }
}

/// Of a part: one that is narrower is upsampled in another way.
constexpr int kLeastPartWidth = 32;

class JpegDecoder final : public PictureDecoder {
 public:
  JpegDecoder(const EncodedPicture& picture, std::unique_ptr<Jpeg> jpeg)
      : PictureDecoder({static_cast<int>(jpeg->info.image_width), static_cast<int>(jpeg->info.image_height)}),
        picture_(picture),
        jpeg_(std::move(jpeg)) {}

 private:
  PictureView decode_region(const Region& region, Picture& memory) override;

  EncodedPicture picture_;
  std::unique_ptr<Jpeg> jpeg_;
};

[[noreturn]] void refuse(const EncodedPicture& picture, const Jpeg& jpeg) {
  const auto read = static_cast<std::int64_t>(picture.bytes.size() - jpeg.source.bytes_in_buffer);
  const bool cut = jpeg.errors.msg_code == JERR_INPUT_EOF;
  throw DataError(picture.path, picture.offset + read, "a whole JPEG picture",
                  cut ? "a file cut short" : jpeg.message);
}

/// Decoding a part does not come to the end, and must not take what is cut short for whole.
void check_end(const EncodedPicture& picture, const Jpeg& jpeg) {
  const std::uint8_t* const begin = jpeg.source.next_input_byte;
  const std::uint8_t* at = begin + jpeg.source.bytes_in_buffer;
  while (at - begin >= 2) {
    if (at[-2] == 0xff && at[-1] == JPEG_EOI) return;
    --at;
  }
  throw DataError(picture.path, picture.offset + static_cast<std::int64_t>(picture.bytes.size()),
                  "a whole JPEG picture", "a file cut short (without the marker of its end)");
}

/// Whether the library smooths what is between blocks, as it does for progressive pictures of which scans are
/// missing: it then looks at the blocks around each, which it takes for missing at the edges of a part.
bool smooths_blocks(const jpeg_decompress_struct& info) {
  constexpr int kFirst = 1, kEnd = 10;  // coefficients that are estimated, in zigzag order
  if (info.coef_bits == nullptr) return false;
  for (int c = 0; c < info.num_components; ++c) {
    const int* const bits = info.coef_bits[c];  // 0: the coefficient is known exactly
    if (std::any_of(bits + kFirst, bits + kEnd, [](int each) { return each != 0; })) return true;
  }
  return false;
}

// The smooth upsampling of colours, which columns of one or two samples do without, looks one pixel to each
// side, so that the part that is decoded is that much larger than the one that is wanted, where it is not the
// rows below, which the library reads itself.
PictureView JpegDecoder::decode_region(const Region& region, Picture& memory) {
  jpeg_decompress_struct& info = jpeg_->info;
  const bool is_cmyk = info.num_components == 4;
  info.out_color_space = is_cmyk ? JCS_CMYK : JCS_RGB;
  const int right = std::min(std::max(region.left + region.width + 1, kLeastPartWidth), size().width);
  const int left = std::max(std::min(region.left - 1, right - kLeastPartWidth), 0);
  auto begin = static_cast<JDIMENSION>(left), width = static_cast<JDIMENSION>(right - left);
  const bool started = jpeg_->attempt([&] {
    jpeg_start_decompress(&info);
    if (smooths_blocks(info)) {
      begin = 0;
      width = info.output_width;
    }
    if (width < info.output_width) jpeg_crop_scanline(&info, &begin, &width);
  });
  if (!started) refuse(picture_, *jpeg_);
  const int top = std::max(region.top - 1, 0), rows = region.top - top + region.height;
  memory.resize({static_cast<int>(width), rows});
  std::vector<std::uint8_t> cmyk(is_cmyk ? 4 * static_cast<std::size_t>(width) : 0);
  std::uint8_t* const between = is_cmyk ? cmyk.data() : nullptr;
  const bool decoded = jpeg_->attempt([&] {
    if (top > 0) jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(top));
    for (int y = 0; y < rows;) {
      JSAMPROW row = is_cmyk ? between : memory.row(y);
      const JDIMENSION count = jpeg_read_scanlines(&info, &row, 1);
      if (count == 1 && is_cmyk) cmyk_to_rgb(between, static_cast<int>(width), memory.row(y));
      y += static_cast<int>(count);
    }
  });
  if (!decoded) refuse(picture_, *jpeg_);
  return memory.view().part(
      {region.left - static_cast<int>(begin), region.top - top, region.width, region.height});
}

}  // namespace

std::unique_ptr<PictureDecoder> open_jpeg(const EncodedPicture& picture) {
  auto jpeg = std::make_unique<Jpeg>();
  const bool read = jpeg->attempt([&] {
    jpeg_create_decompress(&jpeg->info);
    jpeg->info.src = &jpeg->source;
    jpeg->source.next_input_byte = picture.bytes.data();
    jpeg->source.bytes_in_buffer = picture.bytes.size();
    jpeg_read_header(&jpeg->info, TRUE);
  });
  if (!read) refuse(picture, *jpeg);
  check_size(picture, jpeg->info.image_width, jpeg->info.image_height);
  const int components = jpeg->info.num_components;
  if (components != 1 && components != 3 && components != 4)
    throw DataError(picture.path, picture.offset, "a JPEG of 1, 3 or 4 components",
                    std::to_string(components));
  check_end(picture, *jpeg);
  return std::make_unique<JpegDecoder>(picture, std::move(jpeg));
}

}  // namespace dtrain
