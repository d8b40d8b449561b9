// "Concise Implementation for Multiple GPUs" (Dive into Deep Learning): a ResNet-18 for small pictures, on
// one device or several. The lesson's loop is train_main's:
//
//     build/lesson_concise --batch-size 256 --lr 0.1 --epochs 10
//     build/lesson_concise --devices cuda:0,cuda:1 --batch-size 512 --lr 0.2 --epochs 10
#include <dtrain/dtrain.h>

using namespace dtrain;

class Residual final : public Module {
 public:
  Residual(std::int64_t in, std::int64_t out, std::int64_t stride, Generator& draws,
           const std::shared_ptr<Device>& device)
      : conv1_(add_module<Conv2d>(
            "conv1", in, out, Conv2dSettings{.kernel = 3, .stride = stride, .padding = 1}, draws, device)),
        conv2_(
            add_module<Conv2d>("conv2", out, out, Conv2dSettings{.kernel = 3, .padding = 1}, draws, device)),
        conv3_(in == out && stride == 1
                   ? nullptr
                   : &add_module<Conv2d>("conv3", in, out, Conv2dSettings{.stride = stride}, draws, device)),
        bn1_(add_module<BatchNorm2d>("bn1", out, device)),
        bn2_(add_module<BatchNorm2d>("bn2", out, device)) {}
  Tensor forward(const Tensor& x) override {
    const Tensor y = bn2_(conv2_(relu(bn1_(conv1_(x)))));
    return relu(y + (conv3_ ? (*conv3_)(x) : x));
  }

 private:
  Conv2d &conv1_, &conv2_, *conv3_;
  BatchNorm2d &bn1_, &bn2_;
};

std::unique_ptr<Module> resnet18(std::int64_t channels, std::int64_t classes, Generator& draws,
                                 const std::shared_ptr<Device>& device) {
  std::vector<std::shared_ptr<Module>> net = {
      std::make_shared<Conv2d>(channels, 64, Conv2dSettings{.kernel = 3, .padding = 1}, draws, device),
      std::make_shared<BatchNorm2d>(64, device), std::make_shared<ReLU>()};
  std::int64_t in = 64;
  for (const std::int64_t out : {64, 128, 256, 512}) {
    net.push_back(std::make_shared<Residual>(in, out, in == out ? 1 : 2, draws, device));
    net.push_back(std::make_shared<Residual>(out, out, 1, draws, device));
    in = out;
  }
  net.push_back(std::make_shared<AdaptiveAvgPool2d>(1, 1));
  net.push_back(std::make_shared<Flatten>());
  net.push_back(std::make_shared<Linear>(512, classes, draws, device));
  return std::make_unique<Sequential>(net);
}

class Concise final : public Task {
 public:
  std::string name() const override { return "resnet18"; }
  std::unique_ptr<Module> build(std::span<const Field> fields, Generator& draws,
                                const std::shared_ptr<Device>& device) const override {
    auto net = resnet18(fields[0].shape[0], fields[1].values, draws, device);
    net->apply([&](Module& module) {
      if (auto* const linear = dynamic_cast<Linear*>(&module))
        init::normal_(linear->weight(), 0, 0.01, draws);
      if (auto* const conv = dynamic_cast<Conv2d*>(&module)) init::normal_(conv->weight(), 0, 0.01, draws);
    });
    return net;
  }
  Tensor loss(const Tensors& outputs, const BatchTensors& batch) const override {
    return cross_entropy(outputs[0], batch["label"]);
  }
};

int main(int argc, char** argv) { return train_main(argc, argv, Concise()); }
