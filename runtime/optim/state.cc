#include "runtime/optim/state.h"

#include "runtime/base/error.h"

namespace dtrain {

SavedState::SavedState(const Optimizer::NamedTensors& state) {
  for (const auto& [name, tensor] : state) {
    if (!left_.emplace(name, tensor).second) {
      throw UsageError("optimizer state: \"" + name + "\" is given twice");
    }
  }
}

Tensor SavedState::take(std::string_view parameter, std::string_view quantity, const Tensor& like) {
  const auto entry = left_.find(std::string(parameter) + "." + std::string(quantity));
  if (entry == left_.end()) return {};
  const Tensor found = entry->second;
  if (found.shape() != like.shape()) {
    throw UsageError("optimizer state: \"" + entry->first + "\" expected shape " + like.shape().to_string() +
                     ", got " + found.shape().to_string());
  }
  left_.erase(entry);
  Tensor copy = Tensor::empty(like.shape(), like.shared_device(), like.dtype());
  copy.copy_from(found.detach().to(like.shared_device()));
  return copy;
}

void SavedState::check_all_taken() const {
  if (left_.empty()) return;
  throw UsageError("optimizer state: \"" + left_.begin()->first + "\" and " +
                   std::to_string(left_.size() - 1) +
                   " others belong to no parameter of this optimizer; it was saved with other settings (such "
                   "as momentum), another optimizer or another model: give those it was saved with");
}

void throw_incomplete_state(std::string_view parameter, std::string_view quantities) {
  throw UsageError("optimizer state of \"" + std::string(parameter) + "\": expected " +
                   std::string(quantities) + " together, got only some");
}

}  // namespace dtrain
