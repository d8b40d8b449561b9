#include "runtime/data/batch.h"

#include <fmt/format.h>

#include "runtime/base/error.h"

namespace dtrain {

const View& Batch::operator[](std::string_view field) const {
  const Field* const found = find_field(fields(), field);
  if (found == nullptr)
    throw UsageError(
        fmt::format("batch: expected one of its fields ({}), got \"{}\"", describe(fields()), field));
  return views_[static_cast<std::size_t>(found - fields().data())];
}

}  // namespace dtrain
