// Parameters on several CPUs of a process; tests/gpu/several_gpus_test.cc has GPUs.
#include <gtest/gtest.h>

#include "tests/support/several_devices.h"

namespace dtrain {
namespace {

TEST(SeveralDevices, GiveTheBitsOfOne) {
  test::expect_the_bits_of_one({make_device("cpu:0"), make_device("cpu:1")}, make_device("cpu"));
}

}  // namespace
}  // namespace dtrain
