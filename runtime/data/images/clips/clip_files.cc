// Clips as runs of a list of pictures: the list of a folder is kept from start to start, as that of pictures
// is.
#include "runtime/data/images/clips/clip_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <span>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/data/formats/npy.h"

namespace dtrain {
namespace {

constexpr int kArrayRank = 4;
constexpr std::int64_t kChannels = 3;

bool is_array(std::string_view path) { return path.ends_with(".npy"); }

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// The digits that `text` begins with, without zeros in front, are taken from it.
std::string_view take_number(std::string_view& text) {
  std::size_t end = 0;
  while (end < text.size() && is_digit(text[end])) ++end;
  std::string_view number = text.substr(0, end);
  text.remove_prefix(end);
  while (number.size() > 1 && number.front() == '0') number.remove_prefix(1);
  return number;
}

/// Whether `a` comes before `b`: by characters, but for numbers, which are compared as such.
bool comes_before(std::string_view a, std::string_view b) {
  const std::string_view whole_a = a, whole_b = b;
  while (!a.empty() && !b.empty()) {
    if (is_digit(a.front()) && is_digit(b.front())) {
      const std::string_view x = take_number(a), y = take_number(b);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
      continue;
    }
    if (a.front() != b.front())
      return static_cast<unsigned char>(a.front()) < static_cast<unsigned char>(b.front());
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  if (a.empty() != b.empty()) return a.empty();
  return whole_a < whole_b;  // "01" and "1"
}

class FolderClip final : public Clip {
 public:
  FolderClip(std::shared_ptr<const PictureFiles> files, std::span<const std::int64_t> frames)
      : files_(std::move(files)), frames_(frames) {}

  std::int64_t frames() const noexcept override { return static_cast<std::int64_t>(frames_.size()); }
  std::unique_ptr<PictureDecoder> frame(std::int64_t number) override {
    return open_picture(files_->read(at(number), memory_));
  }
  std::string place(std::int64_t number) const override { return files_->place(at(number)); }

 private:
  std::int64_t at(std::int64_t number) const { return frames_[static_cast<std::size_t>(number)]; }

  std::shared_ptr<const PictureFiles> files_;
  std::span<const std::int64_t> frames_;
  std::vector<std::uint8_t> memory_;
};

/// One frame of an array: three planes of bytes.
class PlanesDecoder final : public PictureDecoder {
 public:
  PlanesDecoder(const NpyArray& array, std::int64_t number, PictureSize size)
      : PictureDecoder(size), array_(array), number_(number) {}

 private:
  PictureView decode_region(const Region& region, Picture& memory) override {
    const View planes = array_.row(number_);
    memory.resize({region.width, region.height});
    for (std::int64_t c = 0; c < kChannels; ++c) {
      for (int y = 0; y < region.height; ++y) {
        const std::uint8_t* from =
            planes.as<std::uint8_t>() + (c * size().height + region.top + y) * size().width + region.left;
        std::uint8_t* to = memory.row(y) + c;
        for (int x = 0; x < region.width; ++x, to += kChannels) *to = from[x];
      }
    }
    return memory.view();
  }

  const NpyArray& array_;
  std::int64_t number_;
};

class ArrayClip final : public Clip {
 public:
  explicit ArrayClip(std::string path) : path_(std::move(path)), array_(read_npy(path_)) {
    const NpyHeader& header = array_.header;
    const Dims& shape = header.shape;
    if (header.type == NpyType::u1 && shape.rank() == kArrayRank && shape[1] == kChannels && shape[0] > 0 &&
        shape[2] > 0 && shape[3] > 0 && shape[2] <= kMostSide && shape[3] <= kMostSide)
      return;
    throw DataError(path_, 0, fmt::format("pixels of a clip, uint8 [T, 3, H, W], sides up to {}", kMostSide),
                    fmt::format("{} {}; save it as numpy.uint8, frames in front",
                                header.type == NpyType::u1 ? "uint8" : "other numbers", shape.to_string()));
  }

  std::int64_t frames() const noexcept override { return array_.header.shape[0]; }
  std::unique_ptr<PictureDecoder> frame(std::int64_t number) override {
    const Dims& shape = array_.header.shape;
    return std::make_unique<PlanesDecoder>(
        array_, number, PictureSize{static_cast<int>(shape[3]), static_cast<int>(shape[2])});
  }
  std::string place(std::int64_t number) const override { return fmt::format("{}[{}]", path_, number); }

 private:
  static constexpr std::int64_t kMostSide = 1 << 14;

  std::string path_;
  NpyArray array_;
};

}  // namespace

ClipFiles::ClipFiles(std::shared_ptr<const PictureFiles> files) : files_(std::move(files)), begins_{0} {
  struct Frame {
    std::string name;
    std::int64_t index;
  };
  std::vector<Frame> clip;
  std::string folder;
  const auto finish = [&] {
    if (clip.empty()) return;
    std::ranges::sort(clip, [](const Frame& a, const Frame& b) { return comes_before(a.name, b.name); });
    for (const Frame& frame : clip) frames_.push_back(frame.index);
    begins_.push_back(static_cast<std::int64_t>(frames_.size()));
    clip.clear();
  };
  std::vector<std::int64_t> arrays;  // behind the frames that they may lie among
  const auto finish_folder = [&] {
    finish();
    for (const std::int64_t index : arrays) {
      clip.push_back({"", index});
      finish();
    }
    arrays.clear();
  };
  for (std::int64_t i = 0; i < files_->size(); ++i) {
    const std::string path = files_->place(i);
    std::string own = folder_of(path);
    if (i > 0 && (own != folder || files_->label(i) != files_->label(i - 1))) finish_folder();
    folder = std::move(own);
    if (is_array(path)) {
      arrays.push_back(i);
    } else {
      clip.push_back({path.substr(folder.empty() ? 0 : folder.size() + 1), i});
    }
  }
  finish_folder();
}

std::int64_t ClipFiles::label(std::int64_t index) const noexcept { return files_->label(first_frame(index)); }

std::string ClipFiles::place(std::int64_t index) const {
  std::string path = files_->place(first_frame(index));
  return is_array(path) ? path : folder_of(path);
}

std::int64_t ClipFiles::frames(std::int64_t index) const {
  const auto at = static_cast<std::size_t>(index);
  return is_array(files_->place(first_frame(index))) ? 0 : begins_[at + 1] - begins_[at];
}

std::unique_ptr<Clip> ClipFiles::open(std::int64_t index) const {
  std::string path = files_->place(first_frame(index));
  if (is_array(path)) return std::make_unique<ArrayClip>(std::move(path));
  const auto at = static_cast<std::size_t>(index);
  return std::make_unique<FolderClip>(
      files_, std::span(frames_).subspan(static_cast<std::size_t>(begins_[at]),
                                         static_cast<std::size_t>(begins_[at + 1] - begins_[at])));
}

std::shared_ptr<const ClipFiles> open_clip_folder(const std::string& directory, const IndexPlace& index) {
  return std::make_shared<const ClipFiles>(open_picture_folder(directory, index, Listed::frames));
}

std::shared_ptr<const ClipFiles> open_clip_list(const std::string& path) {
  return std::make_shared<const ClipFiles>(open_picture_list(path, Listed::frames));
}

}  // namespace dtrain
