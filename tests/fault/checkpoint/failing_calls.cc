// Preloaded into a program, makes chosen system calls on chosen files fail, as a disk or a file server would.
// DTRAIN_FAIL is a list of rules, separated by ';':
//
//     CALL,PATTERN,FIRST,TIMES,ERRNO     open,*/step-00000006/*,1,2,116
//
// CALL is open, read (pread too), write, fsync or rename (by the new name); PATTERN is fnmatch's, for the
// whole path; the FIRSTth matching call of the process and the TIMES - 1 after it fail (0: all from there on)
// with ERRNO, a number. Each failure adds a line to the file DTRAIN_FAIL_LOG, so that a test can tell that
// its fault was met.
#include <dlfcn.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kMostRules = 8;

struct Rule {
  char call[16] = {};
  char pattern[256] = {};
  int first = 0, times = 0, error_number = 0;
  std::atomic<int> seen{0};
};

struct Rules {
  Rule rule[kMostRules];
  int count = 0;

  Rules() {
    const char* text = std::getenv("DTRAIN_FAIL");
    while (text != nullptr && *text != '\0' && count < kMostRules) {
      Rule& next = rule[count];
      if (std::sscanf(text, "%15[^,],%255[^,],%d,%d,%d", next.call, next.pattern, &next.first, &next.times,
                      &next.error_number) != 5) {
        std::fprintf(stderr, "DTRAIN_FAIL: cannot read '%s'\n", text);
        std::abort();
      }
      ++count;
      text = std::strchr(text, ';');
      if (text != nullptr) ++text;
    }
  }
};

Rules& rules() {
  static Rules parsed;
  return parsed;
}

template <class Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

void note(const char* call, const char* path) {
  const char* log = std::getenv("DTRAIN_FAIL_LOG");
  if (log == nullptr) return;
  char line[512];
  const int size = std::snprintf(line, sizeof line, "%s %s\n", call, path);
  const int fd =
      real<int (*)(const char*, int, ...)>("open")(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return;
  real<ssize_t (*)(int, const void*, size_t)>("write")(fd, line, static_cast<size_t>(size));
  ::close(fd);
}

// True when the call must fail; errno is set then.
bool fails(const char* call, const char* path) {
  for (int i = 0; i < rules().count; ++i) {
    Rule& rule = rules().rule[i];
    if (std::strcmp(rule.call, call) != 0 || ::fnmatch(rule.pattern, path, 0) != 0) continue;
    const int number = rule.seen.fetch_add(1) + 1;
    if (number < rule.first || (rule.times != 0 && number >= rule.first + rule.times)) continue;
    note(call, path);
    errno = rule.error_number;
    return true;
  }
  return false;
}

bool fails(const char* call, int fd) {
  if (rules().count == 0) return false;
  char link[64], path[512];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t size = ::readlink(link, path, sizeof path - 1);
  if (size <= 0) return false;
  path[size] = '\0';
  return fails(call, path);
}

int open_or_fail(const char* name, const char* path, int flags, mode_t mode) {
  if (fails("open", path)) return -1;
  return real<int (*)(const char*, int, ...)>(name)(path, flags, mode);
}

}  // namespace

// NOLINTBEGIN: these are the C library's own names and signatures.
extern "C" {

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_or_fail("open", path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_or_fail("open64", path, flags, mode);
}

ssize_t read(int fd, void* data, size_t size) {
  if (fails("read", fd)) return -1;
  return real<ssize_t (*)(int, void*, size_t)>("read")(fd, data, size);
}

ssize_t pread(int fd, void* data, size_t size, off_t offset) {
  if (fails("read", fd)) return -1;
  return real<ssize_t (*)(int, void*, size_t, off_t)>("pread")(fd, data, size, offset);
}

ssize_t pread64(int fd, void* data, size_t size, off64_t offset) {
  if (fails("read", fd)) return -1;
  return real<ssize_t (*)(int, void*, size_t, off64_t)>("pread64")(fd, data, size, offset);
}

ssize_t write(int fd, const void* data, size_t size) {
  if (fails("write", fd)) return -1;
  return real<ssize_t (*)(int, const void*, size_t)>("write")(fd, data, size);
}

int fsync(int fd) {
  if (fails("fsync", fd)) return -1;
  return real<int (*)(int)>("fsync")(fd);
}

int rename(const char* from, const char* to) noexcept {
  if (fails("rename", to)) return -1;
  return real<int (*)(const char*, const char*)>("rename")(from, to);
}

}  // extern "C"
// NOLINTEND
