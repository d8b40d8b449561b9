#include "runtime/optim/option_checks.h"

#include <cmath>
#include <string>

#include "runtime/base/error.h"

namespace dtrain {

void require_option(bool valid, std::string_view optimizer, std::string_view option, std::string_view range,
                    double value) {
  if (valid && std::isfinite(value)) return;
  throw UsageError(std::string(optimizer) + ": " + std::string(option) + " must be " + std::string(range) +
                   ", got " + std::to_string(value));
}

void require_not_negative(std::string_view optimizer, std::string_view option, double value) {
  require_option(value >= 0, optimizer, option, "finite and at least 0", value);
}

}  // namespace dtrain
