// Labelled clips as samples: frames read, decoded and transformed alike by the thread that asks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/data/bad_samples.h"
#include "runtime/data/images/clips/clip_files.h"
#include "runtime/data/images/files/picture_source.h"
#include "runtime/data/images/transform.h"
#include "runtime/data/source.h"

namespace dtrain {

/// The means and deviations of the data set Kinetics-400.
inline constexpr PixelNumbers kKineticsNumbers = {{0.43216F, 0.394666F, 0.37645F},
                                                  {0.22803F, 0.22145F, 0.216989F}};

/// How clips become samples.
struct ClipOptions {
  int frames = 16;  ///< T
  int stride = 1;   ///< from one frame that is taken to the next
  PictureOptions picture = {.size = 112, .resize = 128, .numbers = kKineticsNumbers};  ///< each frame
};

/// Samples are `clip` float32 [T, 3, size, size], normalised (PictureTransform), and `label` int64 []. What
/// is drawn for a clip is done to each of its frames. Which frames are taken is drawn first, where there is
/// any augmentation; without it they are the middle ones.
class ClipSource final : public Source {
 public:
  /// `bad` may be shared by several sources of the same files. Throws UsageError for less than a frame or a
  /// stride of 1, DataError for a folder of fewer frames than a sample takes; an array of fewer is found when
  /// it is read.
  ClipSource(std::string name, std::shared_ptr<const ClipFiles> files, const ClipOptions& options,
             std::shared_ptr<BadSamples> bad);

  std::string name() const override { return name_; }
  std::int64_t size() const noexcept override { return files_->size(); }
  std::span<const Field> fields() const noexcept override { return fields_; }
  /// Throws DataError also for frames of different sizes.
  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator& generator) const override;
  std::string file_of(std::int64_t index) const override { return files_->place(index); }
  std::optional<PixelNumbers> pixel_numbers(std::size_t /*field*/) const noexcept override {
    return options_.picture.numbers;
  }

 private:
  void read_clip(std::int64_t index, const View& clip, KeyedGenerator& generator) const;
  /// Throws DataError unless clip `index`, which has `frames`, has enough of them.
  void check_frames(std::int64_t index, std::int64_t frames) const;

  std::string name_;
  std::shared_ptr<const ClipFiles> files_;
  std::shared_ptr<BadSamples> bad_;
  ClipOptions options_;
  PictureTransform transform_;
  std::int64_t spanned_;  ///< frames from the first that is taken to the last
  std::vector<Field> fields_;
};

}  // namespace dtrain
