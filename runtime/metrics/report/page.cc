#include "runtime/metrics/report/page.h"

#include <fmt/format.h>

#include "runtime/metrics/report/page_parts.h"

namespace dtrain {
namespace {

void replace_once(std::string& text, std::string_view mark, std::string_view content) {
  const std::size_t at = text.find(mark);
  if (at != std::string::npos) text.replace(at, mark.size(), content);
}

}  // namespace

std::string report_page(const std::string& data, const std::string& title) {
  // From the last mark to the first: what is put in is never searched.
  std::string page(page_parts::kHtml);
  replace_once(page, "{{page.js}}", page_parts::kPageScript);
  replace_once(page, "{{sections.js}}", page_parts::kSectionsScript);
  replace_once(page, "{{chart.js}}", page_parts::kChartScript);
  replace_once(page, "{{look.js}}", page_parts::kLookScript);
  replace_once(page, "{{facts.js}}", page_parts::kFactsScript);
  replace_once(page, "{{words.js}}", page_parts::kWordsScript);
  replace_once(page, "{{data}}", data);
  replace_once(page, "{{page.css}}", page_parts::kStyle);
  replace_once(page, "{{title}}", escape_html(title));
  return page;
}

std::string page_title(std::span<const RunFollower> runs) {
  std::vector<std::filesystem::path> paths;
  for (const RunFollower& run : runs) paths.push_back(run.run().path());
  const auto names = distinct_names(paths);
  std::string title;
  for (std::size_t i = 0; i < names.size() && i < 2; ++i) title += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > 2) title += fmt::format(" and {} more", names.size() - 2);
  return title;
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
