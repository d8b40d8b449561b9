// The dataset seam: labelled images by index. Loaders, samplers and models see only this.
#pragma once

#include <cstdint>
#include <string>

namespace dtrain {

/// Extents of one sample.
struct SampleShape {
  std::int64_t channels = 0, height = 0, width = 0;
  std::int64_t numel() const noexcept { return channels * height * width; }
  bool operator==(const SampleShape&) const = default;
};

/// Order of a sample's values in memory: channel by channel (C, H, W), or pixel by pixel (H, W, C:
/// channels-last).
enum class PixelLayout { chw, hwc };

/// Labelled samples with random access. Implementations are immutable: every function may be called from any
/// number of threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;

  /// "fashion-mnist train (/usr/share/datasets/fashion-mnist)"
  virtual std::string name() const = 0;
  virtual std::int64_t size() const noexcept = 0;
  virtual SampleShape sample_shape() const noexcept = 0;
  /// Labels lie in [0, classes()).
  virtual std::int64_t classes() const noexcept = 0;

  /// Writes sample `index` into `out` (sample_shape().numel() floats, the caller's, any alignment) as value /
  /// 255 in float32, correctly rounded: bit for bit what PyTorch's `x.float().div_(255)` gives. `index` is in
  /// [0, size()), unchecked. A sample that has to be read from disk may throw DataError or SystemError.
  virtual void decode(std::int64_t index, PixelLayout layout, float* out) const = 0;
  /// The class of sample `index` in [0, size()), unchecked.
  virtual std::int64_t label(std::int64_t index) const = 0;
};

}  // namespace dtrain
