// Which server has which part of a network: parameters as keys, by size. A pure function, so that all workers
// come to the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/tensor/named_tensors.h"

namespace dtrain::server {

/// Longer parameters are cut into keys of at most so many bytes, where there are several servers.
inline constexpr std::int64_t kMostKeyBytes = 4 << 20;

/// A key: a parameter, or a range of one's elements in row-major order.
struct ParameterKey {
  std::string name;           ///< the parameter's, or "fc1.weight[0:1048576]"
  std::size_t parameter = 0;  ///< which of the parameters
  std::int64_t begin = 0, count = 0;
  bool whole = true;
  int server = 0;

  /// The key's part of `tensor`, which is like the parameter and dense; shares its memory. A range of a
  /// vector is a vector, one of anything else a matrix of one row, so that rules which leave vectors alone
  /// see it.
  Tensor part_of(const Tensor& tensor) const;
};

/// Keys in the order of `parameters`. Each goes to the server that has the fewest bytes so far, the largest
/// first. Parameters that are not row-major are never cut.
std::vector<ParameterKey> lay_out_keys(const NamedTensors& parameters, int servers);

/// An optimizer's state of keys, by the names "<key>.<quantity>", as that of whole parameters, and back.
/// State that belongs to no key, or is one number a key, is the same for all of them.
NamedTensors state_of_parameters(const std::vector<ParameterKey>& keys, const NamedTensors& parameters,
                                 const std::vector<NamedTensors>& by_server);
std::vector<NamedTensors> state_by_server(const std::vector<ParameterKey>& keys,
                                          const NamedTensors& parameters, const NamedTensors& state,
                                          int servers);

}  // namespace dtrain::server
