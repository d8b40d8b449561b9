#include "runtime/base/terminal.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "runtime/base/fd.h"

namespace dtrain {

bool shows_on_terminal(int fd, const Environment& environment) {
  if (::isatty(fd) != 1) return false;
  if (find_variable(environment, "OMPI_COMM_WORLD_RANK") == nullptr) return true;
  // What this process' parent, mpirun or its helper on this machine, has as that descriptor.
  const std::string parents = "/proc/" + std::to_string(::getppid()) + "/fd/" + std::to_string(fd);
  const UniqueFd there(::open(parents.c_str(), O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
  return there && ::isatty(there.get()) == 1;
}

}  // namespace dtrain
