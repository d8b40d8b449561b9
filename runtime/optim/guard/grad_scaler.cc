#include "runtime/optim/guard/grad_scaler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "runtime/base/options.h"

namespace dtrain {
namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& got) {
  throw UsageError("grad scaler: expected a usable number for \"" + name + "\", got " + got);
}

double entry(const std::map<std::string, std::string>& state, const std::string& name) {
  const auto found = state.find(name);
  if (found == state.end()) refuse(name, "none");
  const auto value = parse_real(found->second);
  if (!value || !std::isfinite(*value) || *value < 0) refuse(name, "\"" + found->second + "\"");
  return *value;
}

}  // namespace

GradScaler::GradScaler(const std::shared_ptr<Device>& device, const GradScalerOptions& options)
    : UpdateGuard(device),
      rule_{options.growth, options.backoff, options.growth_interval, options.least_scale} {
  if (!(options.initial_scale > 0) || !std::isfinite(options.initial_scale)) {
    refuse("initial_scale", std::to_string(options.initial_scale));
  }
  if (!(options.growth > 1)) refuse("growth", std::to_string(options.growth));
  if (!(options.backoff > 0) || options.backoff >= 1) refuse("backoff", std::to_string(options.backoff));
  if (options.growth_interval < 1) refuse("growth_interval", std::to_string(options.growth_interval));
  if (!(options.least_scale > 0) || options.least_scale > options.initial_scale)
    refuse("least_scale", std::to_string(options.least_scale));
  scale_ = Tensor::full({1}, options.initial_scale, device);
  tracker_ = Tensor::zeros({1}, device, DType::i64);
  skipped_ = Tensor::zeros({1}, device, DType::i64);
}

LossScaleState GradScaler::views() const {
  return {scale_.view(), tracker_.view(), found().view(), skipped_.view()};
}

void GradScaler::attach(Optimizer& optimizer) const { optimizer.set_gate(gate(), skipped_); }

Tensor GradScaler::scale_seed(double weight) const {
  const NoGrad no_grad;
  return mul(scale_, weight).reshape({});
}

void GradScaler::unscale(std::span<const Tensor> gradients) {
  look_at(gradients,
          [&](const std::shared_ptr<Device>& there, std::span<const View> views, const View& found) {
            there->kernels().unscale(views, scale_.to(there).view(), found);
          });
  for (const Tensor& gradient : gradients) {
    if (gradient.defined()) gradient.mark_modified();
  }
}

void GradScaler::update() {
  scale_.device().kernels().update_loss_scale(rule_, views());
  for (const Tensor* tensor : {&scale_, &tracker_, &skipped_}) tensor->mark_modified();
}

void GradScaler::report(const View& to) const {
  const auto element = [&](std::int64_t i) {
    return View{to.as<double>() + i * to.strides[0], DType::f64, {1}, {1}};
  };
  Kernels& kernels = scale_.device().kernels();
  kernels.copy(scale_.view(), element(0));
  kernels.affine(skipped_.view(), 1.0, static_cast<double>(skipped_before_), element(1));
}

double GradScaler::scale() const { return scale_.item(); }

std::int64_t GradScaler::tracker() const { return tracker_.to_vector<std::int64_t>()[0]; }

std::int64_t GradScaler::skipped() const { return skipped_before_ + skipped_.to_vector<std::int64_t>()[0]; }

std::map<std::string, std::string> GradScaler::state() const {
  return {{"scale", fmt::format("{}", scale())},
          {"tracker", std::to_string(tracker())},
          {"skipped", std::to_string(skipped())}};
}

void GradScaler::load_state(const std::map<std::string, std::string>& state) {
  const double scale = entry(state, "scale"), tracker = entry(state, "tracker");
  const double skipped = entry(state, "skipped");
  scale_.fill(std::max(scale, rule_.least));  // before there was a least one it could fall to 0
  tracker_.fill(tracker);
  skipped_before_ = static_cast<std::int64_t>(skipped);
}

}  // namespace dtrain
