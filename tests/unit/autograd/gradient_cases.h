// Operations as a table, each checked the same way: first and second gradients against central differences.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <ostream>
#include <string>
#include <vector>

#include "tests/unit/autograd/grad_check.h"

namespace dtrain::test {

/// A function of float64 inputs of the given shapes, drawn from [low, high).
struct Case {
  std::string name;
  std::vector<Dims> shapes;
  Function f;
  double low = -1, high = 1;
};

/// What GoogleTest prints of a case.
inline void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class CaseTest : public testing::TestWithParam<Case> {
 protected:
  std::vector<Tensor> inputs() const {
    std::vector<Tensor> result;
    for (const Dims& shape : GetParam().shapes) {
      result.push_back(random_f64(shape, 7 + result.size(), GetParam().low, GetParam().high));
    }
    return result;
  }
};

inline std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  std::string name = std::to_string(info.index) + "_" + info.param.name;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

}  // namespace dtrain::test
