// What the emulated machine has done, for programs that want to know: each kernel and library call with the
// bytes it moved and the operations it took. Exact numbers about the program, and nothing about time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace emulation {

/// What the multiply-adds of a library call are done in.
enum class Arithmetic { none, f64, f32, tf32, bf16, f16 };

struct Work {
  std::string name;  ///< the kernel's, or the library's function
  /// Bytes of GPU memory, of a kernel's in sectors of 32, each counted once a call; a library's inputs and
  /// outputs, without its workspace.
  std::uint64_t read_bytes = 0, written_bytes = 0;
  std::uint64_t bus_bytes = 0;  ///< between host and GPU
  double operations = 0;        ///< of libraries; a multiply and an add are two
  Arithmetic arithmetic = Arithmetic::none;
};

/// Notes work from now on, or no longer. False where kernels were not compiled so that their memory can be
/// watched (under sanitizers): their bytes are 0 then.
bool note_work(bool on);
/// What was noted since the last call, in the order in which it ran.
std::vector<Work> take_work();
/// What the machine was asked to do since its start, by name ("launches", "host_waits", …).
std::map<std::string, std::uint64_t> current_counts();

}  // namespace emulation
