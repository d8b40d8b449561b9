// The pods of cluster/kubernetes/job.yaml and kubeflow_trainer.yaml, played by two hosts of the lab: the
// names, the files and the variables that Kubernetes and Kubeflow Trainer give them, and what the manifests
// say. The manifests themselves are checked against the published schemas by tests/cluster/manifests.sh.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <regex>
#include <thread>

#include "tests/cluster/labs.h"

namespace dtrain::test {
namespace {

using ::testing::HasSubstr;

std::string manifest(const std::string& name) {
  return read_file(std::string(DTRAIN_SOURCE) + "/cluster/kubernetes/" + name);
}

/// What the first group of `pattern` is in `text`; empty where it is not there.
std::string found_in(const std::string& text, const std::string& pattern) {
  std::smatch found;
  return std::regex_search(text, found, std::regex(pattern)) ? found[1].str() : "";
}

/// `- { name: NAME, value: "…" }` of a manifest.
std::string value_of(const std::string& name, const std::string& text) {
  return found_in(text, "name: " + name + ", value: \"([^\"]*)\"");
}

/// `command: ["…", …]` of a manifest, without `nproc_per_node`, which the machine would decide.
std::vector<std::string> command_of(const std::string& text) {
  const std::string words = found_in(text, "command: \\[(.*)\\]");
  const std::regex word("\"([^\"]*)\"");
  std::vector<std::string> command;
  for (std::sregex_iterator at(words.begin(), words.end(), word), end; at != end; ++at) {
    if (!(*at)[1].str().starts_with("--nproc_per_node")) command.push_back((*at)[1]);
  }
  return command;
}

/// Pods as one host of the lab each plays one.
struct Pods {
  int count = 0;
  std::string name{};                               ///< of the first: "dtrain-0" without its number
  std::vector<std::string> command{};               ///< of the manifest
  std::function<std::string(int pod)> variables{};  ///< "A=1 B=2", beside those of every indexed job
  std::string master{};                             ///< the first pod's name for the others

  /// Becomes pod `index` on a host of the lab: a name, /etc/hosts with the pod's own full name, as the
  /// kubelet writes it, and, in place of the cluster's DNS, the first pod's.
  std::string become(int index, const TempDir& folder) const {
    const std::string pod = name + std::to_string(index);
    const std::string hosts = (folder / ("hosts-" + pod)).string();
    write_file(hosts, "127.0.0.1 localhost\n" + NetnsLab::address(index) + " " + pod +
                          ".dtrain.default.svc.cluster.local " + pod + "\n" + NetnsLab::address(0) + " " +
                          master + "\n");
    return "mount --bind " + hosts + " /etc/hosts && hostname " + pod +
           " && exec env KUBERNETES_SERVICE_HOST=10.96.0.1 JOB_COMPLETION_INDEX=" + std::to_string(index) +
           " DTRAIN_TOKEN=" + std::string(64, 'a') + " " + variables(index) + " \"$@\"";
  }
};

/// Each pod's workers, two of them, must know their ranks and the first pod.
void expect_to_meet(const Pods& pods) {
  const NetnsLab lab(pods.count);
  const TempDir folder;
  std::vector<RunResult> results(static_cast<std::size_t>(pods.count));
  {
    std::vector<std::jthread> started;
    for (int i = 0; i < pods.count; ++i) {
      started.emplace_back([&, i] {
        std::vector<std::string> line{"unshare", "--mount", "--uts", "sh", "-c", pods.become(i, folder),
                                      "sh"};
        line.insert(line.end(), pods.command.begin(), pods.command.end());
        results[static_cast<std::size_t>(i)] = lab.run(i, line, limited_to(std::chrono::seconds(60)));
      });
    }
  }
  for (int i = 0; i < pods.count; ++i) {
    const RunResult& result = results[static_cast<std::size_t>(i)];
    EXPECT_EQ(result.exit_code, 0) << result.err;
    for (const int rank : {2 * i, 2 * i + 1}) {
      EXPECT_THAT(result.out, HasSubstr("rank " + std::to_string(rank) + " of " +
                                        std::to_string(2 * pods.count) + " at " + pods.master + ":"))
          << result.err;
    }
  }
}

const std::vector<std::string> kProgram{"sh", "-c",
                                        "echo rank $RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT"};

// Everything is read before there are threads: libstdc++'s regular expressions share a table that they fill
// as they compile.
TEST(Kubernetes, ThePodsOfTheManifestFindEachOther) {
  if (const auto why = NetnsLab::unavailable()) GTEST_SKIP() << *why;
  const std::string text = manifest("job.yaml");
  Pods pods{.count = std::stoi(value_of("NNODES", text)), .name = "dtrain-", .command = command_of(text)};
  ASSERT_THAT(text, HasSubstr("completions: " + std::to_string(pods.count)));
  ASSERT_FALSE(pods.command.empty());
  pods.command.front() = program("dtrain-launch");
  pods.command.push_back("--nproc_per_node=2");
  pods.command.insert(pods.command.end(), kProgram.begin(), kProgram.end());
  const std::string settings =
      "NNODES=" + value_of("NNODES", text) + " MASTER_PORT=" + value_of("MASTER_PORT", text);
  pods.variables = [settings](int) { return settings; };
  pods.master = "dtrain-0.dtrain";
  expect_to_meet(pods);
}

// Trainer's torch plugin names pods after the job and its own name for the workers, and writes these
// variables.
TEST(Kubernetes, ThePodsOfKubeflowTrainerFindEachOther) {
  if (const auto why = NetnsLab::unavailable()) GTEST_SKIP() << *why;
  const std::string text = manifest("kubeflow_trainer.yaml");
  const std::string job = text.substr(text.rfind("kind: TrainJob"));
  const std::string name =
      found_in(job, "metadata:\n  name: (.*)") + "-" + found_in(text, "- name: (.*) # Trainer's") + "-0-";
  Pods pods{
      .count = std::stoi(found_in(job, "numNodes: ([0-9]+)")), .name = name, .command = command_of(job)};
  ASSERT_EQ(pods.command, std::vector<std::string>{"dtrain-launch"}) << "PET_NPROC_PER_NODE decides";
  pods.command.front() = program("dtrain-launch");
  pods.command.insert(pods.command.end(), kProgram.begin(), kProgram.end());
  pods.master = name + "0.dtrain";
  const std::string settings = "PET_NNODES=" + std::to_string(pods.count) +
                               " PET_NPROC_PER_NODE=" + found_in(job, "cpu: \"([0-9]+)\"") +
                               " PET_MASTER_ADDR=" + pods.master + " PET_MASTER_PORT=29500 PET_NODE_RANK=";
  pods.variables = [settings](int pod) { return settings + std::to_string(pod); };
  expect_to_meet(pods);
}

}  // namespace
}  // namespace dtrain::test
