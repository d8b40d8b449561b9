// JPEG files by libjpeg-turbo. Its errors come back by longjmp: what runs inside attempt() has no
// destructors.
#include <csetjmp>
#include <cstdio>
// After <cstdio>, which it wants and does not include.
#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/data/images/encode.h"

namespace dtrain {
namespace {

/// The library's errors come back as `message`.
struct JpegErrors : jpeg_error_mgr {
  std::jmp_buf escape{};
  char message[JMSG_LENGTH_MAX]{};

  JpegErrors() : jpeg_error_mgr{} {
    jpeg_std_error(this);
    error_exit = [](j_common_ptr common) {
      auto* const errors = static_cast<JpegErrors*>(common->err);
      errors->format_message(common, errors->message);
      std::longjmp(errors->escape, 1);
    };
    emit_message = [](j_common_ptr common, int level) {
      if (level < 0) ++common->err->num_warnings;
    };
  }

  /// False where the library gave up.
  template <class Step>
  bool attempt(Step step) {
    if (setjmp(escape) != 0) return false;
    step();
    return true;
  }
};

/// What is written. The library's own destination in memory tells where its bytes are only at the end: after
/// an error in between, its caller would free what has been freed.
struct JpegBytes : jpeg_destination_mgr {
  std::vector<std::uint8_t> bytes;

  JpegBytes() : jpeg_destination_mgr{} {
    init_destination = [](j_compress_ptr info) { grow(info); };
    empty_output_buffer = [](j_compress_ptr info) -> boolean {
      grow(info);
      return TRUE;
    };
    term_destination = [](j_compress_ptr info) {
      auto& written = static_cast<JpegBytes*>(info->dest)->bytes;
      written.resize(written.size() - info->dest->free_in_buffer);
    };
  }

  static void grow(j_compress_ptr info) {
    auto* const to = static_cast<JpegBytes*>(info->dest);
    const std::size_t full = to->bytes.size();
    try {
      to->bytes.resize(std::max<std::size_t>(2 * full, 1 << 14));
    } catch (const std::bad_alloc&) {  // which must not go through the library
      ERREXIT1(info, JERR_OUT_OF_MEMORY, 0);
    }
    to->next_output_byte = to->bytes.data() + full;
    to->free_in_buffer = to->bytes.size() - full;
  }
};

struct JpegWriter {
  jpeg_compress_struct info{};

  explicit JpegWriter(JpegErrors& errors) { info.err = &errors; }
  ~JpegWriter() { jpeg_destroy_compress(&info); }
  JpegWriter(const JpegWriter&) = delete;
  JpegWriter& operator=(const JpegWriter&) = delete;
};

struct JpegReader {
  jpeg_decompress_struct info{};

  explicit JpegReader(JpegErrors& errors) { info.err = &errors; }
  ~JpegReader() { jpeg_destroy_decompress(&info); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;
};

bool begins_with(const jpeg_marker_struct& marker, std::string_view name) {
  return marker.data_length >= name.size() && std::memcmp(marker.data, name.data(), name.size()) == 0;
}

/// Comments, EXIF, colour profiles: all but what the library writes itself.
void copy_markers(const jpeg_decompress_struct& from, jpeg_compress_struct& to) {
  for (const jpeg_marker_struct* at = from.marker_list; at != nullptr; at = at->next) {
    if (to.write_JFIF_header == TRUE && at->marker == JPEG_APP0 && begins_with(*at, "JFIF")) continue;
    if (to.write_Adobe_marker == TRUE && at->marker == JPEG_APP0 + 14 && begins_with(*at, "Adobe")) continue;
    jpeg_write_marker(&to, at->marker, at->data, at->data_length);
  }
}

void keep_markers(jpeg_decompress_struct& info) {
  constexpr unsigned kWhole = 0xffff;
  jpeg_save_markers(&info, JPEG_COM, kWhole);
  for (int i = 0; i < 16; ++i) jpeg_save_markers(&info, JPEG_APP0 + i, kWhole);
}

}  // namespace

std::optional<std::vector<std::uint8_t>> encode_jpeg(const PictureView& picture, int quality) {
  JpegErrors errors;
  JpegBytes destination;
  JpegWriter writer(errors);
  jpeg_compress_struct& info = writer.info;
  const bool written = errors.attempt([&] {
    jpeg_create_compress(&info);
    info.dest = &destination;
    info.image_width = static_cast<JDIMENSION>(picture.width);
    info.image_height = static_cast<JDIMENSION>(picture.height);
    info.input_components = 3;
    info.in_color_space = JCS_RGB;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, quality, TRUE);
    info.optimize_coding = TRUE;
    jpeg_start_compress(&info, TRUE);
    for (int y = 0; y < picture.height; ++y) {
      auto* row = const_cast<JSAMPROW>(picture.row(y));  // which the library only reads
      jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
  });
  if (!written) throw Error(std::string("JPEG: ") + errors.message);
  return std::move(destination.bytes);
}

// Where the library warns, what it read is not what the file says, and nothing can be promised.
std::optional<std::vector<std::uint8_t>> rewrite_jpeg(const EncodedPicture& picture) {
  JpegErrors errors;
  JpegBytes destination;
  JpegReader reader(errors);
  JpegWriter writer(errors);
  long warnings = 0;
  const bool written = errors.attempt([&] {
    jpeg_create_decompress(&reader.info);
    jpeg_create_compress(&writer.info);
    jpeg_mem_src(&reader.info, picture.bytes.data(), picture.bytes.size());
    keep_markers(reader.info);
    jpeg_read_header(&reader.info, TRUE);
    jvirt_barray_ptr* const coefficients = jpeg_read_coefficients(&reader.info);
    jpeg_copy_critical_parameters(&reader.info, &writer.info);
    writer.info.optimize_coding = TRUE;
    writer.info.restart_in_rows = 1;
    warnings = errors.num_warnings;  // which writing begins to count anew
    writer.info.dest = &destination;
    jpeg_write_coefficients(&writer.info, coefficients);
    copy_markers(reader.info, writer.info);
    jpeg_finish_compress(&writer.info);
    jpeg_finish_decompress(&reader.info);
  });
  if (!written || warnings + errors.num_warnings > 0) return std::nullopt;
  return std::move(destination.bytes);
}

}  // namespace dtrain
