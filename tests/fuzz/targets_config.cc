// Configuration files and command lines.
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/fd.h"
#include "runtime/base/options.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/targets.h"

namespace dtrain::fuzz {
namespace {

const OptionSpec kSpecs[] = {
    {"config", "g", "FILE", "", "h"},       {"epochs", "g", "N", "3", "h"},
    {"lr", "g", "X", "0.1", "h"},           {"amp", "g", "", "", "h"},
    {"batch-size", "g", "N", "", "h", 'b'}, {"model", "g", "NAME", "mlp", "h"},
};

void use(const Options& options) {
  for (const auto& [name, value] : options.all()) require(!value.source.empty(), "every value has a source");
  if (options.has("epochs")) require(options.integer("epochs", 1, 9) <= 9, "integers in bounds");
  if (options.has("lr")) require(options.real("lr", 0, 1) <= 1, "numbers in bounds");
  options.choice("model", {"mlp", "lenet"});
}

}  // namespace

void config(std::string_view input) {
  const UniqueFd file(static_cast<int>(check(Sys{::memfd_create("config", MFD_CLOEXEC)}, "memfd_create")));
  check(Sys{::write(file.get(), input.data(), input.size())}, "write");
  try {
    use(resolve_options("fuzz", kSpecs, {"--config", "/proc/self/fd/" + std::to_string(file.get())}, {}));
  } catch (const UsageError&) {
  }
  // The same bytes as arguments, one a line.
  std::vector<std::string> arguments(1);
  for (const char byte : input) {
    if (byte == '\n')
      arguments.emplace_back();
    else
      arguments.back().push_back(byte);
  }
  try {
    use(resolve_command("fuzz", kSpecs, arguments, {}).options);
  } catch (const UsageError&) {
  }
}

}  // namespace dtrain::fuzz
