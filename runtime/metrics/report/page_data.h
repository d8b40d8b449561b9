// What the page's script is given: the numbers of a run's files, as JSON. What is said of them, and how, is
// facts.js and sections.js. Internal to runtime/metrics.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/metrics/report/run_follower.h"

namespace dtrain {

/// A name for each path, as short as tells them apart: the last part of it, with as many of those before as
/// needed.
std::vector<std::string> distinct_names(const std::vector<std::filesystem::path>& paths);

/// {"live":…,"runs":[…]}, ASCII but for what names say, safe inside an HTML <script> element. Curves are
/// thinned, so that a page stays below a few hundred kilobytes a run whatever the length of the run.
std::string page_data(std::span<const RunFollower> runs, bool live);

}  // namespace dtrain
