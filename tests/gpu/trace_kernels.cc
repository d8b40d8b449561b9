// Notes when each kernel, copy and fill of a program ran on the GPU, by CUPTI: kernel_times.sh names this
// library in CUDA_INJECTION64_PATH, and the driver loads it. One line each, "start end name" in nanoseconds,
// into the file $TRACE_KERNELS.
#include <cupti.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>

namespace {

constexpr std::size_t kBufferBytes = 8 << 20;

std::FILE* to = nullptr;

void give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *bytes = kBufferBytes;
  *most_records = 0;
}

void write_line(std::uint64_t start, std::uint64_t end, const char* name) {
  std::fprintf(to, "%llu %llu %s\n", static_cast<unsigned long long>(start),
               static_cast<unsigned long long>(end), name);
}

void take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
      const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
      write_line(kernel->start, kernel->end, kernel->name);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
      const auto* copy = reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
      write_line(copy->start, copy->end, "memcpy");
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
      const auto* fill = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
      write_line(fill->start, fill->end, "memset");
    }
  }
  std::free(buffer);
}

void finish() {
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  std::fclose(to);
}

}  // namespace

/// What the driver calls when the program first uses CUDA.
extern "C" int InitializeInjection() {
  const char* const path = std::getenv("TRACE_KERNELS");
  to = path == nullptr ? nullptr : std::fopen(path, "w");
  if (to == nullptr) return 0;
  cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
  for (const CUpti_ActivityKind kind :
       {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET}) {
    cuptiActivityEnable(kind);
  }
  std::atexit(finish);
  return 1;
}
