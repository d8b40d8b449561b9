// What changes its arguments: optimizers' steps, loss scaling, masks, bytes that become numbers.
#include "runtime/nn/dropout.h"
#include "runtime/optim/adagrad.h"
#include "runtime/optim/adam.h"
#include "runtime/optim/adamw.h"
#include "runtime/optim/guard/grad_scaler.h"
#include "runtime/optim/rmsprop.h"
#include "runtime/optim/rules/lion.h"
#include "runtime/optim/rules/muon.h"
#include "runtime/optim/sgd.h"
#include "runtime/optim/weight_average.h"
#include "tests/operations/operations.h"

namespace dtrain::test {
namespace {

/// Steps with the gradients g0, g1, …, as far as there are any.
Results optimize(Optimizer& optimizer, const Case& c) {
  Tensor parameter = c.base("p");
  for (int step = 0; c.tensor("g" + std::to_string(step)).defined(); ++step) {
    parameter.set_grad(c.tensor("g" + std::to_string(step)));
    optimizer.step();
  }
  parameter.zero_grad();
  return {{"p", parameter.detach()}};
}

template <class Optimizer, class OptionsOf>
Operation optimizer(OptionsOf options_of) {
  const auto run = [options_of](const Case& c) {
    Optimizer optimizer({{"p", c.base("p")}}, options_of(c));
    return optimize(optimizer, c);
  };
  return {run, Kind::update};
}

double lr(const Case& c) { return c.number("lr", 0.1); }
double decay(const Case& c) { return c.number("weight_decay", 0); }

void add_optimizers(Table& table) {
  table["sgd"] = optimizer<Sgd>([](const Case& c) {
    return SgdOptions{.lr = lr(c),
                      .momentum = c.number("momentum", 0),
                      .dampening = c.number("dampening", 0),
                      .weight_decay = decay(c),
                      .nesterov = c.flag("nesterov")};
  });
  const auto adam_of = []<class Options>(const Case& c, Options) {
    return Options{.lr = lr(c),
                   .beta1 = c.number("beta1", 0.9),
                   .beta2 = c.number("beta2", 0.999),
                   .eps = c.number("eps", 1e-8),
                   .weight_decay = decay(c)};
  };
  table["adam"] = optimizer<Adam>([adam_of](const Case& c) { return adam_of(c, AdamOptions{}); });
  table["adamw"] = optimizer<AdamW>([adam_of](const Case& c) { return adam_of(c, AdamWOptions{}); });
  table["rmsprop"] = optimizer<RmsProp>([](const Case& c) {
    return RmsPropOptions{.lr = lr(c),
                          .alpha = c.number("alpha", 0.99),
                          .eps = c.number("eps", 1e-8),
                          .weight_decay = decay(c),
                          .momentum = c.number("momentum", 0),
                          .centered = c.flag("centered")};
  });
  table["lion"] = optimizer<Lion>([](const Case& c) {
    return LionOptions{.lr = lr(c),
                       .beta1 = c.number("beta1", 0.9),
                       .beta2 = c.number("beta2", 0.99),
                       .weight_decay = decay(c)};
  });
  table["muon"] = optimizer<Muon>([](const Case& c) {
    return MuonOptions{.lr = lr(c),
                       .weight_decay = decay(c),
                       .momentum = c.number("momentum", 0.95),
                       .nesterov = c.flag("nesterov", true),
                       .scale = static_cast<MuonScale>(c.integer("scale", 0)),
                       .adapts = c.flag("adapts", true)};
  });
  table["adagrad"] = optimizer<Adagrad>([](const Case& c) {
    return AdagradOptions{.lr = lr(c),
                          .lr_decay = c.number("lr_decay", 0),
                          .weight_decay = decay(c),
                          .initial_accumulator_value = c.number("initial", 0)};
  });
}

/// The average of what p is in turn: p, then g0, g1, …; a mean where `mean` is set.
Results average(const Case& c) {
  Tensor value = c.base("p").detach().clone();
  const bool mean = c.flag("mean", false);
  WeightAverage average({{"p", value}}, mean ? AverageOptions{} : AverageOptions{c.number("decay", 0.9)});
  const auto take = [&] { mean ? average.add() : average.update(); };
  take();
  for (int step = 0; c.tensor("g" + std::to_string(step)).defined(); ++step) {
    value.copy_from(c.tensor("g" + std::to_string(step)).detach());
    take();
  }
  return {{"p", average.named_state().front().second}};
}

/// Gradients that were scaled, divided again, and the scale of the step after: halved where one is not
/// finite.
Results unscale_case(const Case& c) {
  GradScaler scaler(c.device(), {.initial_scale = 1024, .growth_interval = 1});
  const std::vector<Tensor> gradients{c.tensor("x").clone(), c.tensor("z").clone()};
  scaler.unscale(gradients);
  scaler.update();
  return {{"y", gradients[0]}, {"z", gradients[1]}, {"scale", Tensor::full({}, scaler.scale(), c.device())}};
}

/// Whether a value is not finite, as 0 or 1, and the gradients as they were.
Results find_not_finite_case(const Case& c) {
  const Tensor found = Tensor::zeros({1}, c.device());
  const View values[] = {c.tensor("x").view(), c.tensor("z").view()};
  c.device()->kernels().find_not_finite(values, found.view());
  return y(found);
}

/// The mask of a step for some samples' parts of their rows. The numbers are dtrain's own.
Results dropout_mask_case(const Case& c) {
  const Tensor mask = Tensor::empty(c.dims("shape"), c.device());
  const MaskNumbers numbers{.seed = 5,
                            .layer = 2,
                            .step = c.tensor("step").view(),
                            .rows = c.tensor("rows").view(),
                            .first = c.integer("first", 0)};
  c.device()->kernels().dropout_mask(numbers, 0.75, mask.view());
  return y(mask);
}

/// Bytes become their quotients, which are float32 on every device.
Results pixels_case(const Case& c) {
  const Tensor bytes = c.tensor("x"), values = Tensor::empty(bytes.shape(), c.device());
  c.device()->kernels().affine(bytes.view(), 1.0 / 255, 0, values.view());
  return y(values);
}

}  // namespace

void add_updates(Table& table) {
  add_optimizers(table);
  table["weight_average"] = {average, Kind::update};
  table["unscale"] = {unscale_case, Kind::update};
  table["find_not_finite"] = {find_not_finite_case, Kind::update};
  table["dropout_mask"] = {dropout_mask_case, Kind::update};
  table["pixels"] = {pixels_case, Kind::update};
}

}  // namespace dtrain::test
