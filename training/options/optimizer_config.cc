#include "training/options/optimizer_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr double kMaxReal = 1e30;

template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

/// What the given option says, or what the optimizer's own default is.
double real_or(const Options& options, const std::string& name, double most, double otherwise) {
  return options.has(name) ? options.real(name, 0, most) : otherwise;
}

SgdOptions read_sgd(const Options& options) {
  const SgdOptions sgd{.lr = real_or(options, "lr", kMaxReal, 0.1),
                       .momentum = options.real("momentum", 0, kMaxReal),
                       .dampening = options.real("dampening", 0, 1),
                       .weight_decay = real_or(options, "weight-decay", kMaxReal, 0),
                       .nesterov = options.enabled("nesterov")};
  if (sgd.nesterov && (sgd.momentum == 0 || sgd.dampening != 0))
    throw UsageError("--nesterov: expected --momentum above 0 and --dampening 0");
  return sgd;
}

struct Betas {
  double first = 0, second = 0;
};

Betas read_betas(const Options& options) {
  const std::string& text = options.text("betas");
  const auto comma = text.find(',');
  const double none = -1;
  const Betas betas{parse_real(text.substr(0, comma)).value_or(none),
                    comma == std::string::npos ? none : parse_real(text.substr(comma + 1)).value_or(none)};
  for (const double beta : {betas.first, betas.second}) {
    if (!(beta >= 0 && beta < 1)) options.refuse("betas", "two numbers in [0, 1) like 0.9,0.999");
  }
  return betas;
}

/// AdamOptions and AdamWOptions.
template <class Moments>
Moments read_moments(const Options& options) {
  const Betas betas = read_betas(options);
  const Moments defaults;
  return {.lr = real_or(options, "lr", kMaxReal, defaults.lr),
          .beta1 = betas.first,
          .beta2 = betas.second,
          .eps = real_or(options, "eps", 1, defaults.eps),
          .weight_decay = real_or(options, "weight-decay", kMaxReal, defaults.weight_decay)};
}

RmsPropOptions read_rmsprop(const Options& options) {
  const RmsPropOptions defaults;
  return {.lr = real_or(options, "lr", kMaxReal, defaults.lr),
          .alpha = options.real("alpha", 0, 1),
          .eps = real_or(options, "eps", 1, defaults.eps),
          .weight_decay = real_or(options, "weight-decay", kMaxReal, defaults.weight_decay),
          .momentum = options.real("momentum", 0, kMaxReal),
          .centered = options.enabled("centered")};
}

AdagradOptions read_adagrad(const Options& options) {
  const AdagradOptions defaults;
  return {.lr = real_or(options, "lr", kMaxReal, defaults.lr),
          .lr_decay = options.real("lr-decay", 0, kMaxReal),
          .weight_decay = real_or(options, "weight-decay", kMaxReal, defaults.weight_decay),
          .initial_accumulator_value = options.real("initial-accumulator", 0, kMaxReal),
          .eps = real_or(options, "eps", 1, defaults.eps)};
}

LarsOptions read_lars(const Options& options) {
  const LarsOptions defaults;
  return {.lr = real_or(options, "lr", kMaxReal, defaults.lr),
          .momentum = options.real("momentum", 0, kMaxReal),
          .weight_decay = real_or(options, "weight-decay", kMaxReal, defaults.weight_decay),
          .trust = options.real("trust", 0, kMaxReal)};
}

LambOptions read_lamb(const Options& options) {
  const Betas betas = read_betas(options);
  const LambOptions defaults;
  return {.lr = real_or(options, "lr", kMaxReal, defaults.lr),
          .beta1 = betas.first,
          .beta2 = betas.second,
          .eps = real_or(options, "eps", 1, defaults.eps),
          .weight_decay = real_or(options, "weight-decay", kMaxReal, defaults.weight_decay)};
}

/// All are read, so that a value out of range is refused whichever optimizer it is for.
OptimizerOptions read_rule(const Options& options) {
  const std::string& name =
      options.choice("optimizer", {"sgd", "adam", "adamw", "rmsprop", "adagrad", "lars", "lamb"});
  const OptimizerOptions all[] = {read_sgd(options),
                                  read_moments<AdamOptions>(options),
                                  read_moments<AdamWOptions>(options),
                                  read_rmsprop(options),
                                  read_adagrad(options),
                                  read_lars(options),
                                  read_lamb(options)};
  return *std::find_if(std::begin(all), std::end(all),
                       [&](const OptimizerOptions& rule) { return name_of(rule) == name; });
}

std::optional<double> limit(const Options& options, const std::string& name) {
  if (!options.has(name)) return std::nullopt;
  return options.real(name, 0, kMaxReal);
}

template <class Rule>
struct OptimizerOf;
template <>
struct OptimizerOf<SgdOptions> {
  using Type = Sgd;
};
template <>
struct OptimizerOf<AdamOptions> {
  using Type = Adam;
};
template <>
struct OptimizerOf<AdamWOptions> {
  using Type = AdamW;
};
template <>
struct OptimizerOf<RmsPropOptions> {
  using Type = RmsProp;
};
template <>
struct OptimizerOf<AdagradOptions> {
  using Type = Adagrad;
};
template <>
struct OptimizerOf<LarsOptions> {
  using Type = Lars;
};
template <>
struct OptimizerOf<LambOptions> {
  using Type = Lamb;
};

template <class Rule>
std::unique_ptr<Optimizer> make(const Rule& rule, const OptimizerConfig& recipe,
                                const NamedTensors& parameters, const std::set<std::string>& vectors) {
  using Kind = typename OptimizerOf<Rule>::Type;
  if constexpr (requires { rule.adapts; })
    return std::make_unique<Kind>(layerwise_groups(parameters, vectors, rule));
  if (recipe.decays_vectors || rule.weight_decay == 0) return std::make_unique<Kind>(parameters, rule);
  return std::make_unique<Kind>(decay_groups(parameters, vectors, rule));
}

}  // namespace

std::string_view name_of(const OptimizerOptions& options) noexcept {
  return std::visit(
      Overloaded{[](const SgdOptions&) { return "sgd"; }, [](const AdamOptions&) { return "adam"; },
                 [](const AdamWOptions&) { return "adamw"; }, [](const RmsPropOptions&) { return "rmsprop"; },
                 [](const AdagradOptions&) { return "adagrad"; }, [](const LarsOptions&) { return "lars"; },
                 [](const LambOptions&) { return "lamb"; }},
      options);
}

bool is_layerwise(const OptimizerOptions& options) noexcept {
  return std::holds_alternative<LarsOptions>(options) || std::holds_alternative<LambOptions>(options);
}

double lr_of(const OptimizerOptions& options) noexcept {
  return std::visit([](const auto& rule) { return rule.lr; }, options);
}

void set_lr(OptimizerOptions& options, double lr) noexcept {
  std::visit([lr](auto& rule) { rule.lr = lr; }, options);
}

int copies_of_parameters(const OptimizerOptions& options) noexcept {
  return std::visit(Overloaded{[](const SgdOptions& rule) { return rule.momentum > 0 ? 2 : 1; },
                               [](const AdamOptions&) { return 3; }, [](const AdamWOptions&) { return 3; },
                               [](const RmsPropOptions& rule) {
                                 return 2 + (rule.momentum > 0 ? 1 : 0) + (rule.centered ? 1 : 0);
                               },
                               [](const AdagradOptions&) { return 2; }, [](const LarsOptions&) { return 2; },
                               [](const LambOptions&) { return 3; }},
                    options);
}

OptimizerConfig read_optimizer(const Options& options, double lr_scale) {
  OptimizerConfig recipe;
  recipe.rule = read_rule(options);
  set_lr(recipe.rule, lr_of(recipe.rule) * lr_scale);
  recipe.decays_vectors = options.choice("weight-decay-on", {"all", "matrices"}) == "all";
  recipe.limits = {.norm = limit(options, "clip-grad-norm"), .value = limit(options, "clip-grad-value")};
  return recipe;
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& recipe, const NamedTensors& parameters,
                                          const std::set<std::string>& vectors) {
  return std::visit([&](const auto& rule) { return make(rule, recipe, parameters, vectors); }, recipe.rule);
}

}  // namespace dtrain
