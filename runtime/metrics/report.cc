// The page around the charts. Everything is inline: it can be mailed, and opens without a network.
#include "runtime/metrics/report.h"

#include <fmt/format.h>

#include "runtime/base/durable_file.h"
#include "runtime/metrics/report_chart.h"
#include "runtime/metrics/report_data.h"

namespace dtrain {
namespace {

constexpr const char* kStyle = R"(<style>
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--soft:#6a737d;--line:#e1e4e8;--train:#0969da;--eval:#bf5b04}
@media(prefers-color-scheme:dark){:root{--bg:#14171b;--fg:#e6e8ea;--soft:#9aa3ad;--line:#2c323a;--train:#58a6ff;--eval:#f0a35e}}
body{margin:0 auto;padding:24px;max-width:800px;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif}
h1{font-size:22px;margin:0 0 4px}h2{font-size:17px;margin:28px 0 4px}
svg{width:100%;height:auto;display:block}
.grid,.axis{stroke:var(--line);stroke-width:1}.tick{fill:var(--soft);font-size:12px}
polyline{fill:none;stroke-width:1.6;stroke-linejoin:round}
polyline.train{stroke:var(--train)}polyline.eval{stroke:var(--eval)}
circle.train{fill:var(--train)}circle.eval{fill:var(--eval)}
.legend{color:var(--soft);margin:0 0 4px}.legend span{margin-right:18px}
.legend i{display:inline-block;width:14px;height:3px;margin-right:6px;vertical-align:middle}
i.train{background:var(--train)}i.eval{background:var(--eval)}
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:3px 12px 3px 0;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:anywhere}
th{font-weight:600}td:nth-child(2){font-variant-numeric:tabular-nums}.none,.soft,td:nth-child(3){color:var(--soft)}
</style>)";

std::string table(const std::string& title, const std::vector<ReportRow>& rows, const std::string& file) {
  std::string html = fmt::format("<section><h2>{}</h2>", title);
  if (rows.empty()) return html + fmt::format("<p class=\"none\">There is no {}.</p></section>\n", file);
  html += "<table>";
  for (const auto& row : rows) {
    html += fmt::format("<tr><th>{}</th><td>{}</td><td>{}</td></tr>\n", escape_html(row.name),
                        escape_html(row.value), escape_html(row.source));
  }
  return html + "</table></section>\n";
}

std::string notes(const ReportData& data) {
  if (data.unreadable_lines == 0) return {};
  return fmt::format("<p class=\"soft\">{} lines of metrics.jsonl could not be read and are left out.</p>\n",
                     data.unreadable_lines);
}

}  // namespace

std::string render_report(const RunDirectory& run) {
  const ReportData data = read_report_data(run);
  const std::filesystem::path absolute = std::filesystem::absolute(run.path()).lexically_normal();
  const std::string name =
      escape_html((absolute.has_filename() ? absolute : absolute.parent_path()).filename().string());
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>{} · "
      "dtrain</title>\n{}\n"
      "</head><body>\n<h1>{}</h1><p class=\"soft\">{}</p>\n",
      name, kStyle, name, escape_html(absolute.string()));
  html += notes(data);
  html += table("Summary", data.summary, "summary.json");
  html += render_chart(
      "Loss", {{"training", "train", data.train_loss, false}, {"evaluation", "eval", data.eval_loss, true}});
  html += render_chart("Accuracy", {{"evaluation", "eval", data.accuracy, true}});
  html += table("Configuration", data.config, "config.json");
  return html + "</body></html>\n";
}

void write_report(const RunDirectory& run) { replace_file(run.report(), render_report(run)); }

}  // namespace dtrain
