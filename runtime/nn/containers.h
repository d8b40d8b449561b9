// Modules made of modules. Their parts are visible through children(), in order, so that a strategy can give
// them to different devices.
#pragma once

#include "runtime/nn/chain.h"

namespace dtrain {

/// Modules applied one after the other, named "0", "1", … as in PyTorch, or by the names given. forward()
/// hands on one tensor, forward_all() all that a module gives.
class Sequential : public Module, public Chained {
 public:
  explicit Sequential(const std::vector<std::shared_ptr<Module>>& modules);
  explicit Sequential(const NamedModules& modules);
  Tensor forward(const Tensor& x) override;
  Tensors forward_all(const Tensors& inputs) override;
  /// A part for each module. Throws UsageError for a module with parameters that comes twice: it would be in
  /// two parts. The parts are of one input each, and throw UsageError where the network is fed more.
  std::vector<LayerUnit> chain() const override;
};

/// Modules kept under the names "0", "1", … for a network that calls them itself. Calling the list throws
/// UsageError.
class ModuleList : public Module {
 public:
  explicit ModuleList(const std::vector<std::shared_ptr<Module>>& modules = {});
  void append(const std::shared_ptr<Module>& module);
  std::size_t size() const noexcept { return children().size(); }
  /// Throws UsageError for an index outside.
  Module& operator[](std::size_t index) const;
  Tensor forward(const Tensor& x) override;
};

}  // namespace dtrain
