// Texts of tensors, normal numbers and ranges beside PyTorch's (make_golden.py).
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "runtime/tensor/print.h"
#include "tests/support/json.h"

namespace dtrain {
namespace {

const test::Json& golden() {
  static const test::Json content = test::Json::read(DTRAIN_GOLDEN);
  return content;
}

DType dtype_of_text(const std::string& text) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64, DType::i32,
                            DType::i16, DType::i8, DType::u8, DType::boolean}) {
    if (text == "torch." + std::string(name_of(dtype))) return dtype;
  }
  throw std::runtime_error("unknown dtype " + text);
}

Dims shape_of(const test::Json& entry) {
  const auto extents = entry["shape"].get<std::vector<std::int64_t>>();
  return Dims(std::span(extents));
}

double formula(const std::string& name, std::int64_t i) {
  const auto x = static_cast<double>(i);
  if (name == "count") return x;
  if (name == "odd") return static_cast<double>(i % 2);
  if (name == "tenth") return x * 0.125 - 3;
  return (x - 7) * std::pow(10.0, i % 9 - 4);
}

class TensorParity : public testing::Test {
 protected:
  Tensor from_texts(const std::vector<std::string>& texts, const Dims& shape, DType dtype) {
    if (dtype == DType::i64) {
      std::vector<std::int64_t> values;
      for (const auto& text : texts) values.push_back(std::stoll(text));
      return Tensor::from_data(values, shape, device_);
    }
    std::vector<double> values;
    for (const auto& text : texts) values.push_back(std::strtod(text.c_str(), nullptr));
    return Tensor::from_data(values, shape, device_).to(dtype);
  }

  std::shared_ptr<Device> device_ = make_device("cpu");
};

TEST_F(TensorParity, PrintsAsPyTorchDoes) {
  ASSERT_GE(golden()["texts"].size(), 40U);
  for (const test::Json entry : golden()["texts"]) {
    const Tensor tensor = from_texts(entry["values"].get<std::vector<std::string>>(), shape_of(entry),
                                     dtype_of_text(entry["dtype"].get<std::string>()));
    EXPECT_EQ(to_string(tensor), entry["text"].get<std::string>());
  }
}

TEST_F(TensorParity, WrapsAndSummarisesAsPyTorchDoes) {
  ASSERT_GE(golden()["made"].size(), 20U);
  for (const test::Json entry : golden()["made"]) {
    const Dims shape = shape_of(entry);
    std::vector<double> values;
    for (std::int64_t i = 0; i < shape.product(); ++i) {
      values.push_back(formula(entry["formula"].get<std::string>(), i));
    }
    const Tensor tensor =
        Tensor::from_data(values, shape, device_).to(dtype_of_text(entry["dtype"].get<std::string>()));
    EXPECT_EQ(to_string(tensor), entry["text"].get<std::string>());
  }
}

TEST_F(TensorParity, PrintsLeavesViewsAndStreams) {
  Tensor leaf = Tensor::ones({2}, device_);
  leaf.set_requires_grad(true);
  EXPECT_EQ(to_string(leaf), golden()["leaf"].get<std::string>());
  Tensor longer = Tensor::arange(-0.5, 8, 1, device_, DType::f32);
  longer.set_requires_grad(true);
  EXPECT_EQ(to_string(longer), golden()["long_leaf"].get<std::string>());
  std::ostringstream out;
  out << Tensor::arange(6, device_).reshape({2, 3}).transpose(0, 1);
  EXPECT_EQ(out.str(), "tensor([[0, 3],\n        [1, 4],\n        [2, 5]])");
  EXPECT_EQ(to_string(Tensor()), "undefined");
}

TEST_F(TensorParity, NormalNumbersFollowPyTorch) {
  for (const test::Json entry : golden()["normal"]) {
    const DType dtype = dtype_of_text(entry["dtype"].get<std::string>());
    Generator generator(11);
    for (const test::Json draw : entry["draws"]) {
      const auto expected = draw.get<std::vector<double>>();
      Tensor tensor = Tensor::zeros({static_cast<std::int64_t>(expected.size())}, device_, dtype);
      tensor.fill_normal(generator, 0.5, 2.0);
      const auto got = tensor.to_vector<double>();
      // In blocks of float32 PyTorch's own logarithm and sine differ by this much between processors.
      const double tolerance = dtype == DType::f64 ? 1e-13 : expected.size() < 16 ? 0.0 : 2e-6;
      for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_NEAR(got[i], expected[i], tolerance) << entry["sizes"];
    }
  }
  Generator generator(12);
  const auto got = Tensor::randn({4, 9}, generator, device_).to_vector<double>();
  const auto expected = golden()["randn"].get<std::vector<double>>();
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-6);
}

TEST_F(TensorParity, UniformInDoubleIsEqual) {
  Generator generator(13);
  Tensor tensor = Tensor::zeros({6}, device_, DType::f64);
  tensor.fill_uniform(generator, -2, 3);
  EXPECT_EQ(tensor.to_vector<double>(), golden()["uniform64"].get<std::vector<double>>());
}

TEST_F(TensorParity, RangesAreEqual) {
  for (const test::Json entry : golden()["arange"]) {
    const auto args = entry["args"].get<std::vector<double>>();
    EXPECT_EQ(Tensor::arange(args[0], args[1], args[2], device_, DType::f32).to_vector<float>(),
              entry["values"].get<std::vector<float>>());
  }
}

}  // namespace
}  // namespace dtrain
