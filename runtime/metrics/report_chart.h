// A line chart as inline SVG, coloured by the page's CSS. Pure; internal to runtime/metrics.
#pragma once

#include <string>
#include <vector>

#include "runtime/metrics/report_data.h"

namespace dtrain {

/// One curve. `css_class` colours it; `marks` draws a dot at each point.
struct ChartSeries {
  std::string label;
  std::string css_class;
  std::vector<ReportPoint> points;  ///< by x
  bool marks = false;
};

/// At most `most` points: means of runs of neighbours. Fewer points come back as they are.
std::vector<ReportPoint> thin_out(const std::vector<ReportPoint>& points, std::size_t most);

/// Round numbers (1, 2 or 5 times a power of ten) inside [low, high], about `count` of them.
std::vector<double> chart_ticks(double low, double high, int count);

/// An <svg> element with axes, grid, the series and a legend; a sentence instead when no series has points.
std::string render_chart(const std::string& title, const std::vector<ChartSeries>& series);

/// `text` safe inside HTML and attribute values.
std::string escape_html(std::string_view text);

}  // namespace dtrain
