// A program whose network leaves parameters out: a branch that only a few samples take, so that some workers
// use it in a step, or none; one that nothing takes; and one whose result is detached. Its forward draws
// random numbers. For the table of forms.
#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/joining.h"
#include "runtime/autograd/ops/losses.h"
#include "runtime/nn/chain.h"
#include "runtime/nn/layers.h"
#include "runtime/nn/noise.h"
#include "training/task.h"
#include "training/train_main.h"

namespace dtrain::test {
namespace {

constexpr std::int64_t kIn = 5, kWidth = 8;
constexpr std::int64_t kRare = 97;  ///< one sample of so many takes the rare branch

/// `point` is five numbers and whether the rare branch is taken.
class Points final : public Source {
 public:
  explicit Points(std::int64_t size) : size_(size) {}
  std::string name() const override { return "points"; }
  std::int64_t size() const noexcept override { return size_; }
  std::span<const Field> fields() const noexcept override { return fields_; }
  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator& /*unused*/) const override {
    KeyedGenerator numbers(1, 0, static_cast<std::uint64_t>(index));
    auto* const point = outputs[0].as<float>();
    float sum = 0;
    for (std::int64_t i = 0; i < kIn; ++i) sum += point[i] = numbers.uniform(-1.0F, 1.0F);
    point[kIn] = index % kRare == 0 ? 1.0F : 0.0F;
    *outputs[1].as<float>() = sum * point[0] + 2 * point[kIn];
  }

 private:
  std::int64_t size_;
  std::vector<Field> fields_{{.name = "point", .shape = {kIn + 1}}, {.name = "y", .shape = {1}}};
};

/// What stands before the last column, and the last column, which goes through the layers unchanged.
Tensor values_of(const Tensor& x) { return x.slice(1, 0, x.size(1) - 1); }
Tensor rare_of(const Tensor& x) { return x.slice(1, x.size(1) - 1, x.size(1)); }

class Beside final : public Module {
 public:
  Beside(std::int64_t in, Generator& generator, const std::shared_ptr<Device>& device)
      : inner_(add_module("inner", std::make_shared<Linear>(in, kWidth, generator, device))) {}
  Tensor forward(const Tensor& x) override {
    const Tensor y = tanh((*inner_)(values_of(x).contiguous()));
    return cat({y, rare_of(x).to(y.dtype())}, 1);
  }

 private:
  std::shared_ptr<Linear> inner_;
};

struct Habits {
  bool always = false;           ///< whole batches take the rare branch: with zeros for the others
  bool plain_generator = false;  ///< draw from a stream, which a training step refuses
};

class Choice final : public Module {
 public:
  Choice(const Habits& habits, Generator& generator, const std::shared_ptr<Device>& device)
      : habits_(habits) {
    const auto layer = [&] { return std::make_shared<Linear>(kWidth, kWidth, generator, device); };
    rare_ = add_module("rare", layer());
    never_ = add_module("never", layer());
    detached_ = add_module("detached", layer());
    noise_ = add_module("noise", std::make_shared<Noise>(std::make_shared<DropoutKey>(11, device), 0.1));
  }
  Tensor forward(const Tensor& x) override {
    const Tensor h = values_of(x).contiguous(), rare = rare_of(x).to(h.dtype());
    Tensor y = (*noise_)(add(h, (*detached_)(h).detach()));
    if (habits_.plain_generator) y = add(y, Tensor::randn(y.shape(), plain_, y.shared_device()));
    if (!habits_.always && sum(rare.detach()).item() == 0) return y;
    return add(y, mul((*rare_)(h), rare.expand({h.size(0), kWidth})));
  }

 private:
  Habits habits_;
  Generator plain_{5};
  std::shared_ptr<Linear> rare_, never_, detached_;
  std::shared_ptr<Noise> noise_;
};

class Network final : public Module, public Chained {
 public:
  Network(const Habits& habits, Generator& generator, const std::shared_ptr<Device>& device) {
    first_ = add_module("first", std::make_shared<Beside>(kIn, generator, device));
    second_ = add_module("second", std::make_shared<Beside>(kWidth, generator, device));
    choice_ = add_module("choice", std::make_shared<Choice>(habits, generator, device));
    last_ = add_module("last", std::make_shared<Linear>(kWidth, 1, generator, device));
  }
  Tensor forward(const Tensor& x) override { return through(chain(), x); }
  std::vector<LayerUnit> chain() const override {
    return {layer_unit("first", first_), layer_unit("second", second_), layer_unit("choice", choice_),
            layer_unit("last", last_)};
  }

 private:
  std::shared_ptr<Beside> first_, second_;
  std::shared_ptr<Choice> choice_;
  std::shared_ptr<Linear> last_;
};

class Branches final : public Task {
 public:
  explicit Branches(const Habits& habits) : habits_(habits) {}
  std::string name() const override { return "branches"; }
  Splits open(const DataRequest& /*request*/) const override {
    return {std::make_shared<Points>(640), std::make_shared<Points>(64)};
  }
  std::unique_ptr<Module> build(std::span<const Field> /*fields*/, Generator& generator,
                                const std::shared_ptr<Device>& device) const override {
    return std::make_unique<Network>(habits_, generator, device);
  }
  Tensor loss(const Tensors& outputs, const BatchTensors& batch) const override {
    return mse_loss(outputs[0], batch["y"]);
  }

 private:
  Habits habits_;
};

constexpr OptionSpec kOptions[] = {
    {"always", "Network", "", "", "every batch takes the rare branch"},
    {"plain-generator", "Network", "", "", "draw from a Generator in the forward"},
};

}  // namespace
}  // namespace dtrain::test

int main(int argc, char** argv) {
  using namespace dtrain;
  return train_main(argc, argv, {.options = test::kOptions, .make_task = [](const Options& options) {
                                   return std::make_shared<test::Branches>(test::Habits{
                                       options.enabled("always"), options.enabled("plain-generator")});
                                 }});
}
