#include "emulation/kernel/watch.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#if EMULATION_WATCHES
// The module's static memory, where __shared__ arrays are: the linker's own names.
extern "C" {
extern char __bss_start __attribute__((visibility("hidden")));
extern char _end __attribute__((visibility("hidden")));
}
#endif

namespace emulation {
namespace {

/// Who looks at what this thread does; asked before each access of a kernel, so it must be quick.
#if EMULATION_WATCHES
__attribute__((tls_model("initial-exec")))
#endif
thread_local Watch* watching = nullptr;

constexpr std::uint32_t kWarp = 32;
constexpr std::uintptr_t kLine = 64;  // pieces are aligned to more, so a line is one's or nobody's

const std::byte* line_of(const std::byte* at) { return at - reinterpret_cast<std::uintptr_t>(at) % kLine; }

/// Sets a bit; false where it was set.
bool set(std::uint64_t* bits, std::size_t index) {
  const std::uint64_t bit = std::uint64_t{1} << index % 64;
  if ((bits[index / 64] & bit) != 0) return false;
  bits[index / 64] |= bit;
  return true;
}

}  // namespace

Watch::~Watch() { end(); }

bool Watch::works() noexcept {
#if EMULATION_WATCHES
  return true;
#else
  return false;
#endif
}

void Watch::Free::operator()(std::uint64_t* memory) const noexcept { std::free(memory); }

// Large ones come from the system as they are touched.
Watch::Bits Watch::make_bits(std::size_t bytes) {
  auto* const memory =
      static_cast<std::uint64_t*>(std::calloc(bytes / kSector / 64 + 2, sizeof(std::uint64_t)));
  if (memory == nullptr) throw std::bad_alloc();
  return Bits(memory);
}

void Watch::begin(const Wishes& wishes, const std::uint32_t* thread) {
  wishes_ = wishes;
  thread_ = thread;
  traffic_ = {};
  race_.clear();
  touched_.clear();
  last_ = nullptr;
  missed_ = nullptr;
  kept_.clear();
  kept_first_ = 0;
#if EMULATION_WATCHES
  if (static_.begin == nullptr) {
    static_.begin = reinterpret_cast<std::byte*>(&__bss_start);
    static_.bytes = static_cast<std::size_t>(&_end - &__bss_start);
  }
#endif
  if (wishes.races) static_.cells.resize(static_.bytes);
  watching = wishes.any() ? this : nullptr;
}

void Watch::end() noexcept {
  if (watching == this) watching = nullptr;
}

void Watch::begin_block(std::byte* shared, std::size_t shared_bytes) {
  ++epoch_;
  warp_epochs_.assign(1024 / kWarp, 0);
  dynamic_.begin = shared;
  dynamic_.bytes = shared_bytes;
  if (wishes_.races) dynamic_.cells.assign(shared_bytes, Cell{});
}

void Watch::meet_warp(std::uint32_t warp) { ++warp_epochs_[warp]; }

void Watch::access(const void* address, std::size_t bytes, bool write) {
  const auto* const at = static_cast<const std::byte*>(address);
  for (Shared* const shared : {&static_, &dynamic_}) {
    if (!shared->has(at)) continue;
    if (wishes_.races) {
      const auto offset = static_cast<std::size_t>(at - shared->begin);
      touch_shared(*shared, offset, std::min(bytes, shared->bytes - offset), write);
    }
    return;
  }
  if (wishes_.traffic || wishes_.twice) touch_piece(at, bytes, write);
}

std::uint32_t Watch::warp_of(const Touch& touch) {
  if (touch.thread == kSeveral) return kSeveral;
  return (touch.thread & kWholeWarp) != 0 ? touch.thread & ~kWholeWarp : touch.thread / kWarp;
}

// By a barrier, the warp's meeting, or being the same thread.
bool Watch::is_before(const Touch& touch) const {
  if (touch.epoch != epoch_ || touch.thread == *thread_) return true;
  const std::uint32_t warp = warp_of(touch);
  return warp == *thread_ / kWarp && touch.warp_epoch < warp_epochs_[warp];
}

void Watch::touch_shared(Shared& shared, std::size_t at, std::size_t bytes, bool write) {
  const Touch now{epoch_, *thread_, warp_epochs_[*thread_ / kWarp]};
  for (std::size_t i = at; i < at + bytes; ++i) {
    Cell& cell = shared.cells[i];
    if (!is_before(cell.write)) note_race(cell.write, i, write);
    if (write) {
      if (!is_before(cell.read)) note_race(cell.read, i, write);
      cell.write = now;
      continue;
    }
    const bool alone = is_before(cell.read), same_warp = warp_of(cell.read) == now.thread / kWarp;
    cell.read = now;
    if (!alone) cell.read.thread = same_warp ? kWholeWarp | now.thread / kWarp : kSeveral;
  }
}

void Watch::note_race(const Touch& other, std::size_t at, bool write) {
  if (!race_.empty()) return;
  race_ = "race in shared memory: thread " + std::to_string(*thread_) + (write ? " writes" : " reads") +
          " what " +
          ((other.thread & kWholeWarp) != 0 ? "several threads" : "thread " + std::to_string(other.thread)) +
          " touched, with no barrier between (byte " + std::to_string(at) + ")";
}

Watch::Touched* Watch::piece_of(const std::byte* at) {
  const auto has = [at](const Touched& t) {
    return at >= t.piece.begin && at < t.piece.begin + t.piece.bytes;
  };
  if (last_ != nullptr && has(*last_)) return last_;
  if (line_of(at) == missed_) return nullptr;
  auto place = std::upper_bound(touched_.begin(), touched_.end(), at,
                                [](const std::byte* a, const auto& t) { return a < t->piece.begin; });
  if (place != touched_.begin() && has(**std::prev(place))) return last_ = std::prev(place)->get();
  const std::optional<Piece> found = find_(at);
  if (!found) {
    missed_ = line_of(at);
    return nullptr;
  }
  auto made = std::make_unique<Touched>(Touched{*found, make_bits(found->bytes), make_bits(found->bytes)});
  return last_ = touched_.insert(place, std::move(made))->get();
}

void Watch::touch_piece(const std::byte* at, std::size_t bytes, bool write) {
  Touched* const touched = piece_of(at);
  if (touched == nullptr) return;
  std::byte* const begin = touched->piece.begin;
  const auto first = static_cast<std::size_t>(at - begin) / kSector;
  const auto last = (static_cast<std::size_t>(at - begin) + bytes - 1) / kSector;
  for (std::size_t sector = first; sector <= last; ++sector) {
    if (!set((write ? touched->written : touched->read).get(), sector)) continue;
    if (touched->piece.on_device) (write ? traffic_.written_bytes : traffic_.read_bytes) += kSector;
    if (!write || !wishes_.twice) continue;
    Kept kept{begin + sector * kSector, touched->piece.on_device, {}, {}};
    std::memcpy(kept.before, kept.at, kSector);
    kept_.push_back(kept);
  }
}

void Watch::undo() {
  for (Kept& kept : kept_) {
    std::memcpy(kept.after, kept.at, kSector);
    std::memcpy(kept.at, kept.before, kSector);
  }
  kept_first_ = kept_.size();  // these sectors stay marked: what they held is kept already
}

std::size_t Watch::differences() const {
  std::size_t count = 0;
  for (std::size_t i = 0; i < kept_.size(); ++i) {
    const Kept& kept = kept_[i];
    if (!kept.on_device) continue;
    const std::byte* const expected = i < kept_first_ ? kept.after : kept.before;
    for (std::size_t b = 0; b < kSector; ++b) count += kept.at[b] != expected[b] ? 1 : 0;
  }
  return count;
}

}  // namespace emulation

#if EMULATION_WATCHES
// What GCC and Clang call before each access of code that is compiled with -fsanitize=thread.
extern "C" {
#define EMULATION_ACCESS(name, bytes, write)                                           \
  void name(void* at) {                                                                \
    if (emulation::watching != nullptr) emulation::watching->access(at, bytes, write); \
  }
#define EMULATION_SIZE(bytes)                                  \
  EMULATION_ACCESS(__tsan_read##bytes, bytes, false)           \
  EMULATION_ACCESS(__tsan_write##bytes, bytes, true)           \
  EMULATION_ACCESS(__tsan_unaligned_read##bytes, bytes, false) \
  EMULATION_ACCESS(__tsan_unaligned_write##bytes, bytes, true)
EMULATION_SIZE(1)
EMULATION_SIZE(2)
EMULATION_SIZE(4)
EMULATION_SIZE(8)
EMULATION_SIZE(16)
void __tsan_read_range(void* at, std::size_t bytes) {
  if (emulation::watching != nullptr) emulation::watching->access(at, bytes, false);
}
void __tsan_write_range(void* at, std::size_t bytes) {
  if (emulation::watching != nullptr) emulation::watching->access(at, bytes, true);
}
// Host code beside kernels may have atomics; nothing is looked at there.
#define EMULATION_ATOMIC(bits)                                                                          \
  using Int##bits = std::int##bits##_t;                                                                 \
  Int##bits __tsan_atomic##bits##_load(const volatile Int##bits* at, int) {                             \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                       \
  }                                                                                                     \
  void __tsan_atomic##bits##_store(volatile Int##bits* at, Int##bits value, int) {                      \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                                      \
  }                                                                                                     \
  Int##bits __tsan_atomic##bits##_exchange(volatile Int##bits* at, Int##bits value, int) {              \
    return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                                            \
  }                                                                                                     \
  Int##bits __tsan_atomic##bits##_fetch_add(volatile Int##bits* at, Int##bits value, int) {             \
    return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);                                             \
  }                                                                                                     \
  Int##bits __tsan_atomic##bits##_fetch_sub(volatile Int##bits* at, Int##bits value, int) {             \
    return __atomic_fetch_sub(at, value, __ATOMIC_SEQ_CST);                                             \
  }                                                                                                     \
  Int##bits __tsan_atomic##bits##_fetch_and(volatile Int##bits* at, Int##bits value, int) {             \
    return __atomic_fetch_and(at, value, __ATOMIC_SEQ_CST);                                             \
  }                                                                                                     \
  Int##bits __tsan_atomic##bits##_fetch_or(volatile Int##bits* at, Int##bits value, int) {              \
    return __atomic_fetch_or(at, value, __ATOMIC_SEQ_CST);                                              \
  }                                                                                                     \
  Int##bits __tsan_atomic##bits##_fetch_xor(volatile Int##bits* at, Int##bits value, int) {             \
    return __atomic_fetch_xor(at, value, __ATOMIC_SEQ_CST);                                             \
  }                                                                                                     \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile Int##bits* at, Int##bits* expected,        \
                                                    Int##bits value, int, int) {                        \
    return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }                                                                                                     \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile Int##bits* at, Int##bits* expected,          \
                                                  Int##bits value, int, int) {                          \
    return __atomic_compare_exchange_n(at, expected, value, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);  \
  }
EMULATION_ATOMIC(8)
EMULATION_ATOMIC(16)
EMULATION_ATOMIC(32)
EMULATION_ATOMIC(64)
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
}
#endif
