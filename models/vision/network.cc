#include "models/vision/network.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "models/vision/lenet.h"
#include "models/vision/mlp.h"
#include "models/vision/resnet.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"mlp", "lenet", "resnet18", "resnet50"};

}  // namespace

std::span<const std::string_view> network_names() { return kNames; }

std::unique_ptr<Module> make_network(std::string_view name, const NetworkInput& input, Generator& generator,
                                     const std::shared_ptr<Device>& device) {
  if (name == "mlp") return std::make_unique<Mlp>(input, generator, device);
  if (name == "lenet") return std::make_unique<LeNet>(input, generator, device);
  if (name == "resnet18") return std::make_unique<ResNet18>(input, generator, device);
  if (name == "resnet50") return std::make_unique<ResNet50>(input, generator, device);
  throw UsageError(fmt::format("--model: expected one of {}, got '{}'", fmt::join(kNames, ", "), name));
}

}  // namespace dtrain
