// Images that cost nothing to have: for benchmarks, and for tests of sizes no real set has.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/source.h"

namespace dtrain {

/// What a synthetic set looks like.
struct SyntheticSpec {
  Dims shape;  ///< [C, H, W]
  std::int64_t classes = 0;
  std::int64_t samples = 0;
};

/// "3x224x224,1000,5000": channels x height x width, classes, samples. Throws UsageError.
SyntheticSpec parse_synthetic(std::string_view text);

/// image float32 [C, H, W] and label int64 []: noise with a brightness that tells the class, so that training
/// has something to learn; a pure function of seed and index. Values are n / 255 like a photograph's.
class SyntheticSource final : public Source {
 public:
  SyntheticSource(std::string name, const SyntheticSpec& spec, std::uint64_t seed);

  std::string name() const override { return name_; }
  std::int64_t size() const noexcept override { return spec_.samples; }
  std::span<const Field> fields() const noexcept override { return fields_; }
  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator& generator) const override;
  bool has_bytes(std::size_t field) const noexcept override { return field == 0; }  // the image

 private:
  std::string name_;
  SyntheticSpec spec_;
  std::vector<Field> fields_;
  std::uint64_t seed_;
};

}  // namespace dtrain
