// The span recorder: what it keeps, in what order.
#include "runtime/base/spans.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

namespace dtrain {
namespace {

/// Goes on by a second at each reading.
class SteppingClock final : public Clock {
 public:
  TimePoint now() const noexcept override { return TimePoint(std::chrono::seconds(++readings_)); }

 private:
  mutable int readings_ = 0;
};

TEST(Spans, NestedScopesEndInnermostFirst) {
  const SteppingClock clock;
  SpanRecorder recorder(SpanRecorder::kDefaultLimit, clock);
  {
    const SpanScope outer(&recorder, "forward", "phase");
    const SpanScope inner(&recorder, "matmul", "kernel", 12);
  }
  const auto spans = recorder.take();
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[0].name, "matmul");
  EXPECT_EQ(spans[0].category, "kernel");
  EXPECT_EQ(spans[0].flops, 12);
  EXPECT_EQ(spans[0].duration(), std::chrono::seconds(1));
  EXPECT_EQ(spans[1].name, "forward");
  EXPECT_EQ(spans[1].duration(), std::chrono::seconds(3));
  EXPECT_LT(spans[1].start, spans[0].start);
  EXPECT_EQ(spans[0].thread, spans[1].thread);
  EXPECT_TRUE(recorder.take().empty());
}

TEST(Spans, CountsWhatIsTooMuch) {
  const SteppingClock clock;
  SpanRecorder recorder(2, clock);
  for (int i = 0; i < 5; ++i) recorder.add("copy", "kernel", {}, {});
  EXPECT_EQ(recorder.take().size(), 2U);
  EXPECT_EQ(recorder.dropped(), 3U);
}

TEST(Spans, KeepsNothingWhileNotRecording) {
  SpanRecorder recorder;
  recorder.set_recording(false);
  { const SpanScope scope(&recorder, "before", "phase"); }
  recorder.set_recording(true);
  { const SpanScope scope(&recorder, "within", "phase"); }
  recorder.set_recording(false);
  recorder.add("after", "phase", {}, {});
  const auto spans = recorder.take();
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_EQ(spans[0].name, "within");
  EXPECT_EQ(recorder.dropped(), 0U);
}

TEST(Spans, ListenerHearsScopesWhetherRecordedOrNot) {
  struct Heard final : SpanListener {
    void begin(std::string_view name) noexcept override { text.append("<").append(name); }
    void end() noexcept override { text.append(">"); }
    std::string text;
  } heard;
  SpanRecorder recorder;
  recorder.set_listener(&heard);
  recorder.set_recording(false);
  {
    const SpanScope outer(&recorder, "a", "phase");
    const SpanScope inner(&recorder, "b", "kernel");
  }
  EXPECT_EQ(heard.text, "<a<b>>");
}

TEST(Spans, KnowsTheNamesOfItsThreads) {
  SpanRecorder recorder;
  std::int64_t id = 0;
  std::thread other([&] {
    ::pthread_setname_np(::pthread_self(), "a-thread");
    id = ::gettid();
    const SpanScope scope(&recorder, "copy", "kernel");
  });
  other.join();
  EXPECT_EQ(recorder.threads(), (std::map<std::int64_t, std::string>{{id, "a-thread"}}));
}

TEST(Spans, ThreadsRecordAtOnceUnderTheirOwnIds) {
  SpanRecorder recorder;
  constexpr int kSpans = 1000;
  const auto work = [&] {
    for (int i = 0; i < kSpans; ++i) const SpanScope scope(&recorder, "copy", "kernel");
  };
  std::thread other(work);
  work();
  other.join();
  const auto spans = recorder.take();
  ASSERT_EQ(spans.size(), 2U * kSpans);
  int mine = 0;
  for (const TimedSpan& span : spans) {
    EXPECT_LE(span.start, span.end);
    mine += static_cast<int>(span.thread == static_cast<std::int64_t>(::gettid()));
  }
  EXPECT_EQ(mine, kSpans);
}

}  // namespace
}  // namespace dtrain
