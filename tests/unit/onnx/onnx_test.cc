// A network's trace as an ONNX graph: which operators come of kernels and of views, what follows the batch,
// and what is refused. Whether the numbers are right, ONNX Runtime says (tests/onnx).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"
#include "runtime/nn/layers.h"
#include "runtime/onnx/export.h"
#include "runtime/onnx/trace_device.h"
#include "runtime/onnx/wire.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(OnnxWire, EncodesAsProtocolBuffersDo) {
  onnx::Message inner, message;
  inner.number(1, 150);
  message.text(2, "testing");
  message.message(3, inner);
  message.real(2, 1.5F);
  message.number(3, -1);
  EXPECT_EQ(message.bytes(), std::string("\x12\x07testing\x1a\x03\x08\x96\x01\x15\x00\x00\xc0\x3f", 19) +
                                 "\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
}

/// Traces functions of one tensor.
class Trace : public testing::Test {
 protected:
  onnx::Graph trace(const Dims& shape, const std::function<Tensor(const Tensor&)>& function) {
    const NoGrad no_grad;
    onnx::Translator translator;
    Dims extents = shape;
    Generator generator(static_cast<std::uint64_t>(shape[0]));
    Tensor x = Tensor::rand(extents, generator, device_), y;
    translator.values().define_input({"x", onnx::ElementType::f32, {shape.begin(), shape.end()}}, x.view());
    device_->begin(translator);
    try {
      y = function(x);
      translator.give({"y", onnx::ElementType::f32, {}}, y.view());
    } catch (...) {
      device_->end();
      throw;
    }
    device_->end();
    return translator.take();
  }

  onnx::Graph any_batch(Dims shape, const std::function<Tensor(const Tensor&)>& function) {
    shape[0] = 3;
    onnx::Graph first = trace(shape, function);
    shape[0] = 5;
    return for_any_batch(std::move(first), 3, trace(shape, function), 5);
  }

  static std::vector<std::string> types(const onnx::Graph& graph) {
    std::vector<std::string> result;
    for (const onnx::Node& node : graph.nodes) result.push_back(node.type);
    return result;
  }

  std::shared_ptr<onnx::TraceDevice> device_ = std::make_shared<onnx::TraceDevice>(make_device("cpu"));
};

TEST_F(Trace, ALayerIsOneOperatorOnItsOwnWeights) {
  Generator generator(1);
  Linear layer(4, 2, generator, device_, {.activation = Activation::relu});
  const std::string file =
      export_onnx(device_, layer.state_dict(), {"net", {{.name = "x", .shape = {4}}}, {"y"}},
                  [&](const Tensors& x) { return Tensors{layer(x[0])}; });
  for (const char* part : {"Gemm", "Relu", "transB", "weight", "bias", "batch"})
    EXPECT_THAT(file, HasSubstr(part));
  EXPECT_THAT(file, testing::Not(HasSubstr("Transpose")));
}

TEST_F(Trace, ViewsBecomeTheNodesThatGiveTheirElements) {
  const onnx::Graph turned =
      trace({2, 3, 4}, [](const Tensor& x) { return relu(x.transpose(1, 2).contiguous()); });
  EXPECT_THAT(types(turned), ElementsAre("Transpose", "Relu", "Identity"));
  const onnx::Graph cut = trace({2, 3, 4}, [](const Tensor& x) { return relu(x.slice(2, 1, 3)); });
  EXPECT_THAT(types(cut), testing::Contains("Slice"));
  const onnx::Graph joined = trace({2, 3}, [](const Tensor& x) { return cat({x, x * 2.0}, 1); });
  EXPECT_THAT(types(joined), ElementsAre("Mul", "Concat", "Identity"));
}

TEST_F(Trace, WhatFollowsTheBatchIsLeftOpenOrComputed) {
  const onnx::Graph flat = any_batch({0, 2, 3}, [](const Tensor& x) { return relu(x.flatten(1)); });
  ASSERT_EQ(flat.sizes.size(), 1U);
  EXPECT_THAT(flat.sizes[0].fixed, ElementsAre(-1, 6));
  const onnx::Graph wide = any_batch({0, 1}, [](const Tensor& x) {
    return add(x, Tensor::zeros({x.size(0), 4}, x.shared_device())) * x.expand({x.size(0), 4}).contiguous();
  });
  EXPECT_THAT(types(wide), testing::Contains("Shape"));
}

TEST_F(Trace, RefusesWhatNoGraphIsRightFor) {
  const auto numbers = [&](const std::function<Tensor(const Tensor&)>& function) {
    return test::message_of([&] { any_batch({0, 4}, function); });
  };
  EXPECT_THAT(
      numbers([](const Tensor& x) { return mul(x, x.select(0, 0).select(0, 0).item() > 0 ? 1.0 : 2.0); }),
      HasSubstr("item"));
  EXPECT_THAT(numbers([](const Tensor& x) { return x.size(0) > 3 ? relu(x) : neg(x); }),
              HasSubstr("different things for different batches"));
  EXPECT_THAT(numbers([](const Tensor& x) {
                Tensor y = x.clone();
                y.slice(1, 1, 2).fill(0);
                return relu(y);
              }),
              HasSubstr("pieces"));
  EXPECT_THAT(numbers([](const Tensor& x) {
                Tensor y = x.clone();
                y.slice(1, 0, 4, 3).fill(0);  // from the first element to the last, but not all
                return relu(y);
              }),
              HasSubstr("pieces"));
  EXPECT_THAT(numbers([](const Tensor& x) {
                Tensor out = Tensor::empty(x.shape(), x.shared_device());
                x.device().kernels().unary(UnaryOp::round_half, x.view(), out.view());
                return out;
              }),
              HasSubstr("round_half"));
  const auto plain = make_device("cpu");
  EXPECT_THAT(test::message_of([&] {
                export_onnx(plain, {}, {"net", {}, {}}, nullptr);
              }),
              HasSubstr("make_trace_device"));
}

}  // namespace
}  // namespace dtrain
