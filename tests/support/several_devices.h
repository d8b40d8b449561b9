// Updates of parameters that lie on several devices: what must come out the same as on one.
#pragma once

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>
#include <vector>

#include "runtime/optim/adagrad.h"
#include "runtime/optim/adamw.h"
#include "runtime/optim/clip.h"
#include "runtime/optim/guard/grad_scaler.h"
#include "runtime/optim/layerwise.h"
#include "runtime/optim/rmsprop.h"
#include "runtime/optim/rules/lion.h"
#include "runtime/optim/sgd.h"

namespace dtrain::test {

using Devices = std::vector<std::shared_ptr<Device>>;

inline const std::map<std::string, OptimizerFactory>& every_optimizer() {
  static const std::map<std::string, OptimizerFactory> all = {
      {"sgd",
       [](const NamedTensors& p) {
         return std::make_unique<Sgd>(p, SgdOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01});
       }},
      {"adamw", [](const NamedTensors& p) { return std::make_unique<AdamW>(p, AdamWOptions{.lr = 0.1}); }},
      {"rmsprop",
       [](const NamedTensors& p) {
         return std::make_unique<RmsProp>(p, RmsPropOptions{.momentum = 0.9, .centered = true});
       }},
      {"adagrad",
       [](const NamedTensors& p) { return std::make_unique<Adagrad>(p, AdagradOptions{.lr_decay = 0.3}); }},
      {"lion",
       [](const NamedTensors& p) {
         return std::make_unique<Lion>(p, LionOptions{.lr = 0.1, .weight_decay = 0.1});
       }},
      {"lars",
       [](const NamedTensors& p) {
         return std::make_unique<Lars>(p, LarsOptions{.lr = 5, .weight_decay = 0.1});
       }},
      {"lamb",
       [](const NamedTensors& p) {
         return std::make_unique<Lamb>(p, LambOptions{.lr = 0.1, .weight_decay = 0.1});
       }},
  };
  return all;
}

using Values = std::map<std::string, std::vector<float>>;

/// Six updates of five parameters dealt out to `devices` in turn, with a scaled loss whose state is on the
/// `home`-th device, a limit on the norm that holds gradients back, and an overflow in the third step in one
/// parameter alone. Afterwards the parameters, the optimizer's state, and what the scaler counted.
inline Values after_updates(const OptimizerFactory& make, const Devices& devices, std::size_t home) {
  Generator generator(11);
  NamedTensors parameters;
  for (std::size_t i = 0; i < 5; ++i) {
    const Dims shape = {static_cast<std::int64_t>(3 + 40 * i)};
    parameters.emplace_back(std::string(1, static_cast<char>('a' + i)),
                            Tensor::randn(shape, generator, devices[i % devices.size()]));
    parameters.back().second.set_requires_grad(true);
  }
  const auto optimizer = make(parameters);
  GradScaler scaler(devices[home], {.initial_scale = 8, .growth_interval = 2});
  scaler.attach(*optimizer);
  for (int step = 0; step < 6; ++step) {
    std::vector<Tensor> gradients;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      Tensor& parameter = parameters[i].second;
      Tensor gradient = Tensor::randn(parameter.shape(), generator, parameter.shared_device());
      gradient.scale_in_place(8);
      if (step == 2 && i == 1) gradient.fill(std::numeric_limits<double>::infinity());
      parameter.set_grad(gradient);
      gradients.push_back(parameter.grad());
    }
    scaler.unscale(gradients);
    limit_gradients(gradients, {.norm = 1.5, .value = 2.0});
    optimizer->step();
    scaler.update();
  }
  Values values;
  for (const auto& [name, tensor] : parameters) values[name] = tensor.to_vector<float>();
  for (const auto& [name, tensor] : optimizer->named_state())
    values["state of " + name] = tensor.to(DType::f32).to_vector<float>();
  values["scale, skipped"] = {static_cast<float>(scaler.scale()), static_cast<float>(scaler.skipped())};
  return values;
}

/// Every kind of optimizer gives the bits on `devices` that it gives on `one`, wherever the scaler is.
inline void expect_the_bits_of_one(const Devices& devices, const std::shared_ptr<Device>& one) {
  for (const auto& [name, make] : every_optimizer()) {
    const Values expected = after_updates(make, {one}, 0);
    EXPECT_EQ(expected.at("scale, skipped").back(), 1) << name;
    for (std::size_t home = 0; home < devices.size(); ++home)
      EXPECT_EQ(after_updates(make, devices, home), expected) << name << ", home " << home;
  }
}

}  // namespace dtrain::test
