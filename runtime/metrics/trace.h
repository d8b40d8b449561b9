// Spans as a file for chrome://tracing and Perfetto: Chrome's trace event format, one file a process.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/spans.h"

namespace dtrain {

/// One rank's spans and what is needed to place them beside those of other ranks.
struct Trace {
  int rank = 0;
  std::string host;
  std::int64_t process = 0;                     ///< the system's id; its first thread has the same
  std::vector<TimedSpan> spans;                 ///< in any order
  std::map<std::int64_t, std::string> threads;  ///< names by thread id
  TimePoint zero;                 ///< this process' time at the moment that is 0 in all ranks' files
  std::int64_t zero_unix_ns = 0;  ///< the same moment, nanoseconds since 1970
  std::uint64_t dropped = 0;      ///< spans that were lost
};

/// The file's text: complete events ("ph":"X") with `ts` and `dur` in microseconds, exact to the nanosecond;
/// pid is the rank, tid the system's id of the thread; names of both as metadata. Spans are sorted by start,
/// an enclosing one before what it encloses.
/// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
std::string format_trace(Trace trace);

}  // namespace dtrain
