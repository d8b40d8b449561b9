// The pods of cluster/kubernetes/job.yaml, played by two hosts of the lab: the names, the files and the
// variables that Kubernetes gives them, and what the manifest says. The manifest itself is checked against
// the published schema by tests/cluster/manifests.sh.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <thread>

#include "tests/cluster/labs.h"

namespace dtrain::test {
namespace {

using ::testing::HasSubstr;

std::string manifest() { return read_file(std::string(DTRAIN_SOURCE) + "/cluster/kubernetes/job.yaml"); }

/// `- { name: NAME, value: "…" }` of the manifest.
std::string value_in_manifest(const std::string& name) {
  const std::string text = manifest();
  std::smatch found;
  const bool any = std::regex_search(text, found, std::regex("name: " + name + ", value: \"([^\"]*)\""));
  return any ? found[1].str() : "";
}

/// `command: ["…", …]` of the manifest, without `nproc_per_node`, which the machine would decide.
std::vector<std::string> command_in_manifest() {
  const std::string text = manifest();
  std::smatch line;
  if (!std::regex_search(text, line, std::regex("command: \\[(.*)\\]"))) return {};
  const std::string words = line[1];
  const std::regex word("\"([^\"]*)\"");
  std::vector<std::string> command;
  for (std::sregex_iterator at(words.begin(), words.end(), word), end; at != end; ++at) {
    if (!(*at)[1].str().starts_with("--nproc_per_node")) command.push_back((*at)[1]);
  }
  return command;
}

/// Becomes pod `index` of the job `dtrain` on a host of the lab: a name, /etc/hosts with the pod's own full
/// name, as the kubelet writes it, and, in place of the cluster's DNS, the first pod's.
std::string as_pod(int index, const TempDir& folder) {
  const std::string name = "dtrain-" + std::to_string(index);
  const std::string hosts = (folder / ("hosts-" + name)).string();
  write_file(hosts, "127.0.0.1 localhost\n" + NetnsLab::address(index) + " " + name +
                        ".dtrain.default.svc.cluster.local " + name + "\n" + NetnsLab::address(0) +
                        " dtrain-0.dtrain\n");
  return "mount --bind " + hosts + " /etc/hosts && hostname " + name + " && exec env ";
}

TEST(Kubernetes, ThePodsOfTheManifestFindEachOther) {
  if (const auto why = NetnsLab::unavailable()) GTEST_SKIP() << *why;
  const int pods = std::stoi(value_in_manifest("NNODES"));
  ASSERT_THAT(manifest(), HasSubstr("completions: " + std::to_string(pods)));
  std::vector<std::string> command = command_in_manifest();
  ASSERT_FALSE(command.empty());
  command.front() = program("dtrain-launch");
  command.insert(command.end(), {"--nproc_per_node=2", "sh", "-c",
                                 "echo rank $RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT"});
  // Before there are threads: libstdc++'s regular expressions share a table that they fill as they compile.
  const std::string settings =
      " NNODES=" + value_in_manifest("NNODES") + " MASTER_PORT=" + value_in_manifest("MASTER_PORT");
  const NetnsLab lab(pods);
  const TempDir folder;
  std::vector<RunResult> results(static_cast<std::size_t>(pods));
  {
    std::vector<std::jthread> started;
    for (int i = 0; i < pods; ++i) {
      started.emplace_back([&, i] {
        std::string script = as_pod(i, folder) +
                             "KUBERNETES_SERVICE_HOST=10.96.0.1 JOB_COMPLETION_INDEX=" + std::to_string(i) +
                             settings + " DTRAIN_TOKEN=" + std::string(64, 'a') + " \"$@\"";
        std::vector<std::string> line{"unshare", "--mount", "--uts", "sh", "-c", script, "sh"};
        line.insert(line.end(), command.begin(), command.end());
        results[static_cast<std::size_t>(i)] = lab.run(i, line, limited_to(std::chrono::seconds(60)));
      });
    }
  }
  for (int i = 0; i < pods; ++i) {
    const RunResult& result = results[static_cast<std::size_t>(i)];
    EXPECT_EQ(result.exit_code, 0) << result.err;
    for (const int rank : {2 * i, 2 * i + 1}) {
      EXPECT_THAT(result.out, HasSubstr("rank " + std::to_string(rank) + " of " + std::to_string(2 * pods) +
                                        " at dtrain-0.dtrain:"))
          << result.err;
    }
  }
}

}  // namespace
}  // namespace dtrain::test
