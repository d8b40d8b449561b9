// Contrastive learning: of the pictures of all workers, each view has to find the other view of its own
// (SimCLR, Chen et al. 2020; the loss is CLIP's). Views go to the other workers, and gradients come back from
// them.
//
//     dtrain-launch --nproc_per_node=2 build/contrastive --epochs 20 --optimizer adamw --lr 0.003
#include <dtrain/dtrain.h>
#include <dtrain/runtime/autograd/ops/reductions.h>
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

class Encoder final : public MultiModule {
 public:
  Encoder(Generator& draws, const std::shared_ptr<Device>& device)
      : body_(add_module(
            "body", std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>{
                        std::make_shared<Conv2d>(1, 8, 3, draws, device), std::make_shared<ReLU>(),
                        std::make_shared<Flatten>(), std::make_shared<Linear>(288, 16, draws, device)}))) {}
  /// Two views [B, 1, 8, 8] → two embeddings [B, 16] of length 1.
  Tensors forward_all(const Tensors& views) override { return {embed(views[0]), embed(views[1])}; }

 private:
  Tensor embed(const Tensor& view) {
    const Tensor z = (*body_)(view);
    return z / norm(z, 2, {1}, true);
  }
  std::shared_ptr<Sequential> body_;
};

/// `from` [B, 16], which are rows `first` … of `to` [N, 16]: how badly each finds itself.
Tensor finds(const Tensor& from, const Tensor& to, std::int64_t first) {
  const Tensor labels = Tensor::arange(from.size(0), from.shared_device()) + first;
  return cross_entropy(matmul(from, to.transpose(0, 1)) / 0.2, labels);
}

class Contrast final : public Task {
 public:
  std::string name() const override { return "contrastive"; }
  Splits open(const DataRequest&) const override {
    return {std::make_shared<Waves>(640), std::make_shared<Waves>(64)};
  }
  std::unique_ptr<Module> build(std::span<const Field>, Generator& draws,
                                const std::shared_ptr<Device>& device) const override {
    return std::make_unique<Encoder>(draws, device);
  }
  Tensors inputs(const BatchTensors& batch) const override { return {batch["first"], batch["second"]}; }
  Tensor loss(const Tensors& z,
              const BatchTensors&) const override {  // in evaluation: each worker's batch alone
    return finds(z[0], z[1], 0) + finds(z[1], z[0], 0);
  }
  GroupLoss group_loss() const override {
    return [](const Tensors& z, const BatchTensors& batch, const TrainStep&, const RankGroup& group) {
      const std::int64_t first = group.communicator.rank() * batch.size();
      return finds(z[0], all_gather(z[1], 0, group, "second views"), first) +
             finds(z[1], all_gather(z[0], 0, group, "first views"), first);
    };
  }
};

int main(int argc, char** argv) { return train_main(argc, argv, Contrast()); }
