// A network as a chain of parts, each of which takes what the one before gives: what a pipeline's stages are
// cut from.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/nn/module.h"

namespace dtrain {

/// What a part does: a function of what comes from the part before, and, where it takes two arguments, of
/// what the network is fed beside its first input (a mask, where documents begin). That is the same for all
/// parts, which each may take what they need of it; no gradient goes there.
class PartFunction {
 public:
  PartFunction() = default;  ///< to be assigned to
  template <class F>
  requires(!std::same_as<std::remove_cvref_t<F>, PartFunction> &&
           (std::is_invocable_r_v<Tensor, const F&, const Tensor&> ||
            std::is_invocable_r_v<Tensor, const F&, const Tensor&, const Tensors&>))
      PartFunction(F function) {  // NOLINT(google-explicit-constructor): stands where a function does
    if constexpr (std::is_invocable_r_v<Tensor, const F&, const Tensor&>) {
      function_ = [function = std::move(function)](const Tensor& x, const Tensors&) { return function(x); };
    } else {
      function_ = std::move(function);
    }
  }
  Tensor operator()(const Tensor& x, const Tensors& beside = {}) const { return function_(x, beside); }

 private:
  std::function<Tensor(const Tensor& x, const Tensors& beside)> function_;
};

/// One part: the modules that it uses, by their dotted names in the network ("blocks.0"), and how. The
/// function holds what it needs, so that a part outlives the network.
struct LayerUnit {
  NamedModules modules;
  PartFunction forward;
};

/// A part that is one module, called.
inline LayerUnit layer_unit(std::string name, const std::shared_ptr<Module>& module) {
  return {{{std::move(name), module}}, [module](const Tensor& x) { return (*module)(x); }};
}

/// What the last of `parts` gives when the first one takes `x`.
inline Tensor through(std::span<const LayerUnit> parts, const Tensor& x, const Tensors& beside = {}) {
  Tensor y = x;
  for (const LayerUnit& part : parts) y = part.forward(y, beside);
  return y;
}

/// Of what a network is fed, all but its first input.
inline Tensors beside_first(const Tensors& inputs) {
  return inputs.empty() ? Tensors() : Tensors(inputs.begin() + 1, inputs.end());
}

/// A network that can be cut. All its parameters are in the modules of its parts, each in one, and its
/// forward() is that of its parts, one after the other.
class Chained {
 public:
  virtual ~Chained() = default;
  virtual std::vector<LayerUnit> chain() const = 0;
};

}  // namespace dtrain
