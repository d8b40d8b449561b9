// A network, a data set and a loss of one's own: points of two spirals are told apart. The program has every
// option of `dtrain train`, and runs alone, under dtrain-launch, mpirun or srun:
//
//     dtrain-launch --nproc_per_node=2 build/own_model --epochs 60 --lr 0.5 --momentum 0.9
#include <dtrain/dtrain.h>
#include <cmath>

using namespace dtrain;

/// Sample i lies on one of two spirals that turn around each other, a little beside it.
class Spirals final : public Source {
 public:
  explicit Spirals(std::int64_t size) : size_(size) {}
  std::string name() const override { return "two spirals"; }
  std::int64_t size() const noexcept override { return size_; }
  std::span<const Field> fields() const noexcept override { return fields_; }
  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator& generator) const override {
    const float turn = static_cast<float>(index / 2) / static_cast<float>(size_ / 2);
    const float side = index % 2 ? 1.0F : -1.0F, angle = 6 * turn + generator.uniform(-0.1F, 0.1F);
    outputs[0].as<float>()[0] = side * turn * std::cos(angle);
    outputs[0].as<float>()[1] = side * turn * std::sin(angle);
    *outputs[1].as<float>() = side;
  }

 private:
  std::int64_t size_;
  std::vector<Field> fields_{{.name = "point", .shape = {2}}, {.name = "side"}};
};

class Network final : public Module {
 public:
  Network(Generator& generator, const std::shared_ptr<Device>& device)
      : hidden_(add_module<Linear>("hidden", 2, 64, generator, device)),
        output_(add_module<Linear>("output", 64, 1, generator, device)) {}
  Tensor forward(const Tensor& x) override { return output_(tanh(hidden_(x * 4.0))); }

 private:
  Linear &hidden_, &output_;
};

class TellApart final : public Task {
 public:
  std::string name() const override { return "spirals"; }
  Splits open(const DataRequest&) const override {
    return {std::make_shared<Spirals>(2000), std::make_shared<Spirals>(500)};
  }
  std::unique_ptr<Module> build(std::span<const Field>, Generator& generator,
                                const std::shared_ptr<Device>& device) const override {
    return std::make_unique<Network>(generator, device);
  }
  Tensor loss(const Tensors& outputs, const BatchTensors& batch) const override {  // hinge
    return mean(relu(-(outputs[0].flatten() * batch["side"]) + 1.0));
  }
};

int main(int argc, char** argv) { return train_main(argc, argv, TellApart()); }
