// `dtrain report [RUN ...]`: one page about a run or several side by side, as a file or live.
#include "runtime/metrics/report.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>

#include "cluster/net/token.h"
#include "runtime/base/error.h"
#include "runtime/base/files/durable_file.h"
#include "worker/commands.h"
#include "worker/report/live_server.h"
#include "worker/report/request.h"

namespace dtrain {
namespace {

/// For a page's address: what nobody guesses.
std::string make_page_token() {
  std::array<std::uint8_t, 16> bytes{};
  fill_random(bytes.data(), bytes.size());
  std::string token;
  for (const std::uint8_t byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

ExitCode watch(const ReportRequest& request) {
  const std::string token = make_page_token();
  LivePages pages(request.runs, token);
  LiveServer server(request.port, [&](const LiveRequest& asked) { return pages.answer(asked); });
  fmt::print("http://127.0.0.1:{}/?token={}\n", server.port(), token);
  std::fflush(stdout);
  fmt::print(stderr, "dtrain report: open this address in a browser of this machine; Ctrl-C ends it\n");
  server.run();
  return ExitCode::ok;
}

ExitCode write(const ReportRequest& request) {
  const std::vector<RunDirectory> runs(request.runs.begin(), request.runs.end());
  replace_file(request.output, render_report(runs));
  fmt::print("{}\n", request.output.string());
  return ExitCode::ok;
}

}  // namespace

ExitCode run_report(const Invocation& invocation) {
  const SplitArguments split = split_report_arguments(invocation.arguments);
  const Options options =
      resolve_options("dtrain report", report_options(), split.options, invocation.environment);
  if (const auto help = asked_help(options,
                                   "usage: dtrain report [RUN ...] [options]\n\nExamples:\n  dtrain report "
                                   "runs/mine --watch\n  dtrain report runs/a runs/b",
                                   report_options())) {
    fmt::print("{}", *help);
    return ExitCode::ok;
  }
  const ReportRequest request = make_report_request(options, split.folders);
  return request.watch ? watch(request) : write(request);
}

}  // namespace dtrain
