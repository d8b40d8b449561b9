// How gradients become updates: the options of `dtrain train` about the optimizer, resolved and checked.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/base/options.h"
#include "runtime/nn/module.h"
#include "runtime/optim/adagrad.h"
#include "runtime/optim/adam.h"
#include "runtime/optim/adamw.h"
#include "runtime/optim/clip.h"
#include "runtime/optim/layerwise.h"
#include "runtime/optim/rmsprop.h"
#include "runtime/optim/rules/lion.h"
#include "runtime/optim/rules/muon.h"
#include "runtime/optim/sgd.h"
#include "runtime/optim/weight_average.h"
#include "training/options/named_groups.h"

namespace dtrain {

/// The rule that moves parameters, by its options.
using OptimizerOptions = std::variant<SgdOptions, AdamOptions, AdamWOptions, RmsPropOptions, AdagradOptions,
                                      LionOptions, LarsOptions, LambOptions, MuonOptions>;

/// "sgd", "adam", "adamw", "rmsprop", "adagrad", "lion", "lars", "lamb" or "muon"
std::string_view name_of(const OptimizerOptions& options) noexcept;
/// Whether the update of an element depends on the rest of its layer (LARS, LAMB, Muon): then parameters must
/// be whole.
bool is_layerwise(const OptimizerOptions& options) noexcept;
/// The learning rate that a run starts from.
double lr_of(const OptimizerOptions& options) noexcept;
void set_lr(OptimizerOptions& options, double lr) noexcept;
struct TrainFlags;

struct OptimizerConfig {
  OptimizerOptions rule;           ///< its learning rate: after --scale-lr
  std::vector<NamedGroup> groups;  ///< --lr-of, then --weight-decay-of; rates after --scale-lr
  bool decays_vectors = true;      ///< weight decay on biases and norms' weights too
  std::vector<std::string>
      adamw_for;  ///< patterns of what Muon leaves to AdamW; empty: names_of_outer_parameters()
  GradientLimits limits;
  std::optional<AverageOptions> average;  ///< of the weights; nothing: none
};

/// How many times the parameters' bytes weights, state and averages are together, once there is state.
int copies_of_parameters(const OptimizerConfig& config) noexcept;

/// What checked `options` and their `flags` say; `lr_scale` multiplies the learning rate. Throws UsageError
/// naming the option.
OptimizerConfig read_optimizer(const Options& options, const TrainFlags& flags, double lr_scale);

/// Parameters of a network, by all their names, that optimizers treat in a way of their own.
struct ParameterKinds {
  std::set<std::string> vectors = {};  ///< biases and norms' weights: names_of_vectors of whole parameters
  std::set<std::string> outer = {};    ///< what Muon leaves to AdamW; for other rules nobody looks at it
};

/// The kinds of the whole `network`. Throws UsageError for a pattern of `config` that matches no parameter.
ParameterKinds kinds_of(const OptimizerConfig& config, const Module& network);

/// The optimizer of `parameters`, whole ones or parts, of the kinds `kinds`. `own`: what some have of their
/// own.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, const NamedTensors& parameters,
                                          const ParameterKinds& kinds, const OwnOptionsByName& own = {});

}  // namespace dtrain
