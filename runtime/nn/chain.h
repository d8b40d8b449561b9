// A network as a chain of parts, each of which takes what the one before gives: what a pipeline's stages are
// cut from.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/nn/module.h"

namespace dtrain {

/// One part: the modules that it uses, by their dotted names in the network ("blocks.0"), and how. The
/// function holds what it needs, so that a part outlives the network.
struct LayerUnit {
  NamedModules modules;
  std::function<Tensor(const Tensor& x)> forward;
};

/// A part that is one module, called.
inline LayerUnit layer_unit(std::string name, const std::shared_ptr<Module>& module) {
  return {{{std::move(name), module}}, [module](const Tensor& x) { return (*module)(x); }};
}

/// What the last of `parts` gives when the first one takes `x`.
inline Tensor through(std::span<const LayerUnit> parts, const Tensor& x) {
  Tensor y = x;
  for (const LayerUnit& part : parts) y = part.forward(y);
  return y;
}

/// A network that can be cut. All its parameters are in the modules of its parts, each in one, and its
/// forward() is that of its parts, one after the other.
class Chained {
 public:
  virtual ~Chained() = default;
  virtual std::vector<LayerUnit> chain() const = 0;
};

}  // namespace dtrain
