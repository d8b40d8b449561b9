// The learning rate as a pure function of how far the run is, so that a resumed run needs no schedule state.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "runtime/optim/optimizer.h"

namespace dtrain {

enum class LrKind {
  constant,
  step,
  exponential,
  linear,
  polynomial,
  cosine,
  one_cycle,
  inverse_sqrt,
  wsd,
  plateau
};

/// "constant, step, …": the names of the kinds, in their order; one_cycle is "one-cycle".
std::string_view lr_kind_names();
/// Throws UsageError listing the kinds for anything else.
LrKind parse_lr_kind(std::string_view name);

/// Where a run is, for a factor of the user's.
struct LrPoint {
  double step = 0;               ///< finished steps; a fraction where steps changed their size
  double epoch = 0;              ///< finished epochs: 1.5 in the middle of the second
  std::int64_t total_steps = 0;  ///< of the run
};
using LrFactor = std::function<double(const LrPoint& at)>;

/// Linear warm-up over the first `warmup_steps` steps, from warmup_from to base (of 0 the first step has
/// base/warmup_steps, step number warmup_steps has base), then from there:
///   constant      base
///   step          base · gamma^⌊s / decay_every⌋, or, with decay_at, base · gamma^(how many of these the run
///                 has finished, the warm-up's steps included): StepLR, MultiStepLR
///   exponential   base · gamma^(s / decay_every): ExponentialLR
///   linear        min_lr + (base − min_lr) · (1 − p), min_lr after the end: LinearLR
///   polynomial    min_lr + (base − min_lr) · (1 − p)^power, likewise: PolynomialLR
///   cosine        min_lr + (base − min_lr) · (1 + cos(π · p)) / 2, likewise: CosineAnnealingLR
///   one_cycle     half a cosine up in the warm-up, whose first step has warmup_from, and half a cosine down
///                 to min_lr in the run's last step (Smith and Topin 2018): OneCycleLR without its momentum
///   inverse_sqrt  base · √(warmup_steps / finished steps) (Vaswani et al. 2017; 1 warm-up step at least)
///   wsd           warm-up, stable, decay: base, and in the last `cooldown_steps` a line to min_lr (Hu et al.
///                 2024, Hägele et al. 2024)
///   plateau       base · gamma after each of `plateaus`, not below min_lr: ReduceLROnPlateau, whose plateaus
///                 the caller finds
/// where p = s / (total_steps − warmup_steps) and s counts finished steps since the warm-up; times `factor`
/// where there is one. The names are those of torch.optim.lr_scheduler, which gives the same numbers. A run
/// whose steps change their size counts in steps of one size, so that finished steps may be a fraction.
struct LrSchedule {
  LrKind kind = LrKind::constant;
  double base_lr = 1e-3;
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 0;  ///< of the run; needed by linear, polynomial, cosine, one_cycle, wsd
  std::int64_t decay_every = 0;  ///< step, exponential: steps between decays
  double gamma = 0.1;            ///< step, exponential, plateau: factor of a decay
  double min_lr = 0;             ///< linear, polynomial, cosine, one_cycle, wsd, plateau
  double power = 2;              ///< polynomial
  double warmup_from = 0;
  std::vector<std::int64_t> decay_at =
      {};                            ///< step: finished steps after which it decays; empty: decay_every
  std::int64_t cooldown_steps = 0;   ///< wsd
  int plateaus = 0;                  ///< plateau: found so far
  LrFactor factor = {};              ///< multiplies the rate (LambdaLR); may be empty
  std::int64_t steps_per_epoch = 1;  ///< for the factor

  /// Learning rate of the step after `finished_steps` finished ones (0 for the first). Throws UsageError
  /// naming the field when the schedule makes no sense.
  double at(double finished_steps) const { return at(finished_steps, base_lr); }
  /// The same from another base.
  double at(double finished_steps, double base) const;
};

/// Gives each group of `optimizer` its learning rate for the step after `finished_steps` finished ones: the
/// schedule from the group's base_lr(). As in torch.optim.lr_scheduler, min_lr is the same for all groups.
void set_lr(Optimizer& optimizer, const LrSchedule& schedule, double finished_steps);

}  // namespace dtrain
