// How elements and rows are cut into chunks for the threads of a worker: by shape alone, so that results have
// the same bits for any number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/device/cpu/workers/workers.h"

namespace dtrain::cpu {

/// 64 KiB of f32: some microseconds of work.
inline constexpr std::int64_t kElementsOfChunk = 16384;

/// Rows of so many columns that make a chunk, at least one.
inline std::int64_t rows_of_chunk(std::int64_t columns) {
  return std::max<std::int64_t>(1, kElementsOfChunk / std::max<std::int64_t>(1, columns));
}

}  // namespace dtrain::cpu
