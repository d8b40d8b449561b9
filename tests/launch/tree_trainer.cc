// A worker that needs a helper process to save, as a trainer needs those that load its data: prints "up",
// then SIGTERM makes it print "saving", ask the helper for a word, write that to the file in its first
// argument, and exit with 0; SIGUSR1 makes it do the same and continue. The helper handles no signal. With a
// second argument it takes that many milliseconds to save, while its saving file says so.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

// Answers each byte with "saved\n" until nobody is left to ask.
[[noreturn]] void help(int asked, int answer) {
  char byte;
  while (::read(asked, &byte, 1) == 1) {
    if (::write(answer, "saved\n", 6) != 6) break;
  }
  ::_exit(0);
}

// False when the helper is gone, or the reader of what it prints.
bool save(const std::string& path, int ask, int answered, int milliseconds) {
  const char* flag = std::getenv("DTRAIN_SAVING_FILE");
  if (milliseconds > 0 && flag != nullptr) ::close(::open(flag, O_WRONLY | O_CREAT, 0600));
  ::usleep(static_cast<useconds_t>(milliseconds) * 1000);
  std::array<char, 6> word;
  if (::write(STDOUT_FILENO, "saving\n", 7) != 7) return false;
  if (::write(ask, "?", 1) != 1 || ::read(answered, word.data(), word.size()) != 6) return false;
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  const bool written = ::write(file, word.data(), word.size()) == 6;
  ::close(file);
  if (milliseconds > 0 && flag != nullptr) ::unlink(flag);
  return written;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const int milliseconds = argc > 2 ? std::atoi(argv[2]) : 0;
  int ask[2], answer[2];
  if (::pipe2(ask, O_CLOEXEC) != 0 || ::pipe2(answer, O_CLOEXEC) != 0) return 2;
  const pid_t helper = ::fork();
  if (helper == 0) {
    ::close(ask[1]);
    help(ask[0], answer[1]);
  }
  ::close(ask[0]);
  ::close(answer[1]);
  ::signal(SIGPIPE, SIG_IGN);
  sigset_t awaited;
  sigemptyset(&awaited);
  for (const int signal : {SIGTERM, SIGUSR1}) sigaddset(&awaited, signal);
  ::sigprocmask(SIG_BLOCK, &awaited, nullptr);
  ::puts("up");
  ::fflush(stdout);
  int signal = 0;
  do {
    if (::sigwait(&awaited, &signal) != 0 || !save(argv[1], ask[1], answer[0], milliseconds)) return 3;
  } while (signal != SIGTERM);
  ::close(ask[1]);
  ::waitpid(helper, nullptr, 0);
  return 0;
}
