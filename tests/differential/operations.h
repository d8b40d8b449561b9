// The operations of the differential test, by the names that reference.py has for them.
#pragma once

#include <functional>

#include "tests/differential/case.h"

namespace dtrain::differential {

using Operation = std::function<Results(const Case&)>;

const std::map<std::string, Operation>& operations();

}  // namespace dtrain::differential
