// What is written counts once a word says so that is stored last.
#include "cluster/kept/kept_memory.h"

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <new>

#include "runtime/base/check.h"

namespace dtrain {

using Word = std::atomic<std::uint64_t>;
static_assert(Word::is_always_lock_free);

SharedPages::SharedPages(std::size_t bytes) : size_(bytes) {
  void* pages =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) throw SystemError("mmap of shared memory", errno);
  data_ = static_cast<char*>(pages);
}

SharedPages::~SharedPages() { ::munmap(data_, size_); }

// Two places for the value; `current` is 0 for none, else 1 or 2.
struct Keepsake::Header {
  Word current;
  std::array<Word, 2> sizes;
};

Keepsake::Keepsake(std::size_t capacity) : capacity_(capacity), pages_(sizeof(Header) + 2 * capacity) {
  ::new (pages_.data()) Header{};
}

Keepsake::Header& Keepsake::header() const noexcept { return *reinterpret_cast<Header*>(pages_.data()); }

void Keepsake::put(std::string_view value) noexcept {
  Header& head = header();
  if (value.empty() || value.size() > capacity_) return head.current.store(0);
  const std::uint64_t next = head.current.load() == 1 ? 2 : 1;
  std::memcpy(pages_.data() + sizeof(Header) + (next - 1) * capacity_, value.data(), value.size());
  head.sizes[next - 1].store(value.size());
  head.current.store(next);
}

std::string Keepsake::get() const {
  const std::uint64_t current = header().current.load();
  if (current == 0) return {};
  return {pages_.data() + sizeof(Header) + (current - 1) * capacity_, header().sizes[current - 1].load()};
}

// Then, for each record, its size in 8 bytes and itself.
struct Journal::Header {
  Word used, overflown;
};

Journal::Journal(std::size_t capacity) : pages_(sizeof(Header) + capacity) { ::new (pages_.data()) Header{}; }

Journal::Header& Journal::header() const noexcept { return *reinterpret_cast<Header*>(pages_.data()); }

void Journal::append(std::string_view record) noexcept {
  Header& head = header();
  const std::uint64_t used = head.used.load(), size = record.size();
  if (!whole()) return;
  if (sizeof(Header) + used + sizeof size + size > pages_.size()) return head.overflown.store(1);
  char* end = pages_.data() + sizeof(Header) + used;
  std::memcpy(end, &size, sizeof size);
  std::memcpy(end + sizeof size, record.data(), size);
  head.used.store(used + sizeof size + size);
}

bool Journal::whole() const noexcept { return header().overflown.load() == 0; }
bool Journal::empty() const noexcept { return header().used.load() == 0; }

void Journal::read(const std::function<void(std::string_view)>& use) const {
  const char* at = pages_.data() + sizeof(Header);
  for (const char* const end = at + header().used.load(); at < end;) {
    std::uint64_t size = 0;
    std::memcpy(&size, at, sizeof size);
    use({at + sizeof size, size});
    at += sizeof size + size;
  }
}

}  // namespace dtrain
