// Element-wise reductions of NCCL's types, rounded after each pair as its rings do.
#pragma once

#include <nccl.h>

#include <cstddef>

namespace emulation {

/// 0 for a type NCCL does not have.
std::size_t size_of(ncclDataType_t type);

/// to[i] = to[i] op from[i]
void reduce(ncclDataType_t type, ncclRedOp_t op, void* to, const void* from, std::size_t count);

/// What an average still needs when all are added up.
void divide(ncclDataType_t type, void* values, std::size_t count, int ranks);

}  // namespace emulation
