// Convolution by cuDNN over channels-last arrays: one plan (descriptors and algorithm) for each shape, found
// the first time it is met and kept. no_convolutions.cc stands in for it in builds without cuDNN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "runtime/device/cuda/context.h"

namespace dtrain::cuda {

enum class ConvPass { forward, backward_input, backward_weight };

/// What decides a plan. Plain data, tested without a GPU.
struct ConvKey {
  ConvPass pass = ConvPass::forward;
  DType dtype = DType::f32;
  std::int64_t input[4] = {};   ///< N, C, H, W
  std::int64_t weight[4] = {};  ///< O, C / groups, KH, KW
  std::int64_t output[4] = {};  ///< N, O, OH, OW
  Conv2dGeometry geometry;
  bool operator==(const ConvKey&) const = default;
};

struct ConvKeyHash {
  std::size_t operator()(const ConvKey& key) const noexcept;
};

/// "conv2d forward, bf16, input [8, 64, 14, 14], weight [64, 64, 3, 3]", for messages.
std::string describe(const ConvKey& key);

ConvKey make_conv_key(ConvPass pass, const Conv2dGeometry& geometry, const View& input, const View& weight,
                      const View& output);

/// Used by the device's thread only. All arrays are dense and channels-last (the weight as O, KH, KW, C), of
/// the key's dtype and shapes. Each call returns false, having queued nothing, where cuDNN has no
/// deterministic algorithm, and gives notice of that. Throws DeviceError.
class Convolutions {
 public:
  explicit Convolutions(const Context& context);
  ~Convolutions();

  /// Sets `finished` when bias and activation are in the output; else the caller adds them.
  bool forward(const ConvKey& key, const View& input, const View& weight, const View& bias,
               Activation activation, const View& output, bool& finished);
  bool backward_input(const ConvKey& key, const View& grad_output, const View& weight,
                      const View& grad_input);
  /// The same, added to what is in `grad_input`.
  bool add_backward_input(const ConvKey& key, const View& grad_output, const View& weight,
                          const View& grad_input);
  bool backward_weight(const ConvKey& key, const View& input, const View& grad_output,
                       const View& grad_weight);

 private:
  class Plans;
  std::unique_ptr<Plans> plans_;
};

}  // namespace dtrain::cuda
