// The one message for an option outside its range.
#pragma once

#include <string_view>

namespace dtrain {

/// Throws UsageError: "`optimizer`: `option` must be `range`, got `value`" unless `valid`; a value that is
/// not finite never is.
void require_option(bool valid, std::string_view optimizer, std::string_view option, std::string_view range,
                    double value);
/// Finite and at least 0.
void require_not_negative(std::string_view optimizer, std::string_view option, double value);

}  // namespace dtrain
