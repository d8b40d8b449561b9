// How much a store keeps, so that nobody fills its host's memory.
#pragma once

#include <cstddef>

namespace dtrain {

struct StoreTableLimits {
  std::size_t max_bytes = std::size_t{256} << 20;  ///< keys and values together
  std::size_t max_keys = 1U << 20;
  std::size_t max_waits_per_client = 4096;
};

}  // namespace dtrain
