// Preloaded into a program, sets its wall clock off by DTRAIN_CLOCK_OFFSET seconds.
#include <dlfcn.h>
#include <time.h>

#include <cstdlib>

extern "C" int clock_gettime(clockid_t clock, timespec* time) {
  static const auto real =
      reinterpret_cast<int (*)(clockid_t, timespec*)>(::dlsym(RTLD_NEXT, "clock_gettime"));
  const int result = real(clock, time);
  const char* const offset = std::getenv("DTRAIN_CLOCK_OFFSET");
  if (clock == CLOCK_REALTIME && offset != nullptr) time->tv_sec += std::atoi(offset);
  return result;
}
