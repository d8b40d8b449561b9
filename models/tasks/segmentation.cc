#include "models/tasks/segmentation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "models/vision/network.h"
#include "runtime/autograd/ops/losses.h"
#include "runtime/base/error.h"

namespace dtrain {

std::unique_ptr<Module> Segmentation::build(std::span<const Field> fields, Generator& generator,
                                            const std::shared_ptr<Device>& device) const {
  const Field* const mask = find_field(fields, kMaskField);
  if (mask == nullptr || mask->dtype != DType::i64 || mask->shape.rank() != 2 || mask->values < 1 ||
      mask->values > Confusion::kMostClasses) {
    throw UsageError(
        fmt::format("{}: expected samples with a field mask (int64 [H, W], of 1 to {} classes), as "
                    "folder:DIR,mask=ENDING,classes=N has them, got {}",
                    model_, Confusion::kMostClasses, describe(fields)));
  }
  const Field& image = dtrain::input_field(*this, fields);
  const NetworkInput input = network_input(image, mask->values);
  if (mask->shape != Dims{input.height, input.width}) {
    throw UsageError(fmt::format("{}: expected an image and a mask of the same height and width, got {}",
                                 model_, describe(fields)));
  }
  return make_network(model_, input, generator, device);
}

Tensor Segmentation::loss(const Tensors& outputs, const BatchTensors& batch) const {
  return cross_entropy(outputs.front(), batch[kMaskField], LossReduction::mean, -1);
}

double Segmentation::units(const Batch& batch) const {
  const View& mask = batch[kMaskField];
  const auto* const begin = mask.as<std::int64_t>();
  return static_cast<double>(
      std::count_if(begin, begin + mask.numel(), [](std::int64_t value) { return value >= 0; }));
}

std::vector<double> intersections_over_unions(const Confusion& confusion) {
  const auto classes = static_cast<std::size_t>(confusion.classes);
  std::vector<double> shares;
  for (std::size_t c = 0; c < classes; ++c) {
    std::int64_t labelled = 0, predicted = 0;
    for (std::size_t other = 0; other < classes; ++other) {
      labelled += confusion.counts[c * classes + other];
      predicted += confusion.counts[other * classes + c];
    }
    const std::int64_t both = confusion.counts[c * classes + c], either = labelled + predicted - both;
    shares.push_back(either == 0 ? std::numeric_limits<double>::quiet_NaN()
                                 : static_cast<double>(both) / static_cast<double>(either));
  }
  return shares;
}

void Segmentation::add_confusion(const Confusion& confusion, Evaluation& found) const {
  double sum = 0, present = 0;
  for (const double share : intersections_over_unions(confusion)) {
    if (std::isnan(share)) continue;
    sum += share;
    ++present;
  }
  double right = 0, all = 0;
  for (std::size_t i = 0; i < confusion.counts.size(); ++i) {
    const auto count = static_cast<double>(confusion.counts[i]);
    all += count;
    if (i % static_cast<std::size_t>(confusion.classes + 1) == 0) right += count;
  }
  found.metrics.emplace_back("mean_iou", sum / present);
  found.metrics.emplace_back("pixel_accuracy", right / all);
}

}  // namespace dtrain
