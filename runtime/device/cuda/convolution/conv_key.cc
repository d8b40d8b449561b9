#include "runtime/device/cuda/convolution/convolutions.h"

namespace dtrain::cuda {

std::size_t ConvKeyHash::operator()(const ConvKey& key) const noexcept {
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  const auto add = [&](std::int64_t value) {
    hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x100000001b3ULL;
    hash ^= hash >> 29;
  };
  add(static_cast<int>(key.pass) * 16 + static_cast<int>(key.dtype));
  for (int i = 0; i < 4; ++i) {
    add(key.input[i]);
    add(key.weight[i]);
    add(key.output[i]);
  }
  const Conv2dGeometry& g = key.geometry;
  for (const std::int64_t value :
       {g.stride_h, g.stride_w, g.pad_h, g.pad_w, g.dilation_h, g.dilation_w, g.groups})
    add(value);
  return hash;
}

std::string describe(const ConvKey& key) {
  const auto list = [](const std::int64_t(&extent)[4]) {
    std::string text = "[";
    for (int i = 0; i < 4; ++i) text += (i == 0 ? "" : ", ") + std::to_string(extent[i]);
    return text + "]";
  };
  const char* const pass = key.pass == ConvPass::forward          ? "forward"
                           : key.pass == ConvPass::backward_input ? "back to the input"
                                                                  : "back to the weight";
  std::string text = std::string("conv2d ") + pass + ", " + std::string(name_of(key.dtype)) + ", input " +
                     list(key.input) + ", weight " + list(key.weight);
  if (key.geometry.groups != 1) text += ", " + std::to_string(key.geometry.groups) + " groups";
  return text;
}

ConvKey make_conv_key(ConvPass pass, const Conv2dGeometry& geometry, const View& input, const View& weight,
                      const View& output) {
  ConvKey key;
  key.pass = pass;
  key.dtype = input.dtype;
  key.geometry = geometry;
  for (int i = 0; i < 4; ++i) {
    key.input[i] = input.shape[i];
    key.weight[i] = weight.shape[i];
    key.output[i] = output.shape[i];
  }
  return key;
}

}  // namespace dtrain::cuda
