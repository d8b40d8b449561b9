// report.html: one self-contained page about a run, or several side by side, made from the files in their
// folders; it opens without a network.
#pragma once

#include <span>
#include <string>

#include "runtime/metrics/run_directory.h"

namespace dtrain {

/// The page as text. Whatever of a folder's files is missing or cannot be understood is left out, and the
/// page says so. Throws SystemError when a file cannot be read.
std::string render_report(std::span<const RunDirectory> runs);
std::string render_report(const RunDirectory& run);

/// Writes render_report() to run.report(), atomically. Throws as render_report and SystemError.
void write_report(const RunDirectory& run);

}  // namespace dtrain
