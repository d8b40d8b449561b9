#include "runtime/metrics/report/thin.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace dtrain {
namespace {

ThinPoint merged(std::span<const CurvePoint> points) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  ThinPoint thin{.step = points.back().step,
                 .seconds = points.back().seconds,
                 .mean = kNone,
                 .low = kNone,
                 .high = kNone};
  double sum = 0;
  std::size_t numbers = 0;
  for (const CurvePoint& point : points) {
    if (std::isnan(point.value)) continue;
    sum += point.value;
    thin.low = numbers == 0 ? point.value : std::min(thin.low, point.value);
    thin.high = numbers == 0 ? point.value : std::max(thin.high, point.value);
    ++numbers;
  }
  if (numbers > 0) thin.mean = sum / static_cast<double>(numbers);
  return thin;
}

}  // namespace

std::vector<ThinPoint> thin_out(const Curve& curve, std::size_t most) {
  const std::span<const CurvePoint> points(curve);
  const std::size_t pieces = std::min(points.size(), std::max<std::size_t>(most, 1));
  std::vector<ThinPoint> thin;
  thin.reserve(pieces);
  for (std::size_t i = 0; i < pieces; ++i) {
    const std::size_t begin = i * points.size() / pieces, end = (i + 1) * points.size() / pieces;
    thin.push_back(merged(points.subspan(begin, end - begin)));
  }
  return thin;
}

}  // namespace dtrain
