// What a user can set about the emulated machine, by environment variables with the prefix that the build
// chose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace emulation {

/// Names begin with EMULATION_PREFIX ("EMULATED_CUDA_" unless the build says otherwise).
struct Options {
  int gpus = 1;             ///< …GPUS: in the machine, before CUDA_VISIBLE_DEVICES
  std::uint64_t seed = 0;   ///< …SEED: order of threads, blocks and streams; 0: as they come, at once
  int multiprocessors = 4;  ///< …MULTIPROCESSORS: few keep grids small
  std::size_t memory_bytes = std::size_t{16} << 30;  ///< …MEMORY_BYTES: of each GPU
  std::string faults;                                ///< …FAULTS (faults.h)
  bool races = false;  ///< …CHECK=races: those in shared memory lose the context
  bool twice = false;  ///< …CHECK=twice: each kernel runs twice, in two orders, and must leave the same
  std::string counts_file;   ///< …COUNTS: where the counts are written when the process ends
  std::vector<int> visible;  ///< what CUDA_VISIBLE_DEVICES leaves, in its order
};

/// From the environment. A value that cannot be read leaves no GPU visible, as a driver that fails.
Options read_options();

/// The devices that CUDA_VISIBLE_DEVICES leaves of `gpus`: numbers or the beginnings of UUIDs, up to the
/// first that names none; none where one is named twice. Null: all.
std::vector<int> visible_devices(int gpus, const char* text);

/// "GPU-454d5500-0000-0000-0000-000000000003", for GPU 3.
std::string uuid_text(int gpu);

}  // namespace emulation
