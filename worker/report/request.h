// What `dtrain report` was asked for: its command line, checked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/options.h"

namespace dtrain {

struct ReportRequest {
  std::vector<std::filesystem::path> runs;  ///< folders of runs, at least one, each once
  std::filesystem::path output;             ///< the page's file; not used with `watch`
  bool watch = false;
  std::uint16_t port = 0;
};

std::span<const OptionSpec> report_options();

/// Divides `arguments` into those of options and the folders between them; all after "--" are folders.
struct SplitArguments {
  std::vector<std::string> options, folders;
};
SplitArguments split_report_arguments(const std::vector<std::string>& arguments);

/// `folders` in addition to --run-dir; where there are none, the newest run below "runs" in the working
/// directory. Throws UsageError for a folder that is no run's, for one that is named twice, for an output
/// that is there and is no page of ours, and for options that do not go together.
ReportRequest make_report_request(const Options& options, const std::vector<std::string>& folders);

}  // namespace dtrain
