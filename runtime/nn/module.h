// Module: a function with parameters and buffers that have names, the same names as in PyTorch's state_dict.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/joining.h"
#include "runtime/tensor/named_tensors.h"

namespace dtrain {

class Module;
using NamedModules = std::vector<std::pair<std::string, std::shared_ptr<Module>>>;

/// Base of layers and networks. A network derives from it, registers its layers in its constructor with
/// add_module() in the order in which PyTorch would construct them, and chains them in forward(). Tensors
/// handed out share memory with the module. What takes or gives several tensors derives from MultiModule.
///
///     class Net : public Module {
///      public:
///       Net(Generator& generator, const std::shared_ptr<Device>& device)
///           : hidden_(add_module<Linear>("hidden", 784, 100, generator, device)),
///             out_(add_module<Linear>("out", 100, 10, generator, device)) {}
///       Tensor forward(const Tensor& x) override { return out_(relu(hidden_(x))); }
///
///      private:
///       Linear &hidden_, &out_;
///     };
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  virtual Tensor forward(const Tensor& x) = 0;
  /// forward() for code that does not know how many tensors the module takes: here the one there is. Throws
  /// UsageError for another number of inputs than the module has.
  virtual Tensors forward_all(const Tensors& inputs);
  /// forward(x) or forward_all(inputs), or recomputed() where set_recompute() asked for it.
  Tensor operator()(const Tensor& x);
  Tensors operator()(const Tensors& inputs);

  /// Every parameter with its dotted name ("conv1.weight"), own ones before those of the children, in
  /// construction order. One that has several names (tied weights) comes once, under the first.
  NamedTensors named_parameters() const;
  /// Tensors that belong to the state but have no gradient (running statistics), in the same order.
  NamedTensors named_buffers() const;
  /// Parameters and buffers, module by module.
  NamedTensors state_dict() const;
  /// Copies `state` into this module's tensors. Dtypes are converted; of tied weights one name is enough.
  /// With `strict`, throws UsageError that lists every missing and every unexpected name; a wrong shape is
  /// always an error. Nothing is changed when it throws.
  void load_state_dict(const NamedTensors& state, bool strict = true);

  /// Number of elements of all parameters.
  std::int64_t parameter_count() const;
  /// Drops every parameter's gradient.
  void zero_grad();
  /// Moves parameters, their gradients and buffers to `device`, here and in the children, as torch's
  /// module.to(device): they stay the same tensors (Tensor::move_to), so members of modules, handles and
  /// optimizers that have them see the moved ones; state_dict() of before does not. Throws UsageError, with
  /// nothing changed, for those that cannot move: divided ones, those whose gradients a strategy holds, and
  /// tensors of which one is a view of another.
  void to(const std::shared_ptr<Device>& device);
  /// Switches this module and its children between training and evaluation.
  void train(bool training = true);
  void eval() { train(false); }
  bool is_training() const noexcept { return training_; }
  /// Whether a call keeps for backward only its input (see recomputed()); not handed on to the children.
  void set_recompute(bool recompute = true) noexcept { recompute_ = recompute; }
  /// Whether recompute_blocks() makes this module compute its inside again: a block of a deep network, large
  /// enough that keeping only its input is worth it.
  bool is_block() const noexcept { return block_; }
  /// The modules registered here, in construction order.
  const NamedModules& children() const noexcept { return children_; }
  /// The parameters registered here, without the children's.
  const NamedTensors& own_parameters() const noexcept { return parameters_; }
  /// Calls `visitor` with this module, then with everything below it, in construction order.
  void visit(const std::function<void(Module&)>& visitor);
  /// The same from the leaves up, this module last: torch's apply(), whose order decides which random numbers
  /// each module gets.
  ///
  ///     network.apply([](Module& module) {
  ///       if (auto* const linear = dynamic_cast<Linear*>(&module)) init::xavier_uniform(linear->weight());
  ///     });
  void apply(const std::function<void(Module&)>& function);
  /// What print.h shows between the brackets of this module: "3, 64, kernel_size=(3, 3), stride=(1, 1)".
  virtual std::string extra_repr() const { return {}; }

 protected:
  /// For a constructor: this module is a block (is_block()).
  void mark_block() noexcept { block_ = true; }
  /// Makes `value` a parameter: it gets requires_grad. Names must be unique here and have no dot.
  Tensor add_parameter(std::string_view name, Tensor value);
  Tensor add_buffer(std::string_view name, Tensor value);
  template <class M>
  std::shared_ptr<M> add_module(std::string_view name, std::shared_ptr<M> module) {
    add_child(name, module);
    return module;
  }
  /// Makes the child as well, from what M's constructor takes; it lives as long as this module. A member may
  /// be made where it is declared (on default_device(), with numbers of default_generator()):
  ///
  ///     Linear& hidden_ = add_module<Linear>("hidden", 784, 100);
  template <class M, class... Args>
  requires std::constructible_from<M, Args...> M& add_module(std::string_view name, Args&&... args) {
    return *add_module(name, std::make_shared<M>(std::forward<Args>(args)...));
  }
  /// Called by to() when everything registered here has moved. A module that has other tensors, or that
  /// remembers a device, overrides it.
  virtual void on_move(const std::shared_ptr<Device>& /*device*/) {}

 private:
  void add_child(std::string_view name, std::shared_ptr<Module> child);
  void check_name(std::string_view name) const;
  void collect(const std::string& prefix, bool parameters, bool buffers, NamedTensors& out) const;

  NamedTensors parameters_;
  NamedTensors buffers_;
  NamedModules children_;
  bool training_ = true;
  bool recompute_ = false;
  bool block_ = false;
};

/// While it lives, `made` is called with each module of its thread as it is added to another one, below which
/// everything was before: a network can be worked on part by part while it is being built. One at a time.
class ModuleWatch {
 public:
  explicit ModuleWatch(std::function<void(Module& module)> made);
  ~ModuleWatch();
  ModuleWatch(const ModuleWatch&) = delete;
  ModuleWatch& operator=(const ModuleWatch&) = delete;

 private:
  friend class Module;
  std::function<void(Module& module)> made_;
};

/// Makes every block (Module::is_block) of `network` compute its inside again in backward instead of keeping
/// it; returns how many there are.
int recompute_blocks(Module& network);

/// Base of modules that take or give several tensors: an attention with its mask, a recurrent layer with its
/// state. Inputs that are optional may be left out at the end or be undefined.
class MultiModule : public Module {
 public:
  /// The first result of forward_all() of the one input, so that the module fits into a chain.
  Tensor forward(const Tensor& x) override { return forward_all({x}).front(); }
  Tensors forward_all(const Tensors& inputs) override = 0;

 protected:
  /// Throws UsageError naming `module` unless there are `least` to `most` inputs, the first `least` of them
  /// defined.
  static void check_inputs(std::string_view module, const Tensors& inputs, std::size_t least,
                           std::size_t most);
};

/// module.forward(input), computed once more in backward instead of kept: see runtime/autograd/recompute.h.
/// `module` is borrowed until backward is done. Backward throws UsageError when the module was switched
/// between training and evaluation meanwhile.
Tensor recomputed(Module& module, const Tensor& input);
/// The same of module.forward_all(inputs).
Tensors recomputed(Module& module, const Tensors& inputs);

}  // namespace dtrain
