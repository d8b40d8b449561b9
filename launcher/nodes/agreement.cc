// Hashes and texts; SHA-256 is OpenSSL's.
#include "launcher/nodes/agreement.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <fstream>
#include <sstream>

#include "cluster/rendezvous/messages.h"
#include "runtime/base/error.h"

namespace dtrain::launcher {
namespace {

constexpr std::size_t kShownBytes = 200;
constexpr std::size_t kShownDigits = 16;

std::string sha256(std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  if (EVP_Digest(text.data(), text.size(), digest.data(), &length, EVP_sha256(), nullptr) != 1)
    throw Error("OpenSSL cannot compute SHA-256; is its configuration (openssl.cnf) broken?");
  std::string hex;
  for (unsigned i = 0; i < length; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

// Empty when it cannot be read: then the program itself will say so.
std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

// The file that the program's --config names, or the variable in its place.
std::string config_path(const Job& job) {
  const auto& argv = job.program.argv;
  for (std::size_t i = 1; i < argv.size(); ++i) {
    if (argv[i].starts_with("--config=")) return argv[i].substr(argv[i].find('=') + 1);
    if (argv[i] == "--config" && i + 1 < argv.size()) return argv[i + 1];
  }
  return job.program.uses_dtrain ? variable_or(job.environment, "DTRAIN_CONFIG", "") : "";
}

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, " ")); }

}  // namespace

std::vector<std::pair<std::string, std::string>> must_match(const Job& job) {
  const NodeRange& nodes = job.placement.nodes;
  const std::vector<std::string> arguments(job.program.argv.begin() + 1, job.program.argv.end());
  std::string shown = joined(arguments);
  if (shown.size() > kShownBytes) shown = shown.substr(0, kShownBytes) + "…";
  const std::string& name = job.program.argv.front();
  std::vector<std::pair<std::string, std::string>> values = {
      {"--nnodes", nodes.least == nodes.most ? fmt::format("{}", nodes.most)
                                             : fmt::format("{}:{}", nodes.least, nodes.most)},
      {"--spares", fmt::format("{}", job.placement.spares)},
      {"--agent-store", job.options.agent_store ? "given" : "not given"},
      {"--servers", fmt::format("{}", job.options.servers)},
      {"--max-restarts", fmt::format("{}", job.options.max_restarts)},
      {"--health-check", job.options.health_check},
      {"--max-stalled-restarts", fmt::format("{}", job.options.max_stalled_restarts)},
      {"--lease-timeout", fmt::format("{} s", std::chrono::duration<double>(job.options.lease).count())},
      {"the dtrain version", job.version},
      {"the launchers' protocol", fmt::format("version {}", rendezvous::kMessagesVersion)},
      {"the program", name.substr(name.rfind('/') + 1)},
      {"the program's arguments", shown},
  };
  if (job.program.uses_dtrain)
    values.emplace_back("the build of dtrain", sha256(content_of(job.program.path)).substr(0, kShownDigits));
  const std::string config = config_path(job);
  // NUL cannot be part of an argument.
  std::string all;
  for (const std::string& word : arguments) all.append(word).push_back('\0');
  if (!config.empty()) all += content_of(config);
  values.emplace_back(
      config.empty() ? "the hash of the arguments" : "the hash of arguments and --config file",
      sha256(all).substr(0, kShownDigits));
  return values;
}

std::string public_token(const std::string& run_id, std::int64_t launch_time_ns) {
  return sha256(fmt::format("{}/{}", run_id, launch_time_ns));
}

}  // namespace dtrain::launcher
