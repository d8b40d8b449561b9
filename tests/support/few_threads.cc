#include "tests/support/few_threads.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <exception>

#include "runtime/base/error.h"

namespace dtrain::test {
namespace {

std::string said_by(const std::function<void()>& body) {
  try {
    body();
    return "nothing";
  } catch (const SystemError& error) {
    return std::string("SystemError: ") + error.what();
  } catch (const std::exception& error) {
    return error.what();
  }
}

[[noreturn]] void say(int pipe, rlim_t tasks, const std::function<void()>& body) {
  const rlimit limit{tasks, tasks};
  // A user that has no other process.
  const auto user = static_cast<uid_t>(1'000'000'000 + ::getpid());
  if (::setrlimit(RLIMIT_NPROC, &limit) != 0 || ::setuid(user) != 0) ::_exit(1);
  const std::string said = said_by(body);
  ::_exit(::write(pipe, said.data(), said.size()) == static_cast<ssize_t>(said.size()) ? 0 : 1);
}

}  // namespace

std::optional<std::string> said_with_few_threads(int threads, const std::function<void()>& body) {
  if (::geteuid() != 0) return std::nullopt;
  int ends[2] = {-1, -1};
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) say(ends[1], static_cast<rlim_t>(threads) + 1, body);
  ::close(ends[1]);
  std::string said;
  std::array<char, 1024> bytes;
  for (ssize_t got = 0; (got = ::read(ends[0], bytes.data(), bytes.size())) > 0;)
    said.append(bytes.data(), static_cast<std::size_t>(got));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status)) : said;
}

}  // namespace dtrain::test
