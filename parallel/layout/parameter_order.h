// The parameters of a whole network, numbered: what stages add up parameter by parameter has the same bits
// wherever the network is cut.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "runtime/nn/module.h"

namespace dtrain {

class ParameterOrder {
 public:
  ParameterOrder() = default;
  /// In the order of whole.named_parameters(). Copies names; the network may go.
  explicit ParameterOrder(const Module& whole);

  std::size_t size() const noexcept { return count_; }
  /// The number of a parameter, by any of its names where several modules share it. Throws UsageError for
  /// another name.
  std::size_t at(const std::string& name) const;

 private:
  std::size_t count_ = 0;
  std::map<std::string, std::size_t> numbers_;
};

}  // namespace dtrain
