#include "runtime/metrics/step_clock.h"

#include <fmt/format.h>

#include <algorithm>

namespace dtrain {
namespace {

constexpr std::array<std::string_view, 7> kNames = {"data",      "forward",    "backward", "communication",
                                                    "optimizer", "checkpoint", "other"};

}  // namespace

std::string_view name_of(Phase phase) noexcept { return kNames[static_cast<std::size_t>(phase)]; }

Duration StepClock::total() const noexcept {
  Duration sum{};
  for (const Duration spent : spent_) sum += spent;
  return sum;
}

std::string StepClock::table() const {
  const double steps = static_cast<double>(std::max<std::int64_t>(steps_, 1));
  const double all = std::max(std::chrono::duration<double>(total()).count(), 1e-12);
  std::string text = fmt::format("{:<14} {:>10} {:>8}\n", "phase", "ms/step", "share");
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    const double seconds = std::chrono::duration<double>(spent_[i]).count();
    text +=
        fmt::format("{:<14} {:>10.3f} {:>7.1f}%\n", kNames[i], 1e3 * seconds / steps, 100 * seconds / all);
  }
  return text + fmt::format("{:<14} {:>10.3f} {:>7.1f}%\n", "step", 1e3 * all / steps, 100.0);
}

}  // namespace dtrain
