// report.html: one self-contained page about a run, made from the files in its folder; no network, no
// scripts.
#pragma once

#include <string>

#include "runtime/metrics/run_directory.h"

namespace dtrain {

/// The page as text. metrics.jsonl must be there; config.json and summary.json may be missing. Lines of
/// metrics.jsonl that are not JSON are counted and mentioned. Throws SystemError when metrics.jsonl cannot be
/// read, DataError when a JSON file is malformed.
std::string render_report(const RunDirectory& run);

/// Writes render_report() to run.report(), atomically. Throws as render_report and SystemError.
void write_report(const RunDirectory& run);

}  // namespace dtrain
