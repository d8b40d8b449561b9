// From the spans of some steps to a table: what each operation of each phase takes of a step.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/spans.h"

namespace dtrain {

enum class ProfileBy { kind, kernel };

/// One operation of one phase. Per step.
struct ProfileRow {
  std::string phase;  ///< "forward"
  std::string
      operation;  ///< a kind ("conv") or kernel ("conv2d"), or what is left: kOutsideKernels, kWaiting
  double calls = 0;
  double seconds = 0;
  double flops = 0;  ///< 0 where they are not defined
};

struct StepProfile {
  std::vector<ProfileRow> rows;  ///< phases as they come, in each the longest first, what is left last
  double seconds = 0;            ///< of all phases
  double flops = 0;
};

inline constexpr std::string_view kOutsideKernels = "outside kernels";
/// What is left of the phase "communication".
inline constexpr std::string_view kWaiting = "all-reduce, waited";

/// `spans` of `steps` steps: phases have the category "phase" and do not overlap; spans of other threads, of
/// collectives and outside all phases are not looked at.
StepProfile make_profile(const std::vector<TimedSpan>& spans, int steps, ProfileBy by);

/// The table: calls, milliseconds and share of a step; GFLOP, GFLOP/s and share of `peak_flops` (a second)
/// where operations are counted.
std::string profile_table(const StepProfile& profile, double peak_flops);
/// The same, one JSON object a line.
std::string profile_json(const StepProfile& profile, double peak_flops);

}  // namespace dtrain
