#include "emulation/kernel/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace emulation {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kStackBytes = std::size_t{256} << 10;  // red zones around every local, longer frames
#else
constexpr std::size_t kStackBytes = std::size_t{64} << 10;
#endif

}  // namespace

// Keeps what a function call must keep on the old stack and takes it from the new one.
extern "C" void emulation_switch(void** save, void* load);

#if defined(__x86_64__)
asm(R"(
.text
.hidden emulation_switch
.global emulation_switch
.type emulation_switch, @function
emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulation_switch, .-emulation_switch
.hidden emulation_enter
.global emulation_enter
.type emulation_enter, @function
emulation_enter:
  movq %rbx, %rdi
  xorl %ebp, %ebp
  call *%r12
  ud2
.size emulation_enter, .-emulation_enter
)");
constexpr int kSaved = 7;     // six registers and where to return to
constexpr int kArgument = 4;  // rbx
constexpr int kFunction = 3;  // r12
constexpr int kReturn = 6;
#elif defined(__aarch64__)
asm(R"(
.text
.hidden emulation_switch
.global emulation_switch
.type emulation_switch, %function
emulation_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.hidden emulation_enter
.global emulation_enter
.type emulation_enter, %function
emulation_enter:
  mov x0, x19
  mov x29, xzr
  blr x20
  brk #1
)");
constexpr int kSaved = 20;
constexpr int kArgument = 0;  // x19
constexpr int kFunction = 1;  // x20
constexpr int kReturn = 11;   // x30
#else
#error "emulation: no fiber switch for this processor; add one beside those for x86-64 and aarch64"
#endif
extern "C" void emulation_enter();

Fiber::Fiber(Entry entry, void* argument) : entry_(entry), argument_(argument) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  stack_bytes_ = kStackBytes + page;
  void* memory =
      ::mmap(nullptr, stack_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  stack_ = static_cast<std::byte*>(memory);
  ::mprotect(stack_, page, PROT_NONE);  // a stack that overflows faults
  bottom_ = stack_ + page;
  bottom_bytes_ = kStackBytes;
  // The stack is aligned to 16 where emulation_enter calls begin().
  auto* const top = reinterpret_cast<void**>(stack_ + stack_bytes_ - 64);
  auto* const frame = top - kSaved;
  for (int i = 0; i < kSaved; ++i) frame[i] = nullptr;
  frame[kArgument] = this;
  frame[kFunction] = reinterpret_cast<void*>(&Fiber::begin);
  frame[kReturn] = reinterpret_cast<void*>(&emulation_enter);
  saved_ = frame;
#if defined(__SANITIZE_THREAD__)
  tsan_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(__SANITIZE_THREAD__)
  if (stack_ != nullptr) __tsan_destroy_fiber(tsan_);
#endif
#if defined(__SANITIZE_ADDRESS__)
  // A fiber given up in mid-kernel leaves the red zones of its locals behind, and the pages may come back.
  if (stack_ != nullptr) __asan_unpoison_memory_region(bottom_, bottom_bytes_);
#endif
  if (stack_ != nullptr) ::munmap(stack_, stack_bytes_);
}

void Fiber::begin(Fiber* self) noexcept {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &self->came_from_->bottom_, &self->came_from_->bottom_bytes_);
#endif
  self->entry_(self->argument_);
  std::abort();
}

void Fiber::resume(Fiber& from) noexcept {
  came_from_ = &from;
#if defined(__SANITIZE_THREAD__)
  if (from.tsan_ == nullptr) from.tsan_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(tsan_, 0);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.fake_stack_, bottom_, bottom_bytes_);
#endif
  emulation_switch(&from.saved_, saved_);
#if defined(__SANITIZE_ADDRESS__)
  // We run again: the fiber that resumed us is known by now, and with it the bounds of a thread's own stack.
  __sanitizer_finish_switch_fiber(from.fake_stack_, &from.came_from_->bottom_,
                                  &from.came_from_->bottom_bytes_);
#endif
}

}  // namespace emulation
