#include "emulation/nccl/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace emulation {
namespace {

constexpr std::size_t kAlignment = 4096;
std::size_t padded(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

Segment::Segment(std::string name, int ranks) : name_(std::move(name)), ranks_(ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  const std::size_t slots = padded(count * sizeof(RankSlot)), boxes = padded(count * count * sizeof(Mailbox));
  bytes_ = slots + boxes + count * 2 * kChunkBytes + count * count * 2 * kMessageBytes;
  const int file = ::shm_open(name_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const bool sized = file >= 0 && ::ftruncate(file, static_cast<off_t>(bytes_)) == 0;
  void* memory = sized ? ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  const int error = errno;
  if (file >= 0) ::close(file);
  if (memory == MAP_FAILED) {
    throw std::runtime_error("shared memory " + name_ + " of " + std::to_string(bytes_) +
                             " bytes: " + std::strerror(error));
  }
  base_ = static_cast<std::byte*>(memory);
  slots_ = reinterpret_cast<RankSlot*>(base_);
  boxes_ = reinterpret_cast<Mailbox*>(base_ + slots);
  chunks_ = base_ + slots + boxes;
  messages_ = chunks_ + count * 2 * kChunkBytes;
}

Segment::~Segment() { ::munmap(base_, bytes_); }

std::byte* Segment::chunk(int rank, std::uint64_t round) const noexcept {
  return chunks_ + (static_cast<std::size_t>(rank) * 2 + round % 2) * kChunkBytes;
}

std::byte* Segment::message(int from, int to, std::uint64_t number) const noexcept {
  return messages_ + (static_cast<std::size_t>(from * ranks_ + to) * 2 + number % 2) * kMessageBytes;
}

void Segment::unlink() noexcept { ::shm_unlink(name_.c_str()); }

}  // namespace emulation
