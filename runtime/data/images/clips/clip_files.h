// Where labelled clips are stored: folders of frames, and arrays of pixels.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/data/images/files/picture_files.h"

namespace dtrain {

/// The frames of one clip; used by one thread.
class Clip {
 public:
  virtual ~Clip() = default;

  /// At least 1.
  virtual std::int64_t frames() const noexcept = 0;
  /// Frame `number` below frames(), unchecked, to be decoded before the next call. Throws as open_picture().
  virtual std::unique_ptr<PictureDecoder> frame(std::int64_t number) = 0;
  /// Where that frame is, for people.
  virtual std::string place(std::int64_t number) const = 0;
};

/// Clips by index, each with the number of its class. Immutable, shared by any number of threads.
class ClipFiles {
 public:
  /// Of the pictures and arrays in `files`: the pictures of one folder are a clip, in the order of their
  /// names, numbers in which count as numbers ("9.jpg" before "10.jpg"); a file whose name ends in .npy,
  /// pixels uint8 [T, 3, H, W], is one, too.
  explicit ClipFiles(std::shared_ptr<const PictureFiles> files);

  std::int64_t size() const noexcept { return static_cast<std::int64_t>(begins_.size()) - 1; }
  const std::vector<std::string>& classes() const noexcept { return files_->classes(); }
  std::int64_t label(std::int64_t index) const noexcept;
  /// The clip's folder or file.
  std::string place(std::int64_t index) const;
  /// How many frames clip `index` has, as far as its name tells: 0 of an array.
  std::int64_t frames(std::int64_t index) const;
  /// Throws DataError for an array of another shape or type.
  std::unique_ptr<Clip> open(std::int64_t index) const;

 private:
  std::int64_t first_frame(std::int64_t index) const noexcept {
    return frames_[static_cast<std::size_t>(begins_[static_cast<std::size_t>(index)])];
  }

  std::shared_ptr<const PictureFiles> files_;
  std::vector<std::int64_t> frames_;  ///< indices in files_, clip by clip
  std::vector<std::int64_t> begins_;  ///< of each clip in frames_, and the end
};

/// The clips of `directory`: its folders are the classes, as open_picture_folder() has them; each folder of
/// frames below one, and each .npy file, is a clip. Throws as that does.
std::shared_ptr<const ClipFiles> open_clip_folder(const std::string& directory, const IndexPlace& index = {});

/// Clips of no class: the array or the folder of frames `path`, or all below it.
std::shared_ptr<const ClipFiles> open_clip_list(const std::string& path);

}  // namespace dtrain
