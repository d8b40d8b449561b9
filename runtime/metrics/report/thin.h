// Curves of any length as as many points as a picture can show. Pure; internal to runtime/metrics.
#pragma once

#include "runtime/metrics/report/metrics_reader.h"

namespace dtrain {

/// A point that stands for one or several neighbours.
struct ThinPoint {
  double step = 0, seconds = 0;
  double mean = 0;           ///< NaN: none of them is a number
  double low = 0, high = 0;  ///< the least and the largest of them
};

/// At most `most` points (at least 1): the means of runs of neighbours with their extremes, so that no peak
/// is lost. Fewer points come back as they are.
std::vector<ThinPoint> thin_out(const Curve& curve, std::size_t most);

}  // namespace dtrain
