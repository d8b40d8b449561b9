// Several losses of one network: for each cell of a picture whether it has an object, and the object's box
// and class, as YOLO and RetinaNet have it. The mean is over objects, of which pictures have different
// numbers.
//
//     dtrain-launch --nproc_per_node=2 build/detector --epochs 20 --optimizer adamw --lr 0.003
#include <dtrain/dtrain.h>
#include <algorithm>
#include <numeric>

using namespace dtrain;

/// Sample i: a picture of 16 × 16 pixels with one or two rectangles, and what the 4 × 4 cells have to say.
class Rectangles final : public Source {
 public:
  explicit Rectangles(std::int64_t size) : size_(size) {}
  std::string name() const override { return "rectangles"; }
  std::int64_t size() const noexcept override { return size_; }
  std::span<const Field> fields() const noexcept override { return fields_; }
  void read(std::int64_t i, std::span<const View> outputs, KeyedGenerator&) const override {
    float *picture = outputs[0].as<float>(), *object = outputs[1].as<float>(), *box = outputs[2].as<float>();
    auto* label = outputs[3].as<std::int64_t>();
    std::fill_n(picture, 256, 0.0F), std::fill_n(object, 16, 0.0F), std::fill_n(box, 64, 0.0F);
    std::fill_n(label, 16, kNone);
    for (std::int64_t k = 0; k <= i % 2; ++k) {
      const std::int64_t w = 3 + (i + k) % 4, h = 3 + i / 4 % 4, kind = (i / 2 + k) % 3;
      const std::int64_t x = (5 * i + 9 * k) % (17 - w), y = (3 * i + 6 * k) % (17 - h);
      for (std::int64_t row = y; row < y + h; ++row)
        std::fill_n(picture + row * 16 + x, w, 0.5F * static_cast<float>(kind + 1));
      const std::int64_t cell = (y + h / 2) / 4 * 4 + (x + w / 2) / 4, corners[] = {x, y, w, h};
      object[cell] = 1;
      for (int c = 0; c < 4; ++c) box[c * 16 + cell] = static_cast<float>(corners[c]) / 16;
      label[cell] = kind;
    }
  }
  static constexpr std::int64_t kNone = -100;

 private:
  std::int64_t size_;
  std::vector<Field> fields_{{.name = "picture", .shape = {1, 16, 16}},
                             {.name = "object", .shape = {4, 4}},
                             {.name = "box", .shape = {4, 4, 4}},
                             {.name = "label", .dtype = DType::i64, .shape = {4, 4}}};
};

class Detect final : public Task {
 public:
  std::string name() const override { return "detector"; }
  Splits open(const DataRequest&) const override {
    return {std::make_shared<Rectangles>(640), std::make_shared<Rectangles>(64)};
  }
  /// [B, 1, 16, 16] → [B, 1 + 4 + 3, 4, 4]: object, box, class
  std::unique_ptr<Module> build(std::span<const Field>, Generator& draws,
                                const std::shared_ptr<Device>& device) const override {
    const auto conv = [&](int in, int out, KernelSize kernel, KernelSize padding) {
      return std::make_shared<Conv2d>(in, out, Conv2dSettings{.kernel = kernel, .padding = padding}, draws,
                                      device);
    };
    return std::make_unique<Sequential>(std::vector<std::shared_ptr<Module>>{
        conv(1, 16, 3, 1), std::make_shared<ReLU>(), std::make_shared<AvgPool2d>(2), conv(16, 32, 3, 1),
        std::make_shared<ReLU>(), std::make_shared<AvgPool2d>(2), conv(32, 8, 1, 0)});
  }
  double units(const Batch& batch) const override {
    const auto* object = batch["object"].as<float>();
    return std::accumulate(object, object + 16 * batch.size(), 0.0);
  }
  bool units_vary(std::span<const Field>) const override { return true; }
  Tensor loss(const Tensors& outputs, const BatchTensors& batch) const override {
    const Tensors losses = sums_of(outputs[0], batch);
    return (losses[0] + 5 * losses[1] + losses[2]) / sum(batch["object"]);
  }
  std::size_t sum_count() const override { return 5; }
  void add_up(const Tensors& outputs, const BatchTensors& batch, double units,
              std::span<double> sums) const override {
    Task::add_up(outputs, batch, units, sums);
    for (std::size_t k = 0; k < 3; ++k) sums[2 + k] += sums_of(outputs[0], batch)[k].item();
  }
  Evaluation evaluation(std::span<const double> sums, std::int64_t) const override {
    return {.loss = sums[0] / sums[1],
            .metrics = {{"object_loss", sums[2] / sums[1]},
                        {"box_loss", sums[3] / sums[1]},
                        {"class_loss", sums[4] / sums[1]}}};
  }

 private:
  /// Of objects, boxes and classes, over the batch.
  static Tensors sums_of(const Tensor& map, const BatchTensors& batch) {
    const Tensor& object = batch["object"];
    return {binary_cross_entropy_with_logits(map.select(1, 0), object, LossReduction::sum),
            smooth_l1_loss(map.slice(1, 1, 5) * object.unsqueeze(1), batch["box"], LossReduction::sum),
            cross_entropy(map.slice(1, 5, 8), batch["label"], LossReduction::sum, Rectangles::kNone)};
  }
};

int main(int argc, char** argv) { return train_main(argc, argv, Detect()); }
