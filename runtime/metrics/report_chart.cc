#include "runtime/metrics/report_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace dtrain {
namespace {

constexpr double kWidth = 720, kHeight = 300;
constexpr double kLeft = 60, kRight = 16, kTop = 16, kBottom = 40;
constexpr std::size_t kMostPoints = 800;
constexpr int kTicks = 6;

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // A range with some room in it, also around a single value.
  Range widened(double share) const {
    const double span = high - low;
    const double room = span > 0 ? span * share : std::max(std::abs(low) * 0.1, 0.1);
    return {low - room, high + room};
  }
  double place(double value, double from, double to) const {
    return from + (value - low) / (high - low) * (to - from);
  }
};

struct Frame {
  Range x, y;
  double px(double value) const { return x.place(value, kLeft, kWidth - kRight); }
  double py(double value) const { return y.place(value, kHeight - kBottom, kTop); }
};

Frame frame_of(const std::vector<ChartSeries>& series) {
  Frame frame;
  for (const auto& one : series) {
    for (const auto& point : one.points) {
      frame.x.include(point.x);
      frame.y.include(point.y);
    }
  }
  frame.x = frame.x.widened(0.01);
  frame.y = frame.y.widened(0.06);
  return frame;
}

std::string axes(const Frame& frame) {
  std::string svg;
  for (const double tick : chart_ticks(frame.y.low, frame.y.high, kTicks)) {
    const double y = frame.py(tick);
    svg += fmt::format(R"(<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>)", kLeft,
                       kWidth - kRight, y, y);
    svg += fmt::format(R"(<text class="tick" x="{}" y="{:.1f}" text-anchor="end">{:g}</text>)", kLeft - 8,
                       y + 4, tick);
  }
  for (const double tick : chart_ticks(std::max(frame.x.low, 0.0), frame.x.high, kTicks)) {
    svg += fmt::format(R"(<text class="tick" x="{:.1f}" y="{}" text-anchor="middle">{:g}</text>)",
                       frame.px(tick), kHeight - kBottom + 18, tick);
  }
  svg += fmt::format(R"(<line class="axis" x1="{}" x2="{}" y1="{}" y2="{}"/>)", kLeft, kWidth - kRight,
                     kHeight - kBottom, kHeight - kBottom);
  svg += fmt::format(R"(<text class="tick" x="{}" y="{}" text-anchor="end">step</text>)", kWidth - kRight,
                     kHeight - 6);
  return svg;
}

std::string curve(const ChartSeries& series, const Frame& frame) {
  std::string places, marks;
  for (const auto& point : thin_out(series.points, kMostPoints)) {
    const double x = frame.px(point.x), y = frame.py(point.y);
    places += fmt::format("{:.1f},{:.1f} ", x, y);
    if (series.marks) {
      marks += fmt::format(
          R"(<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="3"><title>step {:g}: {:.6g}</title></circle>)",
          series.css_class, x, y, point.x, point.y);
    }
  }
  return fmt::format(R"(<polyline class="{}" points="{}"/>{})", series.css_class, places, marks);
}

std::string legend(const std::vector<ChartSeries>& series) {
  std::string html = "<p class=\"legend\">";
  for (const auto& one : series) {
    if (one.points.empty()) continue;
    html += fmt::format(R"(<span><i class="{}"></i>{}: last {:.4g}</span> )", one.css_class,
                        escape_html(one.label), one.points.back().y);
  }
  return html + "</p>";
}

}  // namespace

std::vector<ReportPoint> thin_out(const std::vector<ReportPoint>& points, std::size_t most) {
  if (points.size() <= most) return points;
  std::vector<ReportPoint> means;
  means.reserve(most);
  for (std::size_t i = 0; i < most; ++i) {
    const std::size_t begin = i * points.size() / most, end = (i + 1) * points.size() / most;
    ReportPoint sum;
    for (std::size_t j = begin; j < end; ++j) {
      sum.x += points[j].x;
      sum.y += points[j].y;
    }
    const auto count = static_cast<double>(end - begin);
    means.push_back({sum.x / count, sum.y / count});
  }
  return means;
}

std::vector<double> chart_ticks(double low, double high, int count) {
  const double rough = (high - low) / count;
  if (!(rough > 0) || !std::isfinite(rough)) return {};
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) {
      step = factor * power;
      break;
    }
  }
  std::vector<double> ticks;
  for (auto i = std::ceil(low / step); i * step <= high; ++i) ticks.push_back(i == 0 ? 0.0 : i * step);
  return ticks;
}

std::string render_chart(const std::string& title, const std::vector<ChartSeries>& series) {
  std::string html = fmt::format("<section><h2>{}</h2>", escape_html(title));
  if (std::all_of(series.begin(), series.end(), [](const auto& one) { return one.points.empty(); })) {
    return html + "<p class=\"none\">No points were recorded.</p></section>\n";
  }
  const Frame frame = frame_of(series);
  html += legend(series);
  html += fmt::format(R"(<svg viewBox="0 0 {} {}" role="img" aria-label="{}">)", kWidth, kHeight,
                      escape_html(title));
  html += axes(frame);
  for (const auto& one : series) html += curve(one, frame);
  return html + "</svg></section>\n";
}

std::string escape_html(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

}  // namespace dtrain
