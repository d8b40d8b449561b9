// Batches that carry bytes become the numbers that the source would have written, bit for bit.
#include "training/batch_tensors.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "training/engine/batch_feed.h"

namespace dtrain {
namespace {

/// Every byte in an image of 16 x 16, two channels that differ.
class Grey final : public Source {
 public:
  explicit Grey(DType dtype = DType::f32)
      : fields_{{.name = "image", .dtype = dtype, .shape = {2, 16, 16}}} {}
  std::string name() const override { return "grey"; }
  std::int64_t size() const noexcept override { return 3; }
  std::span<const Field> fields() const noexcept override { return fields_; }
  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator&) const override {
    const View& out = outputs[0];
    for (std::int64_t i = 0; i < 512; ++i) {
      const auto byte = static_cast<std::uint8_t>(i + i / 256 * 3 + index);
      const std::int64_t at =
          i / 256 * out.strides[0] + i % 256 / 16 * out.strides[1] + i % 16 * out.strides[2];
      if (out.dtype == DType::u8) {
        out.as<std::uint8_t>()[at] = byte;
      } else {
        out.as<float>()[at] = static_cast<float>(byte) / 255.0F;
      }
    }
  }
  bool has_bytes(std::size_t) const noexcept override { return true; }

 private:
  std::vector<Field> fields_;
};

Batch load(const LoaderOptions& options) {
  Loader loader(std::make_shared<Grey>(), make_device("cpu"), options);
  loader.start({2, 0, 1}, 0);
  return loader.next(Deadline::never()).value();
}

TEST(BatchTensors, OfBytesHoldTheSourcesNumbers) {
  for (const std::vector<std::string>& channels_last : {std::vector<std::string>{}, {"image"}}) {
    const Batch numbers = load({.batch_size = 3, .channels_last = channels_last});
    const Batch bytes = load({.batch_size = 3, .channels_last = channels_last, .bytes = true});
    EXPECT_EQ(numbers["image"].dtype, DType::f32);
    EXPECT_EQ(bytes["image"].dtype, DType::u8);
    EXPECT_EQ(bytes.fields()[0].dtype, DType::f32);
    const auto device = make_device("cpu");
    const Tensor expected = to_tensors(numbers, device)["image"], got = to_tensors(bytes, device)["image"];
    EXPECT_EQ(got.dtype(), DType::f32);
    EXPECT_EQ(got.strides(), expected.strides());
    EXPECT_EQ(got.to_vector<float>(), expected.to_vector<float>());
    EXPECT_EQ(BatchFeed(device).take(bytes)["image"].to_vector<float>(), expected.to_vector<float>());
  }
}

TEST(BatchTensors, BytesStandForFloatsAlone) {
  const auto device = make_device("cpu");
  EXPECT_THROW(Loader(std::make_shared<Grey>(DType::f64), device, {.bytes = true}), UsageError);
  EXPECT_NO_THROW(Loader(std::make_shared<Grey>(DType::f64), device, {}));
}

}  // namespace
}  // namespace dtrain
