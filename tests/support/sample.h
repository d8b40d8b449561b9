// One sample of a source, read into memory of its own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/batch_layout.h"

namespace dtrain::test {

class Sample {
 public:
  Sample(const Source& source, std::int64_t index, const std::vector<std::string>& channels_last = {},
         std::uint64_t seed = 0, std::uint64_t epoch = 0, bool bytes = false)
      : layout_(source, 1, channels_last, bytes), memory_(layout_.bytes()) {
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

/// What a batch carries of sample `index`'s image as bytes, and how that differs from its numbers; "": not.
inline std::string difference_of_bytes(const Source& source, std::int64_t index) {
  for (const std::vector<std::string>& order : {std::vector<std::string>{}, {"image"}}) {
    const Sample numbers(source, index, order), bytes(source, index, order, 0, 0, true);
    if (bytes["image"].dtype != DType::u8) return "the image is not carried as bytes";
    if (bytes["image"].strides != numbers["image"].strides) return "another order";
    const auto expected = numbers.values<float>("image");
    const auto got = bytes.values<std::uint8_t>("image");
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (static_cast<float>(got[i]) / 255.0F != expected[i])
        return "place " + std::to_string(i) + ": byte " + std::to_string(got[i]) + " for " +
               std::to_string(expected[i]);
    }
    if (find_field(source.fields(), "label") != nullptr && bytes.label() != numbers.label())
      return "another label";
  }
  return "";
}

inline std::vector<float> image(const Source& source, std::int64_t index) {
  return Sample(source, index).values<float>("image");
}
inline std::int64_t label(const Source& source, std::int64_t index) { return Sample(source, index).label(); }

}  // namespace dtrain::test
