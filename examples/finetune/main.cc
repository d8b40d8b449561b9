// Fine-tuning: a body that is frozen, a neck that learns slowly and a head that learns fast, after a warm-up
// of the rate that only this task knows. With --init-from the weights of the body come from elsewhere.
//
//     dtrain-launch --nproc_per_node=2 build/finetune --epochs 10 --lr 0.1 --momentum 0.9
#include <dtrain/dtrain.h>
#include <dtrain/runtime/nn/trainable.h>
#include <cmath>

using namespace dtrain;

/// Sample i: a point of a spiral, and which one.
class Spirals final : public Source {
 public:
  explicit Spirals(std::int64_t size) : size_(size) {}
  std::string name() const override { return "spirals"; }
  std::int64_t size() const noexcept override { return size_; }
  std::span<const Field> fields() const noexcept override { return fields_; }
  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator&) const override {
    const double turn = static_cast<double>(index / 2) / static_cast<double>(size_ / 2);
    const double side = index % 2 ? 1 : -1;
    outputs[0].as<float>()[0] = static_cast<float>(side * turn * std::cos(6 * turn));
    outputs[0].as<float>()[1] = static_cast<float>(side * turn * std::sin(6 * turn));
    *outputs[1].as<std::int64_t>() = index % 2;
  }

 private:
  std::int64_t size_;
  std::vector<Field> fields_{{.name = "point", .shape = {2}},
                             {.name = "label", .dtype = DType::i64, .values = 2}};
};

class Network final : public Module {
 public:
  Network(Generator& draws, const std::shared_ptr<Device>& device) {
    body_ = add_module("body", std::make_shared<Linear>(2, 64, draws, device));
    neck_ = add_module("neck", std::make_shared<Linear>(64, 32, draws, device));
    head_ = add_module("head", std::make_shared<Linear>(32, 2, draws, device));
    freeze(*this, std::vector<std::string>{"body.*"});
  }
  Tensor forward(const Tensor& x) override { return (*head_)(tanh((*neck_)(tanh((*body_)(x * 4.0))))); }

 private:
  std::shared_ptr<Linear> body_, neck_, head_;
};

class FineTune final : public Task {
 public:
  std::string name() const override { return "finetune"; }
  Splits open(const DataRequest&) const override {
    return {std::make_shared<Spirals>(640), std::make_shared<Spirals>(64)};
  }
  std::unique_ptr<Module> build(std::span<const Field>, Generator& draws,
                                const std::shared_ptr<Device>& device) const override {
    return std::make_unique<Network>(draws, device);
  }
  std::vector<NamedGroup> parameter_groups() const override {
    return {{.names = "neck.*", .lr = 0.02}, {.names = "head.*", .lr = 0.2, .weight_decay = 1e-3}};
  }
  LrFactor lr_factor() const override {
    return [](const LrPoint& at) { return at.step < 8 ? (at.step + 1) / 8 : std::pow(0.95, at.epoch); };
  }
  Tensor loss(const Tensors& outputs, const BatchTensors& batch) const override {
    return cross_entropy(outputs[0], batch["label"]);
  }
  const Field* predicted_field(std::span<const Field> fields) const override {
    return find_field(fields, "label");
  }
};

int main(int argc, char** argv) { return train_main(argc, argv, FineTune()); }
