// Learning without labels: an online network predicts what a target network makes of another view of the same
// picture; the target is frozen and follows the online network as a moving average (BYOL, Grill et al. 2020).
//
//     dtrain-launch --nproc_per_node=2 build/byol --epochs 20 --lr 0.1 --momentum 0.9
#include <dtrain/dtrain.h>
#include <dtrain/runtime/autograd/ops/reductions.h>
#include <dtrain/runtime/nn/trainable.h>
#include <cmath>

using namespace dtrain;

/// Sample i: two views of waves in a picture of 8 × 8 pixels: one direction, different phases and contrast.
class Waves final : public Source {
 public:
  explicit Waves(std::int64_t size) : size_(size) {}
  std::string name() const override { return "waves"; }
  std::int64_t size() const noexcept override { return size_; }
  std::span<const Field> fields() const noexcept override { return fields_; }
  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator&) const override {
    const auto i = static_cast<double>(index);
    for (std::size_t view = 0; view < 2; ++view) {
      const double phase = 0.7 * i + 2.1 * static_cast<double>(view),
                   contrast = 1 + 0.3 * std::sin(phase * i);
      for (std::int64_t k = 0; k < 64; ++k) {
        const double along =
            std::cos(0.1 * i) * static_cast<double>(k % 8) + std::sin(0.1 * i) * static_cast<double>(k / 8);
        outputs[view].as<float>()[k] = static_cast<float>(contrast * std::sin(along + phase));
      }
    }
  }

 private:
  std::int64_t size_;
  std::vector<Field> fields_{{.name = "first", .shape = {1, 8, 8}}, {.name = "second", .shape = {1, 8, 8}}};
};

class Byol final : public MultiModule {
 public:
  Byol(Generator& draws, const std::shared_ptr<Device>& device) {
    online_ = add_module("online", encoder(draws, device));
    predictor_ = add_module("predictor", head(16, draws, device));
    target_ = add_module("target", encoder(draws, device));
    target_->load_state_dict(online_->state_dict());
    freeze(*this, std::vector<std::string>{"target.*"});
  }
  /// Views [B, 1, 8, 8] → of each, what is predicted of the other, and what the target makes of that, [B,
  /// 16].
  Tensors forward_all(const Tensors& views) override {
    return {(*predictor_)((*online_)(views[0])), (*target_)(views[1]), (*predictor_)((*online_)(views[1])),
            (*target_)(views[0])};
  }
  void move_target(double decay) {
    const NamedTensors online = online_->named_parameters();
    NamedTensors target = target_->named_parameters();
    for (std::size_t i = 0; i < target.size(); ++i) {
      target[i].second.scale_in_place(decay);
      target[i].second.add_in_place(online[i].second, 1 - decay);
    }
  }

 private:
  static std::shared_ptr<Module> head(int in, Generator& draws, const std::shared_ptr<Device>& device) {
    return std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>{
        std::make_shared<Linear>(in, 32, draws, device), std::make_shared<LayerNorm>(Dims{32}, device),
        std::make_shared<ReLU>(), std::make_shared<Linear>(32, 16, draws, device)});
  }
  static std::shared_ptr<Module> encoder(Generator& draws, const std::shared_ptr<Device>& device) {
    return std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>{
        std::make_shared<Conv2d>(1, 8, 3, draws, device), std::make_shared<ReLU>(),
        std::make_shared<Flatten>(), head(288, draws, device)});
  }
  std::shared_ptr<Module> online_, predictor_, target_;
};

class LearnViews final : public Task {
 public:
  std::string name() const override { return "byol"; }
  Splits open(const DataRequest&) const override {
    return {std::make_shared<Waves>(640), std::make_shared<Waves>(64)};
  }
  std::unique_ptr<Module> build(std::span<const Field>, Generator& draws,
                                const std::shared_ptr<Device>& device) const override {
    return std::make_unique<Byol>(draws, device);
  }
  Tensors inputs(const BatchTensors& batch) const override { return {batch["first"], batch["second"]}; }
  Tensor loss(const Tensors& outputs, const BatchTensors&) const override {
    const auto apart = [](const Tensor& a, const Tensor& b) {
      return mean(2 - 2 * sum(a * b, {1}) / (norm(a, 2, {1}) * norm(b, 2, {1})));
    };
    return apart(outputs[0], outputs[1]) + apart(outputs[2], outputs[3]);
  }
  AfterUpdate after_update() const override {
    return [](Module& network, const TrainStep&) { dynamic_cast<Byol&>(network).move_target(0.99); };
  }
};

int main(int argc, char** argv) { return train_main(argc, argv, LearnViews()); }
