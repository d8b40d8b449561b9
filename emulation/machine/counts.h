// What the machine was asked to do: exact numbers, so that a change in them is a change in the program.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>

namespace emulation {

struct Counts {
  std::atomic<std::uint64_t> launches = 0;  ///< kernels, and calls of libraries that are kernels on a GPU
  std::atomic<std::uint64_t> graph_launches = 0;
  std::atomic<std::uint64_t> graph_nodes = 0;  ///< run by graph launches
  std::atomic<std::uint64_t> host_waits = 0;   ///< calls that block the host until a GPU is there
  std::atomic<std::uint64_t> allocations = 0;  ///< cudaMalloc and from pools
  std::atomic<std::uint64_t> pinned_allocations = 0;
  std::atomic<std::uint64_t> copies = 0;
  std::atomic<std::uint64_t> copied_bytes = 0;
  std::atomic<std::uint64_t> collectives = 0;
};

/// By name.
std::map<std::string, std::uint64_t> values(const Counts& counts);
/// One JSON object; %p in the name becomes the process' number. Failures are nobody's concern.
void write(const Counts& counts, std::string file);

}  // namespace emulation
