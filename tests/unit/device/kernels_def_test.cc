// What is generated from kernels.def: each kernel arrives at the same kernel of the table behind, with its
// arguments, under its own name.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/device/checked_kernels.h"
#include "runtime/device/timed_kernels.h"
#include "tests/support/message_of.h"
#include "tests/support/tape_device.h"

namespace dtrain {
namespace {

/// The name a declaration ends with: "const View& in" → "in".
constexpr std::string_view last_word(std::string_view declaration) {
  return declaration.substr(declaration.find_last_of(" &") + 1);
}

/// Whether `arguments`, "(a, b)", are the names of `parameters`, "(T a, U b)", in order.
constexpr bool hands_on(std::string_view parameters, std::string_view arguments) {
  parameters.remove_prefix(1);
  arguments.remove_prefix(1);
  for (;;) {
    const auto end = parameters.find_first_of(",)"), argument_end = arguments.find_first_of(",)");
    if (parameters[end] != arguments[argument_end]) return false;
    if (last_word(parameters.substr(0, end)) != last_word(arguments.substr(0, argument_end))) return false;
    if (parameters[end] == ')') return true;
    parameters.remove_prefix(end + 1);
    arguments.remove_prefix(argument_end + 1);
  }
}

static_assert(hands_on("(const View& in, double scale)", "(in, scale)"));
static_assert(!hands_on("(const View& in, const View& out)", "(out, in)"));
static_assert(!hands_on("(const View& in, const View& out)", "(in)"));

#define DTRAIN_KERNEL(name, kind, flops, parameters, arguments) \
  static_assert(hands_on(#parameters, #arguments), #name " does not hand on its parameters in order");
#include "runtime/device/kernels.def"

/// Computes nothing, but remembers what was called.
class NamingKernels : public Kernels {
 public:
  std::vector<std::string> called;

#define DTRAIN_KERNEL(name, kind, flops, parameters, arguments) \
  void name parameters override {                               \
    called.emplace_back(#name);                                 \
    arguments_of arguments;                                     \
  }
#include "runtime/device/kernels.def"

 private:
  template <class... T>
  static void arguments_of(const T&...) {}
};

struct Listed {
  std::string name, kind;
};

std::vector<Listed> all_kernels() {
  return {
#define DTRAIN_KERNEL(name, kind, flops, parameters, arguments) {#name, #kind},
#include "runtime/device/kernels.def"
  };
}

template <class T>
T some() {
  return T{};
}
/// The extents of the next view, and how they grow from view to view: by 0, all fit each other.
std::int64_t next_extent = 1, extent_step = 0;
/// Of a rank that every count of operations can read.
template <>
View some<View>() {
  next_extent += extent_step;
  return {nullptr, DType::f32, {next_extent, next_extent, next_extent, next_extent}, {1, 1, 1, 1}};
}
template <>
std::span<const OptimizerSlot> some<std::span<const OptimizerSlot>>() {
  static OptimizerSlot slot;
  slot = {some<View>(), some<View>(), some<View>(), some<View>(), some<View>()};
  return {&slot, 1};
}

template <class... P>
void call(Kernels& kernels, void (Kernels::*kernel)(P...)) {
  (kernels.*kernel)(some<std::remove_cvref_t<P>>()...);
}

void call_all(Kernels& kernels) {
#define DTRAIN_KERNEL(name, kind, flops, parameters, arguments) call(kernels, &Kernels::name);
#include "runtime/device/kernels.def"
}

TEST(KernelsDef, TimingHandsEveryKernelOnUnderItsNameAndKind) {
  const auto device = make_device("cpu");
  NamingKernels inner;
  SpanRecorder spans;
  TimedKernels timed(inner, device->compute_stream(), spans);
  call_all(timed);
  const auto listed = all_kernels();
  const auto recorded = spans.take();
  ASSERT_EQ(inner.called.size(), listed.size());
  ASSERT_EQ(recorded.size(), listed.size());
  for (std::size_t i = 0; i < listed.size(); ++i) {
    EXPECT_EQ(inner.called[i], listed[i].name);
    EXPECT_EQ(recorded[i].name, listed[i].name);
    EXPECT_EQ(recorded[i].category, listed[i].kind);
  }
}

TEST(KernelsDef, ArgumentsAreCheckedBeforeAnyKernelRuns) {
  CheckedKernels<NamingKernels> checked;
  std::vector<std::string> refused;
  extent_step = 1;
#define DTRAIN_KERNEL(name, kind, flops, parameters, arguments) \
  try {                                                         \
    call(checked, &Kernels::name);                              \
  } catch (const UsageError&) {                                 \
    refused.emplace_back(#name);                                \
  }
#include "runtime/device/kernels.def"
  extent_step = 0;
  // These two have nothing that could not fit.
  EXPECT_EQ(checked.inner().called, (std::vector<std::string>{"fill", "update_loss_scale"}));
  EXPECT_EQ(refused.size() + 2, all_kernels().size());
}

/// Whose fill() is called while another thread fills.
class CalledBackKernels : public NamingKernels {
 public:
  void fill(const View& out, double value) override {
    if (meanwhile) std::exchange(meanwhile, nullptr)();
    NamingKernels::fill(out, value);
  }
  std::function<void()> meanwhile;
};

TEST(KernelsDef, ATableIsForOneThreadAtATime) {
  CalledBackKernels* inner = nullptr;
  CheckedKernels<CalledBackKernels> checked;
  inner = const_cast<CalledBackKernels*>(&checked.inner());
  std::string said;
  inner->meanwhile = [&] {
    std::thread other([&] { said = test::message_of([&] { checked.fill(some<View>(), 1); }); });
    other.join();
    checked.fill(some<View>(), 1);  // the same thread may
  };
  checked.fill(some<View>(), 1);
  EXPECT_NE(said.find("kernel fill: expected one thread at a time on a device"), std::string::npos) << said;
  EXPECT_EQ(inner->called.size(), 2U);
  std::thread([&] { EXPECT_NO_THROW(checked.fill(some<View>(), 1)); }).join();  // one after the other
}

TEST(KernelsDef, ATapeKeepsEveryKernelUntilItIsPlayed) {
  NamingKernels inner;
  test::Tape tape;
  test::TapeKernels kernels(inner, tape);
  tape.recording = true;
  call_all(kernels);
  EXPECT_TRUE(inner.called.empty());
  for (const auto& play : tape.work) play();
  const auto listed = all_kernels();
  ASSERT_EQ(inner.called.size(), listed.size());
  for (std::size_t i = 0; i < listed.size(); ++i) EXPECT_EQ(inner.called[i], listed[i].name);
}

}  // namespace
}  // namespace dtrain
