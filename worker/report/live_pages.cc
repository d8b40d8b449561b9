#include "worker/report/live_pages.h"

#include <fmt/format.h>

#include <exception>

#include "cluster/net/token.h"
#include "runtime/metrics/report/page.h"

namespace dtrain {
namespace {

LiveAnswer line(int status, const std::string& text) {
  return {.status = status,
          .type = "text/plain; charset=utf-8",
          .body = fmt::format("{}: {}\n", status, text),
          .version = {}};
}

}  // namespace

bool is_loopback_host(std::string_view host) {
  if (host.starts_with("[")) return host == "[::1]" || host.starts_with("[::1]:");
  const std::string_view name = host.substr(0, host.find(':'));
  return name == "127.0.0.1" || name == "localhost";
}

bool same_secret(std::string_view expected, std::string_view given) {
  unsigned difference = expected.size() == given.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const auto mine = static_cast<unsigned char>(expected.empty() ? 0 : expected[i % expected.size()]);
    difference |= static_cast<unsigned>(mine ^ static_cast<unsigned char>(given[i]));
  }
  return difference == 0;
}

LivePages::LivePages(const std::vector<std::filesystem::path>& runs, std::string token)
    : token_(std::move(token)) {
  for (const auto& run : runs) runs_.emplace_back(RunDirectory(run));
  std::uint32_t start = 0;
  fill_random(&start, sizeof start);
  start_ = fmt::format("{:08x}", start);
}

void LivePages::poll() {
  bool changed = false;
  for (RunFollower& run : runs_) changed = run.poll() || changed;
  if (changed) ++changes_;
}

LiveAnswer LivePages::answer(const LiveRequest& request) {
  if (!is_loopback_host(request.host))
    return line(403,
                "expected the host 127.0.0.1 or localhost; open the address that dtrain report --watch "
                "printed");
  if (!same_secret(token_, request.token))
    return line(403, "expected the token; open the whole address that dtrain report --watch printed");
  try {
    return known(request);
  } catch (const std::exception& error) {
    return line(500, error.what());
  }
}

LiveAnswer LivePages::known(const LiveRequest& request) {
  if (request.path != "/" && request.path != "/data.json")
    return line(404, "expected / or /data.json; there is nothing else here");
  poll();
  const std::string version = fmt::format("{}-{}", start_, changes_);
  if (request.path == "/data.json") {
    if (request.after == version) return {.status = 204, .type = {}, .body = {}, .version = version};
    return {.status = 200, .type = "application/json", .body = page_data(runs_, true), .version = version};
  }
  return {.status = 200,
          .type = "text/html; charset=utf-8",
          .body = report_page(page_data(runs_, true), page_title(runs_)),
          .version = version};
}

}  // namespace dtrain
