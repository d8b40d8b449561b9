// Maps files for reading. Pages are faulted in as samples are read; nothing is read ahead of use here.
#include "runtime/data/cache/content.h"

#include <sys/mman.h>

#include <cerrno>
#include <string>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

class Mapping {
 public:
  Mapping(int fd, std::size_t size_bytes, const std::string& path) : size_bytes_(size_bytes) {
    address_ = ::mmap(nullptr, size_bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (address_ == MAP_FAILED) throw SystemError("mmap " + path, errno);
  }
  ~Mapping() { ::munmap(address_, size_bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::span<const std::uint8_t> bytes() const noexcept {
    return {static_cast<const std::uint8_t*>(address_), size_bytes_};
  }

 private:
  void* address_;
  std::size_t size_bytes_;
};

}  // namespace

Content map_file(int fd, std::size_t size_bytes, const std::string& path) {
  auto mapping = std::make_shared<const Mapping>(fd, size_bytes, path);
  const auto bytes = mapping->bytes();
  return {std::move(mapping), bytes};
}

}  // namespace dtrain
