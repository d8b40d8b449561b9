// Memory that processes of one machine share. It has no name in any file system: nothing is left behind,
// whatever kills them.
#pragma once

#include <sys/types.h>

#include <cstddef>

#include "runtime/base/fd.h"

namespace dtrain {

/// A piece of this process's address space that stands for shared memory.
struct Mapping {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool operator==(const Mapping&) const = default;
};

struct MappingTraits {
  using Handle = Mapping;
  static Handle invalid() noexcept { return {}; }
  static void close(Handle mapping) noexcept;
};

/// Owns the mapping and, where it was created, the descriptor others open it by.
class SharedMemory {
 public:
  /// `bytes` of zeros, taken from the machine's memory as they are touched. Throws SystemError.
  static SharedMemory create(std::size_t bytes);
  /// What process `owner` of this machine, alive, has under its descriptor `fd`. Throws SystemError where the
  /// system does not allow it, or it is smaller than `bytes`.
  static SharedMemory of_process(pid_t owner, int fd, std::size_t bytes);

  /// `bytes` of zeros for the threads of this process alone, taken as they are touched. Throws SystemError.
  static SharedMemory within_process(std::size_t bytes);

  std::byte* data() const noexcept { return mapping_.get().data; }
  int fd() const noexcept { return fd_.get(); }
  /// All who are to open it have.
  void close_fd() noexcept { fd_.reset(); }

 private:
  SharedMemory(UniqueFd fd, std::size_t bytes, int flags);

  UniqueFd fd_;
  Unique<MappingTraits> mapping_;
};

}  // namespace dtrain
