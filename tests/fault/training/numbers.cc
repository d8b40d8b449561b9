// A program whose numbers go wrong on demand, or whose samples differ in units: what built-in tasks show at
// extreme rates only.
#include "dtrain.h"

#include <limits>

#include "models/vision/network.h"

using namespace dtrain;

namespace {

constexpr std::int64_t kSamples = 64, kFeatures = 6;
constexpr OptionSpec kOptions[] = {
    {"break", "Network", "WHAT", "none",
     "none, gradient (finite loss, of sample 13), update (too large at --lr=1e30), data or test (x of "
     "sample 13)"},
    {"units", "Network", "WHICH", "all",
     "all, or some: samples with an even number count nothing, and have no mean"},
};

bool is_bad(std::int64_t index) { return index == 13; }

/// Samples x [6], y [], counts [] (1 or 0) and bad [] (1 or 0).
class Numbers final : public Source {
 public:
  Numbers(bool some, bool bad_data) : some_(some), bad_data_(bad_data) {}
  std::string name() const override { return "numbers"; }
  std::int64_t size() const noexcept override { return kSamples; }
  std::span<const Field> fields() const noexcept override { return fields_; }
  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator&) const override {
    for (std::int64_t i = 0; i < kFeatures; ++i)
      outputs[0].as<float>()[i] = static_cast<float>((index * 7 + i * 3) % 5) - 2;
    if (bad_data_ && is_bad(index)) outputs[0].as<float>()[2] = std::numeric_limits<float>::quiet_NaN();
    *outputs[1].as<float>() = static_cast<float>(index % 3);
    *outputs[2].as<float>() = some_ && index % 2 == 0 ? 0.0F : 1.0F;
    *outputs[3].as<float>() = is_bad(index) ? 1.0F : 0.0F;
  }

 private:
  bool some_, bad_data_;
  std::vector<Field> fields_{
      {.name = "x", .shape = {kFeatures}}, {.name = "y"}, {.name = "counts"}, {.name = "bad"}};
};

class Learn final : public Task {
 public:
  Learn(std::string broken, bool some) : broken_(std::move(broken)), some_(some) {}
  std::string name() const override { return "numbers"; }
  Splits open(const DataRequest&) const override {
    return {std::make_shared<Numbers>(some_, broken_ == "data"),
            std::make_shared<Numbers>(some_, broken_ == "test")};
  }
  std::unique_ptr<Module> build(std::span<const Field> fields, Generator& generator,
                                const std::shared_ptr<Device>& device) const override {
    return make_network("mlp", network_input(fields[0], 1), generator, device);
  }
  Tensor loss(const Tensors& outputs, const BatchTensors& batch) const override {
    const Tensor output = outputs[0].flatten();
    Tensor errors = square(output - batch["y"]);
    // The root of 0 is 0, and has no slope.
    if (broken_ == "gradient") errors = errors + sqrt(square(output) * 0.0 + (-batch["bad"] + 1.0));
    if (broken_ == "update") errors = errors * 1e15;
    return sum(errors * batch["counts"]) / sum(batch["counts"]);
  }
  double units(const Batch& batch) const override {
    double total = 0;
    for (std::int64_t i = 0; i < batch.size(); ++i) total += batch["counts"].as<float>()[i];
    return total;
  }
  bool units_vary(std::span<const Field> /*fields*/) const override { return some_; }

 private:
  std::string broken_;
  bool some_;
};

std::shared_ptr<const Task> make(const Options& options) {
  return std::make_shared<Learn>(options.choice("break", {"none", "gradient", "update", "data", "test"}),
                                 options.choice("units", {"all", "some"}) == "some");
}

}  // namespace

int main(int argc, char** argv) { return train_main(argc, argv, {.options = kOptions, .make_task = make}); }
