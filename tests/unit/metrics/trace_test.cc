// The trace file: JSON that says who, where and when, to the nanosecond.
#include "runtime/metrics/trace.h"
#include "tests/support/json.h"

#include <gtest/gtest.h>

namespace dtrain {
namespace {

using std::chrono::nanoseconds;
using test::Json;

constexpr TimePoint kZero{std::chrono::hours(1)};

TimedSpan span(const std::string& name, std::int64_t start_ns, std::int64_t end_ns, std::int64_t thread) {
  return {name, "phase", kZero + nanoseconds(start_ns), kZero + nanoseconds(end_ns), thread};
}

Trace example() {
  return {
      .rank = 3,
      .host = "node\"1\"",
      .process = 70,
      .spans = {span("inner", 1'500, 2'001, 70), span("outer", 1'500, 9'000, 70), span("early", -1, 0, 71)},
      .threads = {{70, "dtrain"}, {71, "dtrain-comm"}},
      .zero = kZero,
      .zero_unix_ns = 1'767'322'845'250'000'123,
      .dropped = 5};
}

std::vector<Json> events(const Json& file, const std::string& phase) {
  std::vector<Json> found;
  for (const Json& event : file.at("traceEvents")) {
    if (event.at("ph") == phase) found.push_back(event);
  }
  return found;
}

TEST(Trace, EventsAreSortedAndExactToTheNanosecond) {
  const std::string text = format_trace(example());
  const auto found = events(Json::parse(text), "X");
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].at("name"), "early");
  EXPECT_EQ(found[0].at("ts"), -0.001);
  EXPECT_EQ(found[0].at("dur"), 0.001);
  EXPECT_EQ(found[1].at("name"), "outer");
  EXPECT_EQ(found[2].at("name"), "inner");
  EXPECT_NE(text.find(R"("ts":1.500,"dur":0.501)"), std::string::npos) << text;
  for (const Json& event : found) {
    EXPECT_EQ(event.at("pid"), 3);
    EXPECT_EQ(event.at("cat"), "phase");
    EXPECT_FALSE(event.contains("args"));
  }
}

TEST(Trace, NamesProcessAndThreads) {
  const auto found = events(Json::parse(format_trace(example())), "M");
  std::map<std::string, Json> of;
  for (const Json& event : found)
    of[event.at("name").get<std::string>() + event.at("tid").dump()] = event.at("args");
  EXPECT_EQ(of.at("process_name70").at("name"), "rank 3 (node\"1\", pid 70)");
  EXPECT_EQ(of.at("process_sort_index70").at("sort_index"), 3);
  EXPECT_EQ(of.at("thread_name70").at("name"), "training");
  EXPECT_EQ(of.at("thread_name71").at("name"), "comm");
}

TEST(Trace, KeepsWhatIsNeededToPlaceIt) {
  const Json other = Json::parse(format_trace(example())).at("otherData");
  EXPECT_EQ(other.at("zero_unix_ns"), "1767322845250000123");
  EXPECT_EQ(other.at("dropped_spans"), 5);
}

TEST(Trace, FlopsAreAnArgument) {
  Trace trace = example();
  trace.spans[0].flops = 2e12;
  const auto found = events(Json::parse(format_trace(trace)), "X");
  EXPECT_EQ(found[2].at("args").at("flops"), 2'000'000'000'000);
}

TEST(Trace, WithoutSpansIsStillAFile) { EXPECT_TRUE(events(Json::parse(format_trace({})), "X").empty()); }

}  // namespace
}  // namespace dtrain
