#include "collectives/shm/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "runtime/base/check.h"

namespace dtrain {

void MappingTraits::close(Mapping mapping) noexcept { ::munmap(mapping.data, mapping.bytes); }

SharedMemory::SharedMemory(UniqueFd fd, std::size_t bytes, int flags) : fd_(std::move(fd)) {
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd_.get(), 0);
  check(Sys(mapped == MAP_FAILED ? -1 : 0), "mmap of memory shared between ranks");
  mapping_.reset({static_cast<std::byte*>(mapped), bytes});
}

SharedMemory SharedMemory::within_process(std::size_t bytes) {
  return {UniqueFd(), bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE};
}

SharedMemory SharedMemory::create(std::size_t bytes) {
  UniqueFd fd(static_cast<int>(check(Sys(::memfd_create("dtrain-ranks", MFD_CLOEXEC)), "memfd_create")));
  check(Sys(::ftruncate(fd.get(), static_cast<off_t>(bytes))), "ftruncate of memory shared between ranks");
  return {std::move(fd), bytes, MAP_SHARED};
}

SharedMemory SharedMemory::of_process(pid_t owner, int fd, std::size_t bytes) {
  const std::string path = fmt::format("/proc/{}/fd/{}", owner, fd);
  UniqueFd opened(static_cast<int>(check(Sys(::open(path.c_str(), O_RDWR | O_CLOEXEC)), path)));
  struct stat status {};
  check(Sys(::fstat(opened.get(), &status)), path);
  if (static_cast<std::size_t>(status.st_size) < bytes) {
    throw SystemError(
        fmt::format("{}: expected {} bytes of shared memory, found {}", path, bytes, status.st_size), EINVAL);
  }
  SharedMemory memory(std::move(opened), bytes, MAP_SHARED);
  memory.close_fd();
  return memory;
}

}  // namespace dtrain
