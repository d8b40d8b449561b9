// The fixed cases of cases.jsonl, what each gives on a device, and how far that may be from float64.
#pragma once

#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "tests/operations/operations.h"

namespace dtrain::test {

/// A line of cases.jsonl.
struct FixedCase {
  std::string name;
  Json json;
  Kind kind = Kind::function;
  bool is_large = false;  ///< not differentiated nor recorded: other dtypes and devices beside float64 alone
  bool for_cpu = false;   ///< of extents that the CPU's kernels treat specially
  double rough = 1;       ///< how many times more than others its errors may be
  int orders = 2;  ///< of gradients that differences confirm: not where one is defined as 0, or not there
  bool has_images = false;  ///< arguments that may be channels-last
  bool has_ties = false;    ///< rounding to 16 bits decides who gets the gradient
};

/// Whether arguments are to be channels-last: once no, and of images once yes.
std::vector<bool> layouts_of(const FixedCase& c);

/// What GoogleTest prints of a case, and calls it.
void PrintTo(const FixedCase& c, std::ostream* out);
std::string name_of_case(const FixedCase& c);

/// All of them, in the order of the file. Throws Error for a name that is there twice and an unknown
/// operation.
const std::vector<FixedCase>& fixed_cases();

/// Values in float64 by name: the results, then the gradients of all leaves as "grad NAME".
using Values = std::map<std::string, std::vector<double>>;
Values values_of(const FixedCase& c, const std::shared_ptr<Device>& device, const Form& form);

/// The results where no gradient is wanted, which may take another way.
Values results_of(const FixedCase& c, const std::shared_ptr<Device>& device, const Form& form);

/// What PyTorch gives in float64 (record.py); empty where nothing is recorded.
Values recorded_values(const FixedCase& c);

/// How far results of `dtype` may be off, as a share of the largest value of a tensor.
double tolerance_of(DType dtype);

/// Each tensor within `tolerance` times its largest value (taken for 0.1 where it is less) of the expected
/// one. What is not finite has to be so in the same places.
void expect_alike(const Values& got, const Values& expected, double tolerance);

}  // namespace dtrain::test
