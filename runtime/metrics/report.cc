#include "runtime/metrics/report.h"

#include "runtime/base/files/durable_file.h"
#include "runtime/metrics/report/page.h"
#include "runtime/metrics/report/run_follower.h"

namespace dtrain {

std::string render_report(std::span<const RunDirectory> runs) {
  std::vector<RunFollower> followers(runs.begin(), runs.end());
  for (RunFollower& follower : followers) follower.poll();
  return report_page(page_data(followers, false), page_title(followers));
}

std::string render_report(const RunDirectory& run) { return render_report(std::span(&run, 1)); }

void write_report(const RunDirectory& run) { replace_file(run.report(), render_report(run)); }

}  // namespace dtrain
