// Preloaded into a program, makes chosen system calls on chosen files fail, as a disk or a file server would.
// DTRAIN_FAIL is a list of rules, separated by ';':
//
//     CALL,PATTERN,FIRST,TIMES,ERRNO     open,*/step-00000006/*,1,2,116
//
// CALL is open, mkdir, read (pread too), write, ftruncate, fsync, rename (by the new name; renameat2 too) or
// unlink (rmdir too); PATTERN is fnmatch's, for the whole path; the FIRSTth matching call of the process and
// the TIMES - 1 after it fail (0: all from there on) with ERRNO, a number. "short" in its place: read and
// write take half of what they are given; "<N>ms": the call takes so much longer. Each fault adds a line to
// the file DTRAIN_FAIL_LOG, so that a test can tell that its fault was met; with the rule
// "trace,PATTERN,1,0,0" every call on such a file does, and nothing fails.
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
  int first = 0, times = 0, error_number = 0, stall_ms = 0;
  bool is_short = false;
  std::atomic<int> seen{0};
};

struct Rules {
  Rule rule[kMostRules];
  int count = 0;

  Rules() {
    const char* text = std::getenv("DTRAIN_FAIL");
    while (text != nullptr && *text != '\0' && count < kMostRules) {
      Rule& next = rule[count];
      char fault[16] = {};
      if (std::sscanf(text, "%15[^,],%255[^,],%d,%d,%15[^;]", next.call, next.pattern, &next.first,
                      &next.times, fault) != 5) {
        std::fprintf(stderr, "DTRAIN_FAIL: cannot read '%s'\n", text);
        std::abort();
      }
      next.is_short = std::strcmp(fault, "short") == 0;
      (std::strstr(fault, "ms") != nullptr ? next.stall_ms : next.error_number) = std::atoi(fault);
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

enum class Fault { none, fails, is_short };

// What becomes of the call; errno is set where it fails.
Fault fault_of(const char* call, const char* path) {
  for (int i = 0; i < rules().count; ++i) {
    Rule& rule = rules().rule[i];
    if (::fnmatch(rule.pattern, path, 0) != 0) continue;
    if (std::strcmp(rule.call, "trace") == 0) note(call, path);
    if (std::strcmp(rule.call, call) != 0) continue;
    const int number = rule.seen.fetch_add(1) + 1;
    if (number < rule.first || (rule.times != 0 && number >= rule.first + rule.times)) continue;
    note(call, path);
    if (rule.stall_ms > 0) {
      ::usleep(static_cast<useconds_t>(rule.stall_ms) * 1000);
      return Fault::none;
    }
    if (rule.is_short) return Fault::is_short;
    errno = rule.error_number;
    return Fault::fails;
  }
  return Fault::none;
}

bool fails(const char* call, const char* path) { return fault_of(call, path) == Fault::fails; }

Fault fault_of(const char* call, int fd) {
  if (rules().count == 0) return Fault::none;
  char link[64], path[512];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t size = ::readlink(link, path, sizeof path - 1);
  if (size <= 0) return Fault::none;
  path[size] = '\0';
  return fault_of(call, path);
}

bool fails(const char* call, int fd) { return fault_of(call, fd) == Fault::fails; }

// Half of `size` where the call is to be short, all of it else; -1 where it fails.
ssize_t size_given(const char* call, int fd, size_t size) {
  const Fault fault = fault_of(call, fd);
  if (fault == Fault::fails) return -1;
  return static_cast<ssize_t>(fault == Fault::is_short && size > 1 ? size / 2 : size);
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
  const ssize_t given = size_given("read", fd, size);
  if (given < 0) return -1;
  return real<ssize_t (*)(int, void*, size_t)>("read")(fd, data, static_cast<size_t>(given));
}

ssize_t pread(int fd, void* data, size_t size, off_t offset) {
  const ssize_t given = size_given("read", fd, size);
  if (given < 0) return -1;
  return real<ssize_t (*)(int, void*, size_t, off_t)>("pread")(fd, data, static_cast<size_t>(given), offset);
}

ssize_t pread64(int fd, void* data, size_t size, off64_t offset) {
  const ssize_t given = size_given("read", fd, size);
  if (given < 0) return -1;
  return real<ssize_t (*)(int, void*, size_t, off64_t)>("pread64")(fd, data, static_cast<size_t>(given),
                                                                   offset);
}

ssize_t write(int fd, const void* data, size_t size) {
  const ssize_t given = size_given("write", fd, size);
  if (given < 0) return -1;
  return real<ssize_t (*)(int, const void*, size_t)>("write")(fd, data, static_cast<size_t>(given));
}

int mkdir(const char* path, mode_t mode) noexcept {
  if (fails("mkdir", path)) return -1;
  return real<int (*)(const char*, mode_t)>("mkdir")(path, mode);
}

int ftruncate(int fd, off_t size) noexcept {
  if (fails("ftruncate", fd)) return -1;
  return real<int (*)(int, off_t)>("ftruncate")(fd, size);
}

int unlink(const char* path) noexcept {
  if (fails("unlink", path)) return -1;
  return real<int (*)(const char*)>("unlink")(path);
}

int rmdir(const char* path) noexcept {
  if (fails("unlink", path)) return -1;
  return real<int (*)(const char*)>("rmdir")(path);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  if (fails("rename", to)) return -1;
  return real<int (*)(int, const char*, int, const char*, unsigned)>("renameat2")(from_folder, from,
                                                                                  to_folder, to, flags);
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
