#include "models/vision/inception_resnet.h"

#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/nn/containers.h"

namespace dtrain {
namespace {

constexpr std::int64_t kLeastSide = 75;  // of which the reductions leave one pixel
constexpr double kEps = 1e-3;            // of batch norms

/// One convolution of a branch.
struct ConvPlan {
  std::int64_t out;
  KernelSize kernel = 1;
  std::int64_t stride = 1, pad_h = 0, pad_w = 0;
};
/// Those of a branch, one behind the other.
using BranchPlan = std::vector<ConvPlan>;

ConvPlan padded(std::int64_t out, std::int64_t side) { return {out, side, 1, side / 2, side / 2}; }
ConvPlan halved(std::int64_t out) { return {out, 3, 2}; }
ConvPlan row(std::int64_t out, std::int64_t length) { return {out, {1, length}, 1, 0, length / 2}; }
ConvPlan column(std::int64_t out, std::int64_t length) { return {out, {length, 1}, 1, length / 2, 0}; }

/// What layers are made with.
struct Making {
  Generator& generator;
  const std::shared_ptr<Device>& device;
};

/// relu(bn(conv(x))).
class ConvUnit final : public Module {
 public:
  ConvUnit(std::int64_t in, const ConvPlan& plan, const Making& making) {
    Conv2dOptions options;
    options.geometry.stride_h = options.geometry.stride_w = plan.stride;
    options.geometry.pad_h = plan.pad_h;
    options.geometry.pad_w = plan.pad_w;
    options.bias = false;
    conv_ = add_module("conv", std::make_shared<Conv2d>(in, plan.out, plan.kernel, making.generator,
                                                        making.device, options));
    norm_ = add_module("bn", std::make_shared<BatchNorm2d>(plan.out, making.device, kEps));
  }
  Tensor forward(const Tensor& x) override { return norm_->forward((*conv_)(x), Activation::relu); }

 private:
  std::shared_ptr<Conv2d> conv_;
  std::shared_ptr<BatchNorm2d> norm_;
};

/// The mean of each pixel and those around it, of as many as there are: at the border fewer than nine.
class NeighboursMean final : public Module {
 public:
  Tensor forward(const Tensor& x) override {
    const Pool2dGeometry window{PoolKind::avg, 3, 3, 1, 1, 1, 1};
    const Tensor inside = Tensor::ones({1, 1, x.size(2), x.size(3)}, x.shared_device(), x.dtype());
    return div(pool2d(x, window), pool2d(inside, window));
  }
};

/// A branch of one convolution is that, of several a chain of them.
std::shared_ptr<Module> make_branch(std::int64_t in, const BranchPlan& plan, const Making& making) {
  if (plan.size() == 1) return std::make_shared<ConvUnit>(in, plan.front(), making);
  std::vector<std::shared_ptr<Module>> units;
  for (const ConvPlan& conv : plan) {
    units.push_back(std::make_shared<ConvUnit>(in, conv, making));
    in = conv.out;
  }
  return std::make_shared<Sequential>(units);
}

/// What several branches make of x, side by side.
class Branches : public Module {
 public:
  Branches(std::int64_t in, const std::vector<BranchPlan>& plans, const Making& making) {
    for (const BranchPlan& plan : plans) add_branch(make_branch(in, plan, making));
  }
  Tensor forward(const Tensor& x) override {
    Tensors made;
    for (const auto& branch : branches_) made.push_back((*branch)(x));
    return cat(made, 1);
  }
  void add_branch(std::shared_ptr<Module> branch) {
    branches_.push_back(add_module(fmt::format("branch{}", branches_.size()), std::move(branch)));
  }

 private:
  std::vector<std::shared_ptr<Module>> branches_;
};

/// x + scale · conv2d(branches(x)), and relu but for the last.
class ResidualBranches final : public Branches {
 public:
  ResidualBranches(std::int64_t width, const std::vector<BranchPlan>& plans, double scale, bool ends_in_relu,
                   const Making& making)
      : Branches(width, plans, making), scale_(scale), ends_in_relu_(ends_in_relu) {
    mark_block();
    std::int64_t in = 0;
    for (const BranchPlan& plan : plans) in += plan.back().out;
    conv_ = add_module("conv2d", std::make_shared<Conv2d>(in, width, 1, making.generator, making.device));
  }
  Tensor forward(const Tensor& x) override {
    const Tensor sum = add(mul((*conv_)(Branches::forward(x)), scale_), x);
    return ends_in_relu_ ? relu(sum) : sum;
  }

 private:
  std::shared_ptr<Conv2d> conv_;
  double scale_;
  bool ends_in_relu_;
};

std::shared_ptr<Module> mixed_5b(const Making& making) {
  auto mixed = std::make_shared<Branches>(
      192, std::vector<BranchPlan>{{{96}}, {{48}, padded(64, 5)}, {{64}, padded(96, 3), padded(96, 3)}},
      making);
  mixed->add_branch(std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>{
      std::make_shared<NeighboursMean>(), std::make_shared<ConvUnit>(192, ConvPlan{64}, making)}));
  return mixed;
}

/// A reduction: half as many rows and columns, those of the largest beside what is learned.
std::shared_ptr<Module> reduction(std::int64_t in, const std::vector<BranchPlan>& plans,
                                  const Making& making) {
  auto mixed = std::make_shared<Branches>(in, plans, making);
  mixed->add_branch(std::make_shared<MaxPool2d>(3, 2));
  return mixed;
}

const std::vector<BranchPlan> kBlock35 = {
    {{32}}, {{32}, padded(32, 3)}, {{32}, padded(48, 3), padded(64, 3)}};
const std::vector<BranchPlan> kBlock17 = {{{192}}, {{128}, row(160, 7), column(192, 7)}};
const std::vector<BranchPlan> kBlock8 = {{{192}}, {{192}, row(224, 3), column(256, 3)}};
const std::vector<BranchPlan> kMixed6a = {{halved(384)}, {{256}, padded(256, 3), halved(384)}};
const std::vector<BranchPlan> kMixed7a = {
    {{256}, halved(384)}, {{256}, halved(288)}, {{256}, padded(288, 3), halved(320)}};

}  // namespace

InceptionResNetV2::InceptionResNetV2(const NetworkInput& input, Generator& generator,
                                     const std::shared_ptr<Device>& device) {
  if (input.height < kLeastSide || input.width < kLeastSide) {
    throw UsageError(fmt::format("inception-resnet-v2: expected images of at least {} x {}, got {} x {}",
                                 kLeastSide, kLeastSide, input.height, input.width));
  }
  const Making making{generator, device};
  const auto append = [&](const std::string& name, const std::shared_ptr<Module>& module) {
    add_module(name, module);
    chain_.push_back(layer_unit(name, module));
  };
  const auto append_conv = [&](const std::string& name, std::int64_t in, const ConvPlan& plan) {
    append(name, std::make_shared<ConvUnit>(in, plan, making));
  };
  // Behind a pooling.
  const auto append_pooled = [&](const std::string& name, const std::shared_ptr<Module>& module) {
    add_module(name, module);
    chain_.push_back(
        {{{name, module}}, [module](const Tensor& x) { return (*module)(MaxPool2d(3, 2).forward(x)); }});
  };
  const auto append_blocks = [&](const std::string& name, int count, std::int64_t width,
                                 const std::vector<BranchPlan>& plans, double scale) {
    std::vector<std::shared_ptr<Module>> blocks;
    for (int i = 0; i < count; ++i) {
      blocks.push_back(std::make_shared<ResidualBranches>(width, plans, scale, true, making));
      chain_.push_back(layer_unit(fmt::format("{}.{}", name, i), blocks.back()));
    }
    add_module(name, std::make_shared<Sequential>(blocks));
  };
  append_conv("conv2d_1a", input.channels, halved(32));
  append_conv("conv2d_2a", 32, {32, 3});
  append_conv("conv2d_2b", 32, padded(64, 3));
  append_pooled("conv2d_3b", std::make_shared<ConvUnit>(64, ConvPlan{80}, making));
  append_conv("conv2d_4a", 80, {192, 3});
  append_pooled("mixed_5b", mixed_5b(making));
  append_blocks("repeat", 10, 320, kBlock35, 0.17);
  append("mixed_6a", reduction(320, kMixed6a, making));
  append_blocks("repeat_1", 20, 1088, kBlock17, 0.10);
  append("mixed_7a", reduction(1088, kMixed7a, making));
  append_blocks("repeat_2", 9, 2080, kBlock8, 0.20);
  append("block8", std::make_shared<ResidualBranches>(2080, kBlock8, 1.0, false, making));
  append_conv("conv2d_7b", 2080, {1536});
  const auto head = add_module("classif", std::make_shared<Linear>(1536, input.classes, generator, device));
  chain_.push_back({{{"classif", head}},
                    [head](const Tensor& x) { return (*head)(flatten(adaptive_avg_pool2d(x, 1, 1))); }});
}

}  // namespace dtrain
