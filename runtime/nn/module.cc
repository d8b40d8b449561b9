// Registration, naming and state of modules.
#include "runtime/nn/module.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "runtime/autograd/recompute.h"
#include "runtime/base/error.h"
#include "runtime/nn/dropout.h"
#include "runtime/tensor/tracking.h"

namespace dtrain {
namespace {

/// What does not match between a module's state and the one to be loaded, as lines for one message.
class Mismatch {
 public:
  void missing(const std::string& name) { append(missing_, name); }
  void unexpected(const std::string& name) { append(unexpected_, name); }
  void shape(const std::string& name, const Tensor& expected, const Tensor& found) {
    append(shapes_,
           name + " (expected " + expected.shape().to_string() + ", got " + found.shape().to_string() + ")");
  }
  void twice(const std::string& name) { append(twice_, name); }

  void raise(bool strict) const {
    std::string text;
    if (strict && !missing_.empty()) text += "; missing: " + missing_;
    if (strict && !unexpected_.empty()) text += "; unexpected: " + unexpected_;
    if (!shapes_.empty()) text += "; wrong shape: " + shapes_;
    if (!twice_.empty()) text += "; given twice: " + twice_;
    if (!text.empty()) throw UsageError("load_state_dict: the state does not fit this module" + text);
  }

 private:
  static void append(std::string& list, const std::string& item) {
    list += (list.empty() ? "" : ", ") + item;
  }

  std::string missing_, unexpected_, shapes_, twice_;
};

/// Whether two names are of one tensor.
bool are_tied(const Tensor& a, const Tensor& b) {
  return a.numel() > 0 && a.shares_storage(b) && a.shape() == b.shape() && a.view().data == b.view().data;
}

thread_local ModuleWatch* module_watch = nullptr;

}  // namespace

ModuleWatch::ModuleWatch(std::function<void(Module& module)> made) : made_(std::move(made)) {
  module_watch = this;
}

ModuleWatch::~ModuleWatch() { module_watch = nullptr; }

void Module::check_name(std::string_view name) const {
  const auto same = [name](const auto& entry) { return entry.first == name; };
  const bool taken = std::any_of(parameters_.begin(), parameters_.end(), same) ||
                     std::any_of(buffers_.begin(), buffers_.end(), same) ||
                     std::any_of(children_.begin(), children_.end(), same);
  if (taken || name.empty() || name.find('.') != std::string_view::npos) {
    throw UsageError("module: expected a name that is new, not empty and has no dot, got \"" +
                     std::string(name) + "\"");
  }
}

Tensor Module::add_parameter(std::string_view name, Tensor value) {
  check_name(name);
  value.set_requires_grad(true);
  parameters_.emplace_back(name, value);
  return value;
}

Tensor Module::add_buffer(std::string_view name, Tensor value) {
  check_name(name);
  buffers_.emplace_back(name, value);
  return value;
}

void Module::add_child(std::string_view name, std::shared_ptr<Module> child) {
  check_name(name);
  if (child == nullptr) throw UsageError("module: child \"" + std::string(name) + "\" is null");
  children_.emplace_back(name, std::move(child));
  if (module_watch != nullptr) module_watch->made_(*children_.back().second);
}

void Module::collect(const std::string& prefix, bool parameters, bool buffers, NamedTensors& out) const {
  if (parameters) {
    for (const auto& [name, tensor] : parameters_) out.emplace_back(prefix + name, tensor);
  }
  if (buffers) {
    for (const auto& [name, tensor] : buffers_) out.emplace_back(prefix + name, tensor);
  }
  for (const auto& [name, child] : children_) child->collect(prefix + name + ".", parameters, buffers, out);
}

NamedTensors Module::named_parameters() const {
  NamedTensors all, result;
  collect("", true, false, all);
  std::unordered_set<const void*> seen;
  for (auto& named : all) {
    const void* const leaf = named.second.autograd_state().get();  // shared by all handles to it
    if (leaf == nullptr || seen.insert(leaf).second) result.push_back(std::move(named));
  }
  return result;
}

NamedTensors Module::named_buffers() const {
  NamedTensors result;
  collect("", false, true, result);
  return result;
}

NamedTensors Module::state_dict() const {
  NamedTensors result;
  collect("", true, true, result);
  for (auto& [name, tensor] : result) tensor = tensor.detach();
  return result;
}

void Module::load_state_dict(const NamedTensors& state, bool strict) {
  const NamedTensors here = state_dict();
  std::unordered_map<std::string, Tensor> own;
  for (const auto& [name, tensor] : here) own.emplace(name, tensor);
  std::unordered_map<std::string, Tensor> given;
  Mismatch mismatch;
  for (const auto& [name, tensor] : state) {
    if (!given.emplace(name, tensor).second) mismatch.twice(name);
    const auto target = own.find(name);
    if (target == own.end()) {
      mismatch.unexpected(name);
    } else if (target->second.shape() != tensor.shape()) {
      mismatch.shape(name, target->second, tensor);
    }
  }
  for (const auto& [name, tensor] : here) {
    const auto is_given = [&, tensor = tensor](const NamedTensor& other) {
      return given.contains(other.first) && are_tied(other.second, tensor);
    };
    if (!given.contains(name) && std::ranges::none_of(here, is_given)) mismatch.missing(name);
  }
  mismatch.raise(strict);
  const NoGrad no_grad;
  for (const auto& [name, target] : here) {
    const auto found = given.find(name);
    if (found != given.end()) Tensor(target).copy_from(found->second.to(target.shared_device()));
  }
}

std::int64_t Module::parameter_count() const {
  std::int64_t count = 0;
  for (const auto& [name, tensor] : named_parameters()) count += tensor.numel();
  return count;
}

void Module::zero_grad() {
  for (auto& [name, tensor] : named_parameters()) tensor.zero_grad();
}

void Module::train(bool training) {
  training_ = training;
  for (const auto& [name, child] : children_) child->train(training);
}

void Module::to(const std::shared_ptr<Device>& device) {
  if (device == nullptr) throw UsageError("module: expected a device to move to, got null");
  NamedTensors all;
  collect("", true, true, all);
  std::erase_if(all, [&](const NamedTensor& named) { return named.second.shared_device() == device; });
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [name, tensor] = all[i];
    check_movable("module.to(): " + name, tensor);
    for (std::size_t j = 0; j < i; ++j) {
      if (!tensor.shares_storage(all[j].second) || tensor.is_same(all[j].second)) continue;
      throw UsageError("module.to(): expected parameters and buffers with memory of their own, but \"" +
                       name + "\" and \"" + all[j].first +
                       "\" are views of one; tie them by registering one tensor twice");
    }
  }
  for (auto& [name, tensor] : all) tensor.move_to(device);
  visit([&device](Module& module) { module.on_move(device); });
}

void Module::visit(const std::function<void(Module&)>& visitor) {
  visitor(*this);
  for (const auto& [name, child] : children_) child->visit(visitor);
}

void Module::apply(const std::function<void(Module&)>& function) {
  for (const auto& [name, child] : children_) child->apply(function);
  function(*this);
}

Tensors Module::forward_all(const Tensors& inputs) {
  if (inputs.size() == 1) return {forward(inputs[0])};
  throw UsageError("module: expected one input, got " + std::to_string(inputs.size()));
}

Tensor Module::operator()(const Tensor& x) {
  Tensor result = recompute_ ? recomputed(*this, x) : forward(x);
  end_operation();
  return result;
}

Tensors Module::operator()(const Tensors& inputs) {
  Tensors results = recompute_ ? recomputed(*this, inputs) : forward_all(inputs);
  end_operation();
  return results;
}

void MultiModule::check_inputs(std::string_view module, const Tensors& inputs, std::size_t least,
                               std::size_t most) {
  const auto given = static_cast<std::size_t>(
      std::find_if(inputs.begin(), inputs.end(), [](const Tensor& input) { return !input.defined(); }) -
      inputs.begin());
  if (inputs.size() <= most && given >= least) return;
  throw UsageError(std::string(module) + ": expected " + std::to_string(least) + " to " +
                   std::to_string(most) + " inputs, got " + std::to_string(inputs.size()) +
                   (given < inputs.size() ? ", undefined from number " + std::to_string(given) + " on" : ""));
}

namespace {

std::vector<Tensor> parameters_of(const Module& module) {
  std::vector<Tensor> parameters;
  for (const auto& [name, tensor] : module.named_parameters()) parameters.push_back(tensor);
  return parameters;
}

/// The two runs of a recomputed module: in one mode, with the same numbers drawn.
class TwoRuns {
 public:
  explicit TwoRuns(Module& module) : module_(module), training_(module.is_training()) {
    module.visit([this](Module& part) {
      if (auto* const draws = dynamic_cast<KeyedDraws*>(&part)) {
        drawn_.emplace_back(draws, std::make_shared<KeyedDraws::Draws>());
      }
    });
  }

  template <class Forward>
  auto run(Forward forward) {
    if (module_.is_training() != training_) {
      throw UsageError(std::string("backward of recomputed: expected the module in ") +
                       (training_ ? "training" : "evaluation") +
                       " as in its forward pass, it was switched since; run backward first");
    }
    const Drawing drawing(*this);
    ++runs_;
    return forward(module_);
  }

 private:
  /// What draws numbers collects its draws, or repeat them, for as long as it lives.
  class Drawing {
   public:
    explicit Drawing(const TwoRuns& runs) : runs_(runs) {
      for (const auto& [module, draws] : runs.drawn_) {
        draws->repeats = runs.runs_ > 0;
        draws->next = 0;
        module->begin_run(draws);
      }
    }
    ~Drawing() {
      for (const auto& [module, draws] : runs_.drawn_) module->end_run();
    }
    Drawing(const Drawing&) = delete;
    Drawing& operator=(const Drawing&) = delete;

   private:
    const TwoRuns& runs_;
  };

  Module& module_;
  bool training_;
  int runs_ = 0;  ///< begun; backward may come several times
  std::vector<std::pair<KeyedDraws*, std::shared_ptr<KeyedDraws::Draws>>> drawn_;
};

}  // namespace

Tensor recomputed(Module& module, const Tensor& input) {
  const auto runs = std::make_shared<TwoRuns>(module);
  const auto forward = [runs](const Tensor& x) {
    return runs->run([&x](Module& part) { return part.forward(x); });
  };
  return recomputed(forward, input, parameters_of(module));
}

Tensors recomputed(Module& module, const Tensors& inputs) {
  const auto runs = std::make_shared<TwoRuns>(module);
  const TensorsFunction forward = [runs](const Tensors& x) {
    return runs->run([&x](Module& part) { return part.forward_all(x); });
  };
  return recomputed(forward, inputs, parameters_of(module));
}

int recompute_blocks(Module& network) {
  int count = 0;
  network.visit([&count](Module& module) {
    if (!module.is_block()) return;
    module.set_recompute();
    ++count;
  });
  return count;
}

}  // namespace dtrain
