// The page around the data: HTML, CSS and JavaScript that were built in. Internal to runtime/metrics.
#pragma once

#include <span>
#include <string>

#include "runtime/metrics/report/page_data.h"

namespace dtrain {

/// In every page and before its data: how a page of ours is told from another file.
inline constexpr std::string_view kReportMark = "<meta name=\"generator\" content=\"dtrain report\">";

/// One self-contained page. `data` is page_data(); `title` is any text.
std::string report_page(const std::string& data, const std::string& title);

/// "mine", "mine, yours and 2 more".
std::string page_title(std::span<const RunFollower> runs);

/// `text` safe inside HTML and attribute values.
std::string escape_html(std::string_view text);

}  // namespace dtrain
