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
