// SGD and AdamW: five steps with fixed gradients, within 1e-6 of torch.optim.
#include <gtest/gtest.h>

#include <sstream>

#include "runtime/optim/adamw.h"
#include "runtime/optim/sgd.h"
#include "tests/parity/runtime/golden.h"

namespace dtrain {
namespace {

/// "adamw lr=0.01 betas=0.8,0.95" → an optimizer with these options.
std::unique_ptr<Optimizer> make_optimizer(const std::string& text, const NamedTensors& parameters) {
  std::istringstream words(text);
  std::string kind, word;
  words >> kind;
  SgdOptions sgd;
  AdamWOptions adamw;
  while (words >> word) {
    const std::string name = word.substr(0, word.find('='));
    const std::string value = word.find('=') == std::string::npos ? "" : word.substr(word.find('=') + 1);
    if (name == "lr") sgd.lr = adamw.lr = std::stod(value);
    if (name == "momentum") sgd.momentum = std::stod(value);
    if (name == "dampening") sgd.dampening = std::stod(value);
    if (name == "weight_decay") sgd.weight_decay = adamw.weight_decay = std::stod(value);
    if (name == "nesterov") sgd.nesterov = true;
    if (name == "eps") adamw.eps = std::stod(value);
    if (name == "betas") {
      adamw.beta1 = std::stod(value);
      adamw.beta2 = std::stod(value.substr(value.find(',') + 1));
    }
  }
  if (kind == "sgd") return std::make_unique<Sgd>(parameters, sgd);
  return std::make_unique<AdamW>(parameters, adamw);
}

TEST(OptimizerParity, StepsFollowPyTorch) {
  const auto device = make_device("cpu");
  const auto golden = test::load_golden();
  ASSERT_EQ(golden["optim"].size(), 5U);
  for (const auto& expected : golden["optim"]) {
    Tensor parameter = Tensor::from_data(expected["start"].get<std::vector<float>>(), {6}, device);
    parameter.set_requires_grad(true);
    const auto optimizer = make_optimizer(expected["optimizer"].get<std::string>(), {{"p", parameter}});
    for (std::size_t step = 0; step < expected["grads"].size(); ++step) {
      parameter.set_grad(Tensor::from_data(expected["grads"][step].get<std::vector<float>>(), {6}, device));
      optimizer->step();
      const auto after = parameter.to_vector<float>();
      const auto wanted = expected["after_each_step"][step].get<std::vector<float>>();
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_NEAR(after[i], wanted[i], 1e-6) << expected["optimizer"] << ", step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace dtrain
