#include "tests/cluster/labs.h"

#include <unistd.h>

#include <filesystem>

#include "runtime/base/error.h"

namespace dtrain::test {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);
constexpr int kUnavailable = 69;  // of the labs' scripts

// bash, the lab's script and its arguments, under the lab's name.
std::vector<std::string> script(const std::string& name, const std::string& lab,
                                const std::vector<std::string>& arguments) {
  std::vector<std::string> argv = {"/usr/bin/env", lab, "DTRAIN_LAB_OWNER=" + std::to_string(::getpid()),
                                   "bash", std::string(DTRAIN_LABS) + "/" + name};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return argv;
}

void must_run(const std::vector<std::string>& argv) {
  const RunResult result = test::run(argv, limited_to(kPatience));
  if (result.exit_code == kUnavailable) throw LabUnavailable(result.err);
  if (result.exit_code != 0)
    throw Error("the lab's script ended with " + std::to_string(result.exit_code) + ": " + result.out +
                result.err);
}

std::string name_of(int host) { return std::string("h").append(std::to_string(host)); }

bool has_program(const std::string& name) {
  for (const char* folder : {"/usr/sbin/", "/usr/bin/", "/sbin/", "/bin/", "/usr/local/bin/"}) {
    if (std::filesystem::exists(folder + name)) return true;
  }
  return false;
}

}  // namespace

std::optional<std::string> SlurmLab::unavailable() {
  for (const char* name : {"munged", "slurmctld", "slurmd", "srun"}) {
    if (!has_program(name))
      return std::string("no ") + name + " (bash cluster/lab/slurm.sh start installs it)";
  }
  return std::nullopt;
}

SlurmLab::SlurmLab(int nodes, int cpus) : lab_("DTRAIN_SLURM_LAB=" + (folder_ / "slurm").string()) {
  must_run(script("slurm.sh", lab_, {"start", std::to_string(nodes), std::to_string(cpus)}));
}

SlurmLab::~SlurmLab() { test::run(script("slurm.sh", lab_, {"stop"}), limited_to(kPatience)); }

std::vector<std::string> SlurmLab::command(const std::vector<std::string>& argv) const {
  std::vector<std::string> arguments = {"run"};
  arguments.insert(arguments.end(), argv.begin(), argv.end());
  return script("slurm.sh", lab_, arguments);
}

RunResult SlurmLab::run(const std::vector<std::string>& argv, RunOptions options) const {
  return test::run(command(argv), options);
}

std::optional<std::string> NetnsLab::unavailable() {
  if (::geteuid() != 0) return "only root may make network namespaces";
  if (!has_program("ip") || !has_program("tc") || !has_program("nsenter")) return "no ip, tc or nsenter";
  if (test::run({"unshare", "--net", "--uts", "--mount", "true"}).exit_code != 0)
    return "this kernel or container allows no network namespaces";
  return std::nullopt;
}

NetnsLab::NetnsLab(int hosts) : lab_("DTRAIN_NETNS_LAB=t" + std::to_string(::getpid())) {
  must_run(script("netns.sh", lab_, {"start", std::to_string(hosts)}));
}

NetnsLab::~NetnsLab() { test::run(script("netns.sh", lab_, {"stop"}), limited_to(kPatience)); }

std::vector<std::string> NetnsLab::command(int host, const std::vector<std::string>& argv) const {
  std::vector<std::string> arguments = {"exec", name_of(host)};
  arguments.insert(arguments.end(), argv.begin(), argv.end());
  return script("netns.sh", lab_, arguments);
}

RunResult NetnsLab::run(int host, const std::vector<std::string>& argv, RunOptions options) const {
  return test::run(command(host, argv), options);
}

void NetnsLab::cut(int host, const std::string& how) const {
  must_run(script("netns.sh", lab_, {"cut", name_of(host), how}));
}

void NetnsLab::heal(int host) const { must_run(script("netns.sh", lab_, {"heal", name_of(host)})); }

}  // namespace dtrain::test
