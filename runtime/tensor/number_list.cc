#include "runtime/tensor/number_list.h"

#include <string>

#include "runtime/base/error.h"

namespace dtrain {

NumberList::NumberList(std::initializer_list<NumberList> parts) {
  if (parts.size() > 0) kind_ = parts.begin()->kind_;
  shape_.push_back(static_cast<std::int64_t>(parts.size()));
  const Dims inner = parts.size() == 0 ? Dims() : parts.begin()->shape_;
  for (const std::int64_t extent : inner) shape_.push_back(extent);
  for (const NumberList& part : parts) {
    if (part.shape_ != inner) {
      throw UsageError("tensor of numbers: expected lists of one shape, got " + inner.to_string() + " and " +
                       part.shape_.to_string() + " side by side");
    }
    numbers_.insert(numbers_.end(), part.numbers_.begin(), part.numbers_.end());
    if (kind_ == part.kind_) continue;
    const bool has_fractions = kind_ == DType::f32 || part.kind_ == DType::f32;
    kind_ = has_fractions ? DType::f32 : DType::i64;  // a truth value beside a number is 0 or 1
  }
}

}  // namespace dtrain
