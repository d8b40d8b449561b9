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

bool is_to_the_end(LrKind kind) { return kind == LrKind::cosine || kind == LrKind::polynomial; }

void check(const LrSchedule& schedule, double finished_steps, double base) {
  if (!std::isfinite(base) || base < 0) refuse("base_lr", "finite and at least 0", base);
  if (schedule.warmup_steps < 0) {
    refuse("warmup_steps", "at least 0", static_cast<double>(schedule.warmup_steps));
  }
  if (schedule.kind == LrKind::step && schedule.decay_every < 1 && schedule.decay_at.empty()) {
    refuse("decay_every", "at least 1", static_cast<double>(schedule.decay_every));
  }
  if (is_to_the_end(schedule.kind) && schedule.total_steps < 1) {
    refuse("total_steps", "at least 1", static_cast<double>(schedule.total_steps));
  }
  if (!(finished_steps >= 0)) refuse("finished_steps", "at least 0", finished_steps);
}

/// 1 after the warm-up, 0 at the end, and how it gets there.
double what_is_left(const LrSchedule& schedule, double progress) {
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

}  // namespace

LrKind parse_lr_kind(std::string_view name) {
  if (name == "constant") return LrKind::constant;
  if (name == "step") return LrKind::step;
  if (name == "cosine") return LrKind::cosine;
  if (name == "polynomial") return LrKind::polynomial;
  throw UsageError("learning rate schedule: expected constant, step, cosine or polynomial, got \"" +
                   std::string(name) + "\"");
}

double LrSchedule::at(double finished_steps, double base) const {
  check(*this, finished_steps, base);
  const auto warmup = static_cast<double>(warmup_steps);
  if (finished_steps < warmup)
    return warmup_from + (base - warmup_from) * std::min(finished_steps + 1, warmup) / warmup;
  const double since_warmup = finished_steps - warmup;
  switch (kind) {
    case LrKind::constant:
      break;
    case LrKind::step:
      return base * std::pow(gamma, decays(*this, finished_steps, since_warmup));
    case LrKind::cosine:
    case LrKind::polynomial:
      return to_the_end(*this, since_warmup, base);
  }
  return base;
}

void set_lr(Optimizer& optimizer, const LrSchedule& schedule, double finished_steps) {
  for (std::size_t group = 0; group < optimizer.group_count(); ++group) {
    optimizer.set_lr(group, schedule.at(finished_steps, optimizer.base_lr(group)));
  }
}

}  // namespace dtrain
