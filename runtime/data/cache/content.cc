// Maps files for reading. Pages are faulted in as samples are read; nothing is read ahead of use here.
#include "runtime/data/cache/content.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "runtime/base/check.h"
#include "runtime/base/error.h"

namespace dtrain {

MappedFile::MappedFile(int fd, std::size_t size_bytes, std::string path)
    : path_(std::move(path)),
      fd_(static_cast<int>(
          check(Sys{::fcntl(fd, F_DUPFD_CLOEXEC, 0)}, "duplicate the descriptor of " + path_))) {
  void* const address = ::mmap(nullptr, size_bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) throw SystemError("mmap " + path_, errno);
  bytes_ = {static_cast<const std::uint8_t*>(address), size_bytes};
}

MappedFile::~MappedFile() { ::munmap(const_cast<std::uint8_t*>(bytes_.data()), bytes_.size()); }

void MappedFile::check_length() const {
  struct stat info {};
  check(Sys{::fstat(fd_.get(), &info)}, "fstat " + path_);
  if (static_cast<std::uint64_t>(info.st_size) >= bytes_.size()) return;
  throw DataError(path_, info.st_size, fmt::format("the {} bytes it had when it was opened", bytes_.size()),
                  fmt::format("{}; it was shortened or written anew while it was read (write a new file "
                              "beside it and rename that instead)",
                              info.st_size));
}

Content map_file(int fd, std::size_t size_bytes, const std::string& path) {
  auto mapped = std::make_shared<const MappedFile>(fd, size_bytes, path);
  const auto bytes = mapped->bytes();
  return {mapped, bytes, mapped};
}

}  // namespace dtrain
