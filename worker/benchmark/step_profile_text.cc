// The profile of a step for people and for programs.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "worker/benchmark/step_profile.h"

namespace dtrain {
namespace {

constexpr double kGiga = 1e9;

// GFLOP, GFLOP/s and share of the peak; blanks where nothing is counted.
std::string rate_columns(double flops, double seconds, double peak_flops) {
  if (flops <= 0 || seconds <= 0) return "";
  return fmt::format(" {:>9.3f} {:>9.1f} {:>7.1f}%", flops / kGiga, flops / seconds / kGiga,
                     100 * flops / seconds / peak_flops);
}

std::string line(const ProfileRow& row, double step_seconds, double peak_flops) {
  return fmt::format("{:<14} {:<19} {:>7.1f} {:>10.3f} {:>6.1f}%{}\n", row.phase, row.operation, row.calls,
                     row.seconds * 1e3, 100 * row.seconds / step_seconds,
                     rate_columns(row.flops, row.seconds, peak_flops));
}

}  // namespace

std::string profile_table(const StepProfile& profile, double peak_flops) {
  std::string text = fmt::format("{:<14} {:<19} {:>7} {:>10} {:>7} {:>9} {:>9} {:>8}\n", "phase", "operation",
                                 "calls", "ms/step", "share", "GFLOP", "GFLOP/s", "of peak");
  for (const ProfileRow& row : profile.rows) text += line(row, profile.seconds, peak_flops);
  const ProfileRow whole{"step", "", 1, profile.seconds, profile.flops};
  return text + line(whole, profile.seconds, peak_flops);
}

std::string profile_json(const StepProfile& profile, double peak_flops) {
  std::string text;
  for (const ProfileRow& row : profile.rows) {
    nlohmann::ordered_json json = {{"phase", row.phase},
                                   {"operation", row.operation},
                                   {"calls", row.calls},
                                   {"ms", row.seconds * 1e3},
                                   {"share", row.seconds / profile.seconds}};
    if (row.flops > 0 && row.seconds > 0) {
      json["gflop"] = row.flops / kGiga;
      json["gflops"] = row.flops / row.seconds / kGiga;
      json["of_peak"] = row.flops / row.seconds / peak_flops;
    }
    text += json.dump() + "\n";
  }
  return text;
}

}  // namespace dtrain
