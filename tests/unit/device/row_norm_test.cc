// What layer and RMS norm refuse; their numbers are in tests/operations.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/base/error.h"
#include "tests/unit/device/array.h"

namespace dtrain {
namespace {

using test::Array;

TEST(RowNormErrors, NameTheArgument) {
  const auto device = make_device("cpu");
  const Array x({2, 3}), y({2, 3}), wrong({2}), stat({2});
  EXPECT_THROW(device->kernels().row_norm({}, x, wrong, {}, stat, stat, y), UsageError);
  EXPECT_THROW(device->kernels().row_norm({}, x, {}, {}, stat, {}, y), UsageError);
  EXPECT_THROW(device->kernels().row_norm({}, x, {}, {}, stat, stat, stat), UsageError);
}

}  // namespace
}  // namespace dtrain
