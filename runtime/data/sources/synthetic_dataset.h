// Images that cost nothing to have: for benchmarks, and for tests of sizes no real set has.
#pragma once

#include <string>
#include <string_view>

#include "runtime/data/dataset.h"

namespace dtrain {

/// What a synthetic set looks like.
struct SyntheticSpec {
  SampleShape shape;
  std::int64_t classes = 0;
  std::int64_t samples = 0;
};

/// "3x224x224,1000,5000": channels x height x width, classes, samples. Throws UsageError naming --dataset.
SyntheticSpec parse_synthetic(std::string_view text);

/// Noise with a brightness that tells the class, so that training has something to learn; a pure function of
/// seed and index. Values are n / 255 like a photograph's.
class SyntheticDataset final : public Dataset {
 public:
  SyntheticDataset(std::string name, const SyntheticSpec& spec, std::uint64_t seed)
      : name_(std::move(name)), spec_(spec), seed_(seed) {}

  std::string name() const override { return name_; }
  std::int64_t size() const noexcept override { return spec_.samples; }
  SampleShape sample_shape() const noexcept override { return spec_.shape; }
  std::int64_t classes() const noexcept override { return spec_.classes; }
  void decode(std::int64_t index, PixelLayout layout, float* out) const override;
  std::int64_t label(std::int64_t index) const override;

 private:
  std::string name_;
  SyntheticSpec spec_;
  std::uint64_t seed_;
};

}  // namespace dtrain
