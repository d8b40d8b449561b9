#include "training/options/optimizer_config.h"

#include <cmath>
#include <sstream>
#include <type_traits>
#include <utility>

#include "runtime/nn/trainable.h"
#include "training/options/train_flags.h"

namespace dtrain {
namespace {

template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

SgdOptions read_sgd(const TrainFlags& flags) {
  return {.lr = flags.lr.value_or(0.1),
          .momentum = flags.momentum,
          .dampening = flags.dampening,
          .weight_decay = flags.weight_decay.value_or(0),
          .nesterov = flags.nesterov};
}

struct Betas {
  double first = 0, second = 0;
};

/// Nothing: the rule's own.
std::optional<Betas> read_betas(const Options& options) {
  if (!options.has("betas")) return std::nullopt;
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

/// AdamOptions, AdamWOptions and LambOptions.
template <class Moments>
Moments read_moments(const TrainFlags& flags, const std::optional<Betas>& betas) {
  const Moments defaults;
  return {.lr = flags.lr.value_or(defaults.lr),
          .beta1 = betas ? betas->first : defaults.beta1,
          .beta2 = betas ? betas->second : defaults.beta2,
          .eps = flags.eps.value_or(defaults.eps),
          .weight_decay = flags.weight_decay.value_or(defaults.weight_decay)};
}

RmsPropOptions read_rmsprop(const TrainFlags& flags) {
  const RmsPropOptions defaults;
  return {.lr = flags.lr.value_or(defaults.lr),
          .alpha = flags.alpha,
          .eps = flags.eps.value_or(defaults.eps),
          .weight_decay = flags.weight_decay.value_or(defaults.weight_decay),
          .momentum = flags.momentum,
          .centered = flags.centered};
}

AdagradOptions read_adagrad(const TrainFlags& flags) {
  const AdagradOptions defaults;
  return {.lr = flags.lr.value_or(defaults.lr),
          .lr_decay = flags.lr_decay,
          .weight_decay = flags.weight_decay.value_or(defaults.weight_decay),
          .initial_accumulator_value = flags.initial_accumulator,
          .eps = flags.eps.value_or(defaults.eps)};
}

LionOptions read_lion(const TrainFlags& flags, const std::optional<Betas>& betas) {
  const LionOptions defaults;
  return {.lr = flags.lr.value_or(defaults.lr),
          .beta1 = betas ? betas->first : defaults.beta1,
          .beta2 = betas ? betas->second : defaults.beta2,
          .weight_decay = flags.weight_decay.value_or(defaults.weight_decay)};
}

LarsOptions read_lars(const TrainFlags& flags) {
  const LarsOptions defaults;
  return {.lr = flags.lr.value_or(defaults.lr),
          .momentum = flags.momentum,
          .weight_decay = flags.weight_decay.value_or(defaults.weight_decay),
          .trust = flags.trust};
}

MuonOptions read_muon(const Options& options, const TrainFlags& flags, const std::optional<Betas>& betas) {
  MuonOptions read;
  read.lr = flags.lr.value_or(read.lr);
  read.weight_decay = flags.weight_decay.value_or(read.weight_decay);
  if (options.at("momentum").source != "default") read.momentum = flags.momentum;
  const std::string& scale = options.text("muon-scale");
  read.scale = scale == "original"             ? MuonScale::original
               : scale == "spectral-unclamped" ? MuonScale::spectral_unclamped
                                               : MuonScale::match_rms_adamw;
  read.beta1 = betas ? betas->first : read.beta1;
  read.beta2 = betas ? betas->second : read.beta2;
  read.adam_eps = flags.eps.value_or(read.adam_eps);
  return read;
}

OptimizerOptions read_rule(const Options& options, const TrainFlags& flags) {
  const std::string& name = options.text("optimizer");
  const std::optional<Betas> betas = read_betas(options);  // refused whichever optimizer they are for
  if (name == "adam") return read_moments<AdamOptions>(flags, betas);
  if (name == "adamw") return read_moments<AdamWOptions>(flags, betas);
  if (name == "lamb") return read_moments<LambOptions>(flags, betas);
  if (name == "rmsprop") return read_rmsprop(flags);
  if (name == "adagrad") return read_adagrad(flags);
  if (name == "lion") return read_lion(flags, betas);
  if (name == "lars") return read_lars(flags);
  if (name == "muon") return read_muon(options, flags, betas);
  return read_sgd(flags);
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
struct OptimizerOf<LionOptions> {
  using Type = Lion;
};
template <>
struct OptimizerOf<LarsOptions> {
  using Type = Lars;
};
template <>
struct OptimizerOf<LambOptions> {
  using Type = Lamb;
};

template <>
struct OptimizerOf<MuonOptions> {
  using Type = Muon;
};

template <class Rule>
std::unique_ptr<Optimizer> make(const Rule& rule, const OptimizerConfig& config,
                                const NamedTensors& parameters, const ParameterKinds& kinds,
                                const OwnOptionsByName& own) {
  using Kind = typename OptimizerOf<Rule>::Type;
  std::vector<ParameterGroup<Rule>> groups;
  if constexpr (std::is_same_v<Rule, MuonOptions>) {
    groups = muon_groups(parameters, kinds.outer, kinds.vectors, rule);
  } else if constexpr (requires { rule.adapts; }) {
    groups = layerwise_groups(parameters, kinds.vectors, rule);
  } else if (config.decays_vectors || rule.weight_decay == 0) {
    groups = {{parameters, rule}};
  } else {
    groups = decay_groups(parameters, kinds.vectors, rule);
  }
  return std::make_unique<Kind>(own.empty() ? groups : split_groups(groups, own));
}

/// "head.*=0.1,*.bias=0.02" of option `name`, each value times `scale`.
std::vector<NamedGroup> read_groups(const Options& options, const std::string& name,
                                    std::optional<double> NamedGroup::*field, double scale) {
  std::vector<NamedGroup> groups;
  if (!options.has(name)) return groups;
  const std::string expected = "names or patterns with a number of at least 0 each, like head.*=0.1,*.bias=0";
  std::istringstream text(options.text(name));
  for (std::string part; std::getline(text, part, ',');) {
    const auto equals = part.rfind('=');
    const auto value = equals == std::string::npos ? std::nullopt : parse_real(part.substr(equals + 1));
    if (!value || !(*value >= 0) || !std::isfinite(*value) || equals == 0) options.refuse(name, expected);
    groups.push_back({.names = part.substr(0, equals)});
    groups.back().*field = *value * scale;
  }
  if (groups.empty()) options.refuse(name, expected);
  return groups;
}

}  // namespace

std::string_view name_of(const OptimizerOptions& options) noexcept {
  return std::visit(
      Overloaded{[](const SgdOptions&) { return "sgd"; }, [](const AdamOptions&) { return "adam"; },
                 [](const AdamWOptions&) { return "adamw"; }, [](const RmsPropOptions&) { return "rmsprop"; },
                 [](const AdagradOptions&) { return "adagrad"; }, [](const LionOptions&) { return "lion"; },
                 [](const LarsOptions&) { return "lars"; }, [](const LambOptions&) { return "lamb"; },
                 [](const MuonOptions&) { return "muon"; }},
      options);
}

bool is_layerwise(const OptimizerOptions& options) noexcept {
  return std::holds_alternative<LarsOptions>(options) || std::holds_alternative<LambOptions>(options) ||
         std::holds_alternative<MuonOptions>(options);
}

double lr_of(const OptimizerOptions& options) noexcept {
  return std::visit([](const auto& rule) { return rule.lr; }, options);
}

void set_lr(OptimizerOptions& options, double lr) noexcept {
  std::visit([lr](auto& rule) { rule.lr = lr; }, options);
}

int copies_of_parameters(const OptimizerConfig& config) noexcept {
  const int copies =
      std::visit(Overloaded{[](const SgdOptions& rule) { return rule.momentum > 0 ? 2 : 1; },
                            [](const AdamOptions&) { return 3; }, [](const AdamWOptions&) { return 3; },
                            [](const RmsPropOptions& rule) {
                              return 2 + (rule.momentum > 0 ? 1 : 0) + (rule.centered ? 1 : 0);
                            },
                            [](const AdagradOptions&) { return 2; }, [](const LionOptions&) { return 2; },
                            [](const LarsOptions&) { return 2; }, [](const LambOptions&) { return 3; },
                            [](const MuonOptions&) { return 3; }},  // of what AdamW takes
                 config.rule);
  return copies + (config.average ? 1 : 0);
}

OptimizerConfig read_optimizer(const Options& options, const TrainFlags& flags, double lr_scale) {
  OptimizerConfig config;
  config.rule = read_rule(options, flags);
  set_lr(config.rule, lr_of(config.rule) * lr_scale);
  config.groups = read_groups(options, "lr-of", &NamedGroup::lr, lr_scale);
  for (NamedGroup& group : read_groups(options, "weight-decay-of", &NamedGroup::weight_decay, 1))
    config.groups.push_back(std::move(group));
  if (options.has("adamw-for")) {
    std::istringstream text(options.text("adamw-for"));
    for (std::string pattern; std::getline(text, pattern, ',');) {
      if (pattern.empty()) options.refuse("adamw-for", "names or patterns like embedding.*,head.*");
      config.adamw_for.push_back(pattern);
    }
  }
  config.decays_vectors = options.text("weight-decay-on") == "all";
  config.limits = {.norm = flags.clip_grad_norm, .value = flags.clip_grad_value};
  if (flags.ema || flags.swa_from) config.average = AverageOptions{.decay = flags.ema};
  return config;
}

ParameterKinds kinds_of(const OptimizerConfig& config, const Module& network) {
  ParameterKinds kinds{.vectors = names_of_vectors(network.named_parameters())};
  if (!std::holds_alternative<MuonOptions>(config.rule)) return kinds;
  if (config.adamw_for.empty()) {
    kinds.outer = names_of_outer_parameters(network);
    return kinds;
  }
  const NamedTensors all = parameters_by_all_names(network);
  for (const std::string& pattern : config.adamw_for) {
    for (std::string& name : names_that_match("--adamw-for", pattern, all))
      kinds.outer.insert(std::move(name));
  }
  return kinds;
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, const NamedTensors& parameters,
                                          const ParameterKinds& kinds, const OwnOptionsByName& own) {
  return std::visit([&](const auto& rule) { return make(rule, config, parameters, kinds, own); },
                    config.rule);
}

}  // namespace dtrain
