// Two losses and two optimizers in a step: a generator learns to put points where those of a ring are, a
// discriminator to tell them apart (Goodfellow et al. 2014). Each worker has every option of `dtrain train`:
//
//     dtrain-launch --nproc_per_node=2 build/gan --epochs 20 --shard optimizer
#include <dtrain/dtrain.h>
#include <cmath>

using namespace dtrain;

/// Sample i: a point of a ring, and the noise that the generator makes a point of.
class Ring final : public Source {
 public:
  explicit Ring(std::int64_t size) : size_(size) {}
  std::string name() const override { return "ring"; }
  std::int64_t size() const noexcept override { return size_; }
  std::span<const Field> fields() const noexcept override { return fields_; }
  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator&) const override {
    const auto i = static_cast<double>(index);
    outputs[0].as<float>()[0] = static_cast<float>(std::cos(0.1 * i));
    outputs[0].as<float>()[1] = static_cast<float>(std::sin(0.1 * i));
    for (int k = 0; k < 8; ++k) outputs[1].as<float>()[k] = static_cast<float>(std::sin(i * (k + 1) + k));
  }

 private:
  std::int64_t size_;
  std::vector<Field> fields_{{.name = "real", .shape = {2}}, {.name = "noise", .shape = {8}}};
};

class Gan final : public MultiModule {
 public:
  Gan(Generator& draws, const std::shared_ptr<Device>& device) {
    generator_ = add_module("generator", mlp(8, 2, draws, device));
    discriminator_ = add_module("discriminator", mlp(2, 1, draws, device));
  }
  Tensor generate(const Tensor& noise) { return (*generator_)(noise); }
  Tensor judge(const Tensor& points) { return (*discriminator_)(points).flatten(); }
  Tensors forward_all(const Tensors& inputs) override { return {judge(generate(inputs[1]))}; }

 private:
  static std::shared_ptr<Sequential> mlp(int in, int out, Generator& draws,
                                         const std::shared_ptr<Device>& device) {
    return std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>{
        std::make_shared<Linear>(in, 32, draws, device), std::make_shared<Tanh>(),
        std::make_shared<Linear>(32, out, draws, device)});
  }
  std::shared_ptr<Sequential> generator_, discriminator_;
};

Tensor says(const Tensor& logits, double real) {
  return binary_cross_entropy_with_logits(logits, Tensor::full(logits.shape(), real, logits.shared_device()));
}

class Adversaries final : public Task {
 public:
  std::string name() const override { return "gan"; }
  Splits open(const DataRequest&) const override {
    return {std::make_shared<Ring>(640), std::make_shared<Ring>(64)};
  }
  std::unique_ptr<Module> build(std::span<const Field>, Generator& draws,
                                const std::shared_ptr<Device>& device) const override {
    return std::make_unique<Gan>(draws, device);
  }
  Tensors inputs(const BatchTensors& batch) const override { return {batch["real"], batch["noise"]}; }
  Tensor loss(const Tensors& outputs, const BatchTensors&) const override { return says(outputs[0], 1); }
  std::vector<StepPhase> phases() const override {
    const auto adam = [](double lr) {
      return [lr](const NamedTensors& parameters) {
        return std::make_unique<Adam>(parameters, AdamOptions{.lr = lr, .beta1 = 0.5});
      };
    };
    const auto judge_both = [](Module& network, const Tensors& inputs, const TrainStep&) -> Tensors {
      auto& gan = dynamic_cast<Gan&>(network);
      return {gan.judge(inputs[0]), gan.judge(gan.generate(inputs[1]).detach())};
    };
    return {{.name = "discriminator",
             .parameters = {"discriminator.*"},
             .loss = [](const Tensors& judged, const BatchTensors&,
                        const TrainStep&) { return says(judged[0], 1) + says(judged[1], 0); },
             .forward = judge_both,
             .make_optimizer = adam(0.002)},
            {.name = "generator",
             .parameters = {"generator.*"},
             .loss = [](const Tensors& judged, const BatchTensors&,
                        const TrainStep&) { return says(judged[0], 1); },
             .make_optimizer = adam(0.001)}};
  }
};

int main(int argc, char** argv) { return train_main(argc, argv, Adversaries()); }
