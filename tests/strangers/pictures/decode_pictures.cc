// Pictures as the library decodes and transforms them, for a script that compares them with Pillow's and
// torchvision's. Each line of standard input is a command, its words separated by tabs; the answer is a line
// "WIDTH HEIGHT BYTES" with so many bytes behind it, or "error MESSAGE".
//
//   whole PATH                        RGB
//   part PATH LEFT TOP WIDTH HEIGHT   RGB of a region
//   resize PATH WIDTH HEIGHT FILTER   RGB; bilinear or bicubic
//   change PATH KIND AMOUNT           RGB; a PictureOp
//   folder PATH                       "LABEL\tFILE" of each picture, a line each
//   shards PATTERN LABEL              "LABEL\tBYTES\tCRC32" of each
//   transform PATH SIZE RESIZE AUGMENTATION SEED   float32 [3, SIZE, SIZE], draws as after
//   torch.manual_seed(SEED)
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

#include "runtime/base/error.h"
#include "runtime/data/images/files/picture_files.h"
#include "runtime/data/images/picture_ops.h"
#include "runtime/data/images/resize.h"
#include "runtime/data/images/transform.h"

namespace dtrain {
namespace {

std::vector<std::uint8_t> content_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw UsageError("cannot open " + path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void answer(const PictureView& view) {
  const std::size_t row_bytes = 3 * static_cast<std::size_t>(view.width);
  fmt::print("{} {} {}\n", view.width, view.height, row_bytes * static_cast<std::size_t>(view.height));
  for (int y = 0; y < view.height; ++y) std::fwrite(view.row(y), 1, row_bytes, stdout);
}

void transform(PictureDecoder& picture, std::istream& words) {
  int size = 0, resize = 0;
  std::string augmentation;
  std::uint64_t seed = 0;
  words >> size >> resize >> augmentation >> seed;
  std::vector<float> numbers(3 * static_cast<std::size_t>(size) * static_cast<std::size_t>(size));
  const Dims shape{3, size, size};
  Generator generator(seed);
  PictureTransform(size, resize, augmentation_named(augmentation))(
      picture, generator, {numbers.data(), DType::f32, shape, contiguous_strides(shape)});
  fmt::print("{} {} {}\n", size, size, numbers.size() * sizeof(float));
  std::fwrite(numbers.data(), sizeof(float), numbers.size(), stdout);
}

void change(const PictureView& view, std::istream& words) {
  std::string kind;
  double amount = 0;
  words >> kind >> amount;
  Picture picture, spare;
  picture.resize({view.width, view.height});
  for (int y = 0; y < view.height; ++y) std::copy_n(view.row(y), picture.row_bytes(), picture.row(y));
  apply({picture_op_kind_named(kind), amount}, picture, spare);
  answer(picture.view());
}

void list(const std::string& command, const std::string& path, std::istream& words) {
  std::string label;
  words >> label;
  const auto files = command == "folder" ? open_picture_folder(path)
                                         : open_picture_shards(expand_shards(path), {.label = label});
  std::string lines;
  for (std::int64_t i = 0; i < files->size(); ++i) {
    std::vector<std::uint8_t> memory;
    const EncodedPicture picture = files->read(i, memory);
    const auto crc = ::crc32_z(0, picture.bytes.data(), picture.bytes.size());
    lines += command == "folder"
                 ? fmt::format("{}\t{}\n", files->label(i), picture.path)
                 : fmt::format("{}\t{}\t{:08x}\n", files->label(i), picture.bytes.size(), crc);
  }
  fmt::print("{} 1 {}\n", files->size(), lines.size());
  std::fwrite(lines.data(), 1, lines.size(), stdout);
}

void run(const std::string& command, const std::string& path, std::istream& words) {
  if (command == "folder" || command == "shards") return list(command, path, words);
  const std::vector<std::uint8_t> bytes = content_of(path);
  const auto picture = open_picture({bytes, path});
  Region region{0, 0, picture->size().width, picture->size().height};
  Picture memory;
  if (command == "transform") return transform(*picture, words);
  if (command == "part") words >> region.left >> region.top >> region.width >> region.height;
  const PictureView view = picture->decode(region, memory);
  if (command == "change") return change(view, words);
  if (command != "resize") return answer(view);
  PictureSize size;
  std::string filter;
  words >> size.width >> size.height >> filter;
  ResizeMemory resized;
  answer(resize(view, size, filter == "bicubic" ? Filter::bicubic : Filter::bilinear, resized));
}

int serve() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command, path;
    std::getline(words, command, '\t');
    std::getline(words, path, '\t');
    try {
      run(command, path, words);
    } catch (const Error& error) {
      fmt::print("error {}\n", error.what());
    }
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace dtrain

int main() { return dtrain::serve(); }
