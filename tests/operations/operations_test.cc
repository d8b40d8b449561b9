// Every case of the table beside PyTorch's answers and, in other dtypes and layouts, beside float64; and that
// the table has every function of autograd and reaches every kernel.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "tests/operations/guarded_device.h"
#include "tests/operations/suite.h"
#include "tests/unit/autograd/grad_check.h"

namespace dtrain::test {
namespace {

/// One for all tests: it keeps the names of the kernels that ran.
const std::shared_ptr<GuardedDevice>& device() {
  static const std::shared_ptr<GuardedDevice> made = make_guarded_device();
  return made;
}

/// The results alone.
Values without_gradients(Values values) {
  std::erase_if(values, [](const auto& entry) { return entry.first.starts_with("grad "); });
  return values;
}

class EachCase : public testing::TestWithParam<FixedCase> {
 protected:
  void TearDown() override { EXPECT_FALSE(device()->take_overrun()) << "memory beside an array was written"; }
};

TEST_P(EachCase, HasTheNumbersOfPyTorch) {
  const FixedCase& c = GetParam();
  const Values expected = recorded_values(c);
  if (c.is_large) {
    EXPECT_TRUE(expected.empty()) << "large cases are not recorded";
    return;
  }
  ASSERT_FALSE(expected.empty()) << "run tests/operations/record.py";
  expect_alike(values_of(c, device(), {DType::f32}), expected, c.rough * tolerance_of(DType::f32));
  expect_alike(results_of(c, device(), {DType::f32}), without_gradients(expected),
               c.rough * tolerance_of(DType::f32));
  if (c.kind == Kind::layer) return;
  expect_alike(values_of(c, device(), {DType::f64}), expected, c.rough * tolerance_of(DType::f64));
}

/// Float64 of the same rounded values is the reference: it is PyTorch's, by the test above.
TEST_P(EachCase, IsWithinRoundingInEveryDtypeAndLayout) {
  const FixedCase& c = GetParam();
  if (c.kind == Kind::layer) return;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Values exact = values_of(c, cpu(), {DType::f64, dtype});
    for (const bool channels_last : layouts_of(c)) {
      SCOPED_TRACE(std::string(name_of(dtype)) + (channels_last ? ", channels-last" : ""));
      expect_alike(values_of(c, device(), {dtype, dtype, channels_last}), exact,
                   c.rough * tolerance_of(dtype));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, EachCase, testing::ValuesIn(fixed_cases()),
                         [](const auto& of) { return name_of_case(of.param); });

/// The functions that a header declares: lines that begin with what they return, "Tensor add(".
std::set<std::string> functions_of(const std::filesystem::path& header) {
  static const std::regex kDeclaration(R"(^(?:inline )?(?:Tensor|Tensors|Sorted|LstmState) (\w+)\()");
  std::set<std::string> functions;
  std::ifstream file(header);
  std::smatch match;
  for (std::string line; std::getline(file, line);) {
    if (std::regex_search(line, match, kDeclaration)) functions.insert(match[1].str());
  }
  functions.erase("operator");
  return functions;
}

TEST(Table, HasEveryFunctionOfAutograd) {
  const std::filesystem::path autograd = std::filesystem::path(DTRAIN_SOURCE) / "runtime" / "autograd";
  std::set<std::string> functions = functions_of(autograd / "ops.h");
  for (const auto& entry : std::filesystem::directory_iterator(autograd / "ops"))
    functions.merge(functions_of(entry));
  ASSERT_GT(functions.size(), 60U);
  for (const std::string& function : functions)
    EXPECT_TRUE(operations().contains(function)) << function << " is not in the table (tests/operations)";
}

TEST(Table, HasACaseOfEveryOperation) {
  std::set<std::string> used;
  for (const FixedCase& c : fixed_cases()) used.insert(c.json["op"].text());
  for (const auto& [name, operation] : operations())
    EXPECT_TRUE(used.contains(name)) << "cases.jsonl has no case of " << name;
}

/// A case forward and back, once and twice, and without gradients.
void run_all_ways(const FixedCase& c, const std::shared_ptr<GuardedDevice>& on) {
  for (const bool channels_last : layouts_of(c)) values_of(c, on, {DType::f32, {}, channels_last});
  const Case once(c.json, on);
  {
    const NoGrad no_grad;
    operations().at(once.operation()).run(once);
  }
  const std::vector<Tensor> leaves = once.leaves();
  if (c.kind != Kind::function || c.orders < 2 || leaves.empty()) return;
  const Tensor result = operations().at(once.operation()).run(once).front().second;
  const std::vector<Tensor> first = gradients(sum(square(result)), leaves, {}, {.create_graph = true});
  for (const Tensor& gradient : first) {
    if (gradient.defined() && gradient.requires_grad())
      gradients(sum(gradient), leaves, {}, {.retain_graph = true});
  }
}

/// On a CPU, and on one that says that it is a GPU: nothing of kernels.def is left out.
TEST(Table, ReachesEveryKernel) {
  const auto noted = make_guarded_device(), gpu = make_guarded_device(DeviceType::cuda);
  for (const FixedCase& c : fixed_cases()) {
    if (c.is_large && c.kind != Kind::update) continue;
    run_all_ways(c, noted);
    if (c.json["op"].text().starts_with("conv2d_")) values_of(c, gpu, {DType::f32, {}, true});
  }
  for (const std::string& kernel : all_kernels())
    EXPECT_TRUE(noted->called().contains(kernel) || gpu->called().contains(kernel))
        << "no case of the table reaches the kernel " << kernel;
}

}  // namespace
}  // namespace dtrain::test
