#include "runtime/metrics/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

namespace dtrain {
namespace {

std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Nanoseconds as microseconds, every digit kept: spans that nest still do when they are read back.
std::string microseconds(Duration duration) {
  const std::int64_t ns = duration.count(), size = ns < 0 ? -ns : ns;
  return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", size / 1000, size % 1000);
}

std::string metadata(std::string_view kind, int rank, std::int64_t thread, std::string_view argument) {
  return fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{}}})", kind, rank, thread, argument);
}

// For people; a thread that nobody named has its process' name.
std::string name_of_thread(const Trace& trace, std::int64_t thread, const std::string& name) {
  if (thread == trace.process) return "training";
  constexpr std::string_view kOurs = "dtrain-";
  return name.starts_with(kOurs) ? name.substr(kOurs.size()) : name;
}

std::string event(const Trace& trace, const TimedSpan& span) {
  return fmt::format(R"({{"ph":"X","name":{},"cat":"{}","pid":{},"tid":{},"ts":{},"dur":{}{}}})",
                     json_string(span.name), span.category, trace.rank, span.thread,
                     microseconds(span.start - trace.zero), microseconds(span.duration()),
                     span.flops > 0 ? fmt::format(R"(,"args":{{"flops":{:.0f}}})", span.flops) : "");
}

}  // namespace

std::string format_trace(Trace trace) {
  std::sort(trace.spans.begin(), trace.spans.end(), [](const TimedSpan& a, const TimedSpan& b) {
    return a.start != b.start ? a.start < b.start : a.end > b.end;
  });
  fmt::memory_buffer text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, R"({{"displayTimeUnit":"ms","otherData":{{"zero_unix_ns":"{}","dropped_spans":{}}},)",
                 trace.zero_unix_ns, trace.dropped);
  fmt::format_to(
      out, "\n\"traceEvents\":[\n{},\n{}",
      metadata("process_name", trace.rank, trace.process,
               fmt::format(R"({{"name":{}}})", json_string(fmt::format("rank {} ({}, pid {})", trace.rank,
                                                                       trace.host, trace.process)))),
      metadata("process_sort_index", trace.rank, trace.process,
               fmt::format(R"({{"sort_index":{}}})", trace.rank)));
  for (const auto& [thread, name] : trace.threads) {
    fmt::format_to(
        out, ",\n{}",
        metadata("thread_name", trace.rank, thread,
                 fmt::format(R"({{"name":{}}})", json_string(name_of_thread(trace, thread, name)))));
  }
  for (const TimedSpan& span : trace.spans) fmt::format_to(out, ",\n{}", event(trace, span));
  fmt::format_to(out, "\n]}}\n");
  return fmt::to_string(text);
}

}  // namespace dtrain
