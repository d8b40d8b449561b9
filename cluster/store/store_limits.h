// How much a store keeps, so that no client can fill its host's memory.
#pragma once

#include <cstddef>

namespace dtrain {

struct StoreTableLimits {
  std::size_t max_bytes = std::size_t{256} << 20;  ///< keys and values together
  std::size_t max_keys = 1U << 20;
  // Keys without a value, which are only waited for, may be as many again, and take as many bytes again.
  std::size_t max_waits_per_client = 4096;
  std::size_t max_awaited_keys_per_client = 1U << 17;  ///< in all its waits: a key for each of the most ranks
};

}  // namespace dtrain
