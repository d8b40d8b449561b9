// One sample of a source, read into memory of its own.
#pragma once

#include <string_view>
#include <vector>

#include "runtime/data/batch_layout.h"

namespace dtrain::test {

class Sample {
 public:
  Sample(const Source& source, std::int64_t index, const std::vector<std::string>& channels_last = {},
         std::uint64_t seed = 0, std::uint64_t epoch = 0)
      : layout_(source, 1, channels_last), memory_(layout_.bytes()) {
    KeyedGenerator generator(seed, epoch, static_cast<std::uint64_t>(index));
    read_sample(source, index, layout_.first_sample(memory_.data()), generator);
    layout_.check_values(source, memory_.data(), {&index, 1});
    batch_ = layout_.batch({std::shared_ptr<void>(), memory_.data()}, 1);
  }

  const View& operator[](std::string_view field) const { return batch_[field]; }
  /// The field's elements as they lie in memory.
  template <class T>
  std::vector<T> values(std::string_view field) const {
    const View& view = batch_[field];
    return {view.as<T>(), view.as<T>() + view.numel()};
  }
  std::int64_t label() const { return *batch_["label"].as<std::int64_t>(); }

 private:
  BatchLayout layout_;
  std::vector<std::byte> memory_;
  Batch batch_;
};

inline std::vector<float> image(const Source& source, std::int64_t index) {
  return Sample(source, index).values<float>("image");
}
inline std::int64_t label(const Source& source, std::int64_t index) { return Sample(source, index).label(); }

}  // namespace dtrain::test
