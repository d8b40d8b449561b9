// What the emulated machine has of CUB.
#pragma once

#include <cub/block/block_reduce.cuh>
