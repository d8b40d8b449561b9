// Where on its learning rate's curve a run is, and what is said when that is not where it was.
#include <fmt/format.h>

#include <algorithm>

#include "training/loop/resumed_options.h"
#include "training/loop/trainer.h"

namespace dtrain {
namespace {

constexpr const char* kScheduleBatch = "schedule-batch";

}  // namespace

// Steps of the schedule in an epoch.
std::int64_t Trainer::schedule_epoch() const {
  const std::int64_t last = recipe_.drop_last ? 0 : schedule_batch_ - 1;
  return std::max<std::int64_t>((data_.train().size() + last) / schedule_batch_, 1);
}

LrSchedule Trainer::schedule_of_run() const { return make_schedule(recipe_, schedule_epoch()); }

// Of epochs by samples, so that neither the rate nor what is left of its curve depends on how large steps are
// or were; of a run whose length is a number of steps, by steps. Where all steps are of one size, both are
// the number of finished steps.
double Trainer::schedule_position() const {
  if (recipe_.epochs == INT64_MAX) return static_cast<double>(at_.step);
  return static_cast<double>(at_.epoch * schedule_epoch()) +
         static_cast<double>(at_.position) / static_cast<double>(schedule_batch_);
}

void Trainer::note_schedule(TrainingState& state) const {
  state.extra.emplace(kScheduleBatch, std::to_string(schedule_batch_));
  state.extra.insert(noted_lr(next_lr()));
  state.extra.merge(noted_options(env_.options));
}

// One line for what this start does otherwise than the one that saved, and one where the learning rate jumps.
void Trainer::resume_schedule(const TrainingState& state) {
  if (const auto batch = state.extra.find(kScheduleBatch); batch != state.extra.end()) {
    schedule_batch_ = std::max<std::int64_t>(parse_integer(batch->second).value_or(schedule_batch_), 1);
    schedule_ = schedule_of_run();
  }
  if (!is_root()) return;
  const std::string changed = changed_options(env_.options, state.extra);
  if (!changed.empty())
    env_.log.write(LogLevel::info,
                   fmt::format("resuming from step {} with other options: {}", state.step, changed));
  const bool is_plain = !env_.options.has("scale-lr") || env_.options.text("scale-lr") == "none";
  const std::string jump = lr_jump(schedule_, schedule_position(), is_plain, state.extra);
  if (!jump.empty()) env_.log.write(LogLevel::info, fmt::format("step {}: {}", state.step + 1, jump));
}

}  // namespace dtrain
