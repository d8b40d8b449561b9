// The operations of the differential test, by the names that reference.py has for them.
#pragma once

#include <functional>

#include "tests/differential/case.h"

namespace dtrain::differential {

using Operation = std::function<Results(const Case&)>;
using Table = std::map<std::string, Operation>;

/// Those of more_operations.cc.
void add_more(Table& table);

const Table& operations();

}  // namespace dtrain::differential
