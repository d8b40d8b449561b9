// The built-in networks by name. Parameters are drawn from the generator in PyTorch's construction order.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/data/source.h"
#include "runtime/nn/module.h"

namespace dtrain {

/// What a network is fed and must tell apart (or how many numbers it gives).
struct NetworkInput {
  std::int64_t channels = 1;
  std::int64_t height = 28;
  std::int64_t width = 28;
  std::int64_t classes = 10;
  std::int64_t frames = 0;                                     ///< of a clip; 0: images
  std::vector<float> mean = {}, deviation = {};                ///< as Field's, of a vector
  std::vector<float> fill = {};                                ///< as Field's, of a vector
  std::vector<float> output_mean = {}, output_deviation = {};  ///< as Field's, of the numbers to be given
};

/// For samples of `field`, images [C, H, W], clips [T, C, H, W] or vectors [N] (which count as N channels of
/// one pixel), and so many outputs. Throws UsageError for any other.
NetworkInput network_input(const Field& field, std::int64_t outputs);

/// Names that make_network knows.
std::span<const std::string_view> network_names();

/// Whether network `name` takes clips; the others take images, and do not.
bool takes_clips(std::string_view name) noexcept;

/// Whether network `name` gives logits for each pixel.
bool labels_pixels(std::string_view name) noexcept;

/// Builds network `name` for images [N, channels, height, width] (mlp, linear: or vectors) or clips [N,
/// frames, channels, height, width] → logits [N, classes], of those that label pixels [N, classes, height,
/// width]. Throws UsageError for an unknown name (with the known ones) or an input the network cannot take.
std::unique_ptr<Module> make_network(std::string_view name, const NetworkInput& input, Generator& generator,
                                     const std::shared_ptr<Device>& device);

}  // namespace dtrain
