#include "runtime/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

[[noreturn]] void refuse(std::string_view field, std::string_view expected, double got) {
  throw UsageError("learning rate schedule: " + std::string(field) + " must be " + std::string(expected) +
                   ", got " + std::to_string(got));
}

constexpr std::string_view kNames =
    "constant, step, exponential, linear, polynomial, cosine, one-cycle, inverse-sqrt, wsd, plateau";

// ReduceLROnPlateau's `eps`: a rate that would change by less stays.
constexpr double kLeastChange = 1e-8;

bool is_to_the_end(LrKind kind) {
  return kind == LrKind::linear || kind == LrKind::polynomial || kind == LrKind::cosine ||
         kind == LrKind::one_cycle || kind == LrKind::wsd;
}

void check(const LrSchedule& schedule, double finished_steps, double base) {
  if (!std::isfinite(base) || base < 0) refuse("base_lr", "finite and at least 0", base);
  if (schedule.warmup_steps < 0) {
    refuse("warmup_steps", "at least 0", static_cast<double>(schedule.warmup_steps));
  }
  const bool decays =
      (schedule.kind == LrKind::step && schedule.decay_at.empty()) || schedule.kind == LrKind::exponential;
  if (decays && schedule.decay_every < 1) {
    refuse("decay_every", "at least 1", static_cast<double>(schedule.decay_every));
  }
  if (is_to_the_end(schedule.kind) && schedule.total_steps < 1) {
    refuse("total_steps", "at least 1", static_cast<double>(schedule.total_steps));
  }
  if (!(finished_steps >= 0)) refuse("finished_steps", "at least 0", finished_steps);
}

/// 1 after the warm-up, 0 at the end, and how it gets there.
double what_is_left(const LrSchedule& schedule, double progress) {
  if (schedule.kind == LrKind::linear) return 1 - progress;
  if (schedule.kind == LrKind::polynomial) return std::pow(1 - progress, schedule.power);
  return (1 + std::cos(std::numbers::pi * progress)) / 2;
}

double to_the_end(const LrSchedule& schedule, double since_warmup, double base) {
  const auto length = static_cast<double>(schedule.total_steps - schedule.warmup_steps);
  if (since_warmup >= length) return schedule.min_lr;
  return schedule.min_lr + (base - schedule.min_lr) * what_is_left(schedule, since_warmup / length);
}

double decays(const LrSchedule& schedule, double finished_steps, double since_warmup) {
  if (schedule.decay_at.empty()) return std::floor(since_warmup / static_cast<double>(schedule.decay_every));
  return static_cast<double>(std::ranges::count_if(
      schedule.decay_at, [&](std::int64_t at) { return static_cast<double>(at) <= finished_steps; }));
}

/// Half a cosine from `from` to `to`, as OneCycleLR has it.
double anneal(double from, double to, double progress) {
  return to + (from - to) / 2 * (std::cos(std::numbers::pi * progress) + 1);
}

/// Step number warmup_steps, from 1, has the base, and the last step min_lr.
double one_cycle(const LrSchedule& schedule, double finished_steps, double base) {
  const auto top = static_cast<double>(std::max<std::int64_t>(schedule.warmup_steps, 1) - 1);
  const auto last = static_cast<double>(schedule.total_steps - 1);
  if (finished_steps < top) return anneal(schedule.warmup_from, base, finished_steps / top);
  if (finished_steps >= last) return top >= last ? base : schedule.min_lr;
  return anneal(base, schedule.min_lr, (finished_steps - top) / (last - top));
}

double cooled_down(const LrSchedule& schedule, double finished_steps, double base) {
  const auto length = static_cast<double>(schedule.cooldown_steps);
  const double since = finished_steps - (static_cast<double>(schedule.total_steps) - length);
  if (since <= 0) return base;
  return since >= length ? schedule.min_lr
                         : schedule.min_lr + (base - schedule.min_lr) * (1 - since / length);
}

double after_plateaus(const LrSchedule& schedule, double base) {
  double rate = base;
  for (int i = 0; i < schedule.plateaus; ++i) {
    const double next = std::max(rate * schedule.gamma, schedule.min_lr);
    if (rate - next > kLeastChange) rate = next;
  }
  return rate;
}

double without_factor(const LrSchedule& schedule, double finished_steps, double base) {
  if (schedule.kind == LrKind::one_cycle) return one_cycle(schedule, finished_steps, base);
  const auto warmup = static_cast<double>(schedule.warmup_steps);
  if (finished_steps < warmup)
    return schedule.warmup_from +
           (base - schedule.warmup_from) * std::min(finished_steps + 1, warmup) / warmup;
  const double since_warmup = finished_steps - warmup;
  switch (schedule.kind) {
    case LrKind::constant:
    case LrKind::one_cycle:
      break;
    case LrKind::step:
      return base * std::pow(schedule.gamma, decays(schedule, finished_steps, since_warmup));
    case LrKind::exponential:
      return base * std::pow(schedule.gamma, since_warmup / static_cast<double>(schedule.decay_every));
    case LrKind::linear:
    case LrKind::cosine:
    case LrKind::polynomial:
      return to_the_end(schedule, since_warmup, base);
    case LrKind::inverse_sqrt: {
      const double from = std::max(warmup, 1.0);
      return base * (1 / std::sqrt(std::max(finished_steps, from) / from));
    }
    case LrKind::wsd:
      return cooled_down(schedule, finished_steps, base);
    case LrKind::plateau:
      return after_plateaus(schedule, base);
  }
  return base;
}

}  // namespace

std::string_view lr_kind_names() { return kNames; }

LrKind parse_lr_kind(std::string_view name) {
  int number = 0;
  for (std::string_view left = kNames; !left.empty(); ++number) {
    const std::size_t end = std::min(left.find(", "), left.size());
    if (left.substr(0, end) == name) return static_cast<LrKind>(number);
    left.remove_prefix(std::min(end + 2, left.size()));
  }
  throw UsageError("learning rate schedule: expected one of " + std::string(kNames) + ", got \"" +
                   std::string(name) + "\"");
}

double LrSchedule::at(double finished_steps, double base) const {
  check(*this, finished_steps, base);
  const double rate = without_factor(*this, finished_steps, base);
  if (!factor) return rate;
  const double by =
      factor({finished_steps, finished_steps / static_cast<double>(steps_per_epoch), total_steps});
  if (!std::isfinite(by) || by < 0)
    refuse("the factor of step " + std::to_string(static_cast<std::int64_t>(finished_steps) + 1),
           "finite and at least 0", by);
  return rate * by;
}

void set_lr(Optimizer& optimizer, const LrSchedule& schedule, double finished_steps) {
  for (std::size_t group = 0; group < optimizer.group_count(); ++group) {
    optimizer.set_lr(group, schedule.at(finished_steps, optimizer.base_lr(group)));
  }
}

}  // namespace dtrain
