#include "models/vision/network.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "models/tabular/linear.h"
#include "models/vision/convnext.h"
#include "models/vision/fcn.h"
#include "models/vision/inception_resnet.h"
#include "models/vision/lenet.h"
#include "models/vision/mlp.h"
#include "models/vision/resnet.h"
#include "models/vision/video_resnet.h"
#include "models/vision/vit.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr std::array<std::string_view, 15> kNames = {
    "linear",    "mlp",      "lenet",         "resnet18",  "resnet18-imagenet",
    "resnet34",  "resnet50", "resnet101",     "resnet152", "inception-resnet-v2",
    "vit-small", "vit-base", "convnext-tiny", "r3d-18",    "fcn-resnet50"};
constexpr std::int64_t kMostColours = 4;

/// As many channels in the last place as images have, and more than that in the others.
bool looks_channels_last(const Dims& shape) {
  return shape[2] <= kMostColours && shape[0] > kMostColours && shape[1] > kMostColours;
}

}  // namespace

NetworkInput network_input(const Field& field, std::int64_t outputs) {
  Dims shape = field.shape;
  if (field.dtype != DType::f32 || (shape.rank() != 1 && shape.rank() != 3 && shape.rank() != 4)) {
    throw UsageError(
        fmt::format("network: expected float32 images [C, H, W], clips [T, C, H, W] or vectors [N], got {}",
                    field.to_string()));
  }
  if (shape.rank() == 1) return {shape[0], 1, 1, outputs, 0, field.mean, field.deviation, field.fill, {}, {}};
  if (shape.rank() == 4) {
    if (looks_channels_last({shape[1], shape[2], shape[3]})) {
      throw UsageError(
          fmt::format("network: expected clips [T, C, H, W], got {}, which looks like [T, H, W, C]; save "
                      "numpy.ascontiguousarray(a.transpose(0, 1, 4, 2, 3))",
                      field.to_string()));
    }
    return {shape[1], shape[2], shape[3], outputs, shape[0]};
  }
  if (looks_channels_last(shape)) {
    throw UsageError(
        fmt::format("network: expected images [C, H, W], got {}, which looks like [H, W, C]; save "
                    "numpy.ascontiguousarray(a.transpose(0, 3, 1, 2))",
                    field.to_string()));
  }
  return {shape[0], shape[1], shape[2], outputs};
}

std::span<const std::string_view> network_names() { return kNames; }

bool takes_clips(std::string_view name) noexcept { return name == "r3d-18"; }

bool labels_pixels(std::string_view name) noexcept { return name == "fcn-resnet50"; }

std::unique_ptr<Module> make_network(std::string_view name, const NetworkInput& input, Generator& generator,
                                     const std::shared_ptr<Device>& device) {
  const bool is_vector = input.height == 1 && input.width == 1;
  const ResNetDepth* const depth = resnet_depth(name);
  const ViTShape* const transformer = vit_shape(name);
  const bool takes_vectors = name == "linear" || name == "mlp";
  if (is_vector && !takes_vectors && std::ranges::find(kNames, name) != kNames.end()) {
    throw UsageError(fmt::format(
        "{}: expected images [C, H, W], got vectors of {} numbers; choose the model mlp or linear, "
        "which take them",
        name, input.channels));
  }
  if (std::ranges::find(kNames, name) != kNames.end() && takes_clips(name) != (input.frames > 0)) {
    throw UsageError(
        takes_clips(name)
            ? fmt::format("{}: expected clips [T, C, H, W], as folder:DIR,frames=16 has them, got images",
                          name)
            : fmt::format(
                  "{}: expected images [C, H, W], got clips; choose the model r3d-18, which takes them",
                  name));
  }
  if (name == "linear") return std::make_unique<LinearNetwork>(input, generator, device);
  if (name == "mlp") return std::make_unique<Mlp>(input, generator, device);
  if (name == "lenet") return std::make_unique<LeNet>(input, generator, device);
  if (name == "resnet18") return std::make_unique<ResNet18>(input, generator, device);
  if (depth != nullptr) return std::make_unique<ResNet>(*depth, input, generator, device);
  if (transformer != nullptr)
    return std::make_unique<VisionTransformer>(*transformer, input, generator, device);
  if (name == "inception-resnet-v2") return std::make_unique<InceptionResNetV2>(input, generator, device);
  if (name == "r3d-18") return std::make_unique<VideoResNet>(input, generator, device);
  if (name == "fcn-resnet50") return std::make_unique<FcnResNet50>(input, generator, device);
  if (name == "convnext-tiny") return std::make_unique<ConvNeXt>(input, generator, device);
  throw UsageError(fmt::format("model: expected one of {}, got '{}'", fmt::join(kNames, ", "), name));
}

}  // namespace dtrain
