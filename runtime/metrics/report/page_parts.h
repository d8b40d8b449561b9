// The files page.html, page.css, chart.js, sections.js and page.js as they were when dtrain was built.
// Internal to runtime/metrics.
#pragma once

#include <string_view>

namespace dtrain::page_parts {

extern const std::string_view kHtml, kStyle, kChartScript, kSectionsScript, kPageScript;

}  // namespace dtrain::page_parts
