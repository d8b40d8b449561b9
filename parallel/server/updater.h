// What a parameter server does with gradients: a function of the user's, or an optimizer.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "runtime/optim/clip.h"
#include "runtime/optim/optimizer.h"
#include "runtime/tensor/named_tensors.h"

namespace dtrain {

/// A key's gradient and what it is to change, both on the CPU, of one shape and dtype.
struct KeyUpdate {
  const std::string& key;
  const Tensor& pushed;  ///< undefined where no worker used the key: it is to be left alone
  Tensor value;          ///< shares the server's memory: write through it
};

/// Used by the server's thread alone.
class Updater {
 public:
  virtual ~Updater() = default;
  /// One update: of the keys of one push, or, where the server waits for all workers, of their average. `all`
  /// are the server's keys in the order of their init. What it throws ends the server.
  virtual void update(std::span<const KeyUpdate> updates, const NamedTensors& all, double rate) = 0;
  /// Everything but the values that decides the next update; empty where nothing does.
  virtual NamedTensors state() { return {}; }
  /// Takes over (by copy) what state() gave, before the first update. Throws UsageError for what does not
  /// fit.
  virtual void load_state(NamedTensors state);
};

/// A function of the user's, called for each key of which a gradient was pushed:
///
///     make_updater([](const std::string& key, const Tensor& pushed, Tensor& value, double rate) {
///       value.add_in_place(pushed, -rate);
///     });
using KeyFunction =
    std::function<void(const std::string& key, const Tensor& pushed, Tensor& value, double rate)>;
std::unique_ptr<Updater> make_updater(KeyFunction function);

/// An optimizer of all keys, made when the first update comes, of which each update is one step; all keys
/// must be pushed together. `rate` is its learning rate; `limits` go over the keys of this server.
std::unique_ptr<Updater> make_optimizer_updater(OptimizerFactory make, const GradientLimits& limits);

}  // namespace dtrain
