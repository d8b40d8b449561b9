// The page's files (page.html, page.css and the scripts) as they were when dtrain was built. Internal to
// runtime/metrics.
#pragma once

#include <string_view>

namespace dtrain::page_parts {

extern const std::string_view kHtml, kStyle;
extern const std::string_view kWordsScript, kFactsScript, kLookScript, kChartScript, kSectionsScript,
    kPageScript;

}  // namespace dtrain::page_parts
