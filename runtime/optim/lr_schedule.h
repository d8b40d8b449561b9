// The learning rate as a pure function of how far the run is, so that a resumed run needs no schedule state.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/optim/optimizer.h"

namespace dtrain {

enum class LrKind { constant, step, cosine, polynomial };

/// Throws UsageError listing the kinds for anything but "constant", "step", "cosine", "polynomial".
LrKind parse_lr_kind(std::string_view name);

/// Linear warm-up over the first `warmup_steps` steps, from warmup_from to base (of 0 the first step has
/// base/warmup_steps, step number warmup_steps has base), then from there:
///   constant    base
///   step        base · gamma^⌊s / decay_every⌋, or, with decay_at, base · gamma^(how many of these the run
///               has finished, the warm-up's steps included)
///   cosine      min_lr + (base − min_lr) · (1 + cos(π · p)) / 2, min_lr after the end
///   polynomial  min_lr + (base − min_lr) · (1 − p)^power, likewise
/// where p = s / (total_steps − warmup_steps) and s counts finished steps since the warm-up. A run whose
/// steps change their size counts in steps of one size, so that finished steps may be a fraction.
struct LrSchedule {
  LrKind kind = LrKind::constant;
  double base_lr = 1e-3;
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 0;  ///< cosine, polynomial: where it reaches min_lr
  std::int64_t decay_every = 0;  ///< step: steps between decays
  double gamma = 0.1;            ///< step: factor of a decay
  double min_lr = 0;             ///< cosine, polynomial
  double power = 2;              ///< polynomial
  double warmup_from = 0;
  std::vector<std::int64_t> decay_at =
      {};  ///< step: finished steps after which it decays; empty: decay_every

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
