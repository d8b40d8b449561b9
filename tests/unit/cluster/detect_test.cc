// Detection against environments as the systems really set them, and against contradictory ones.
#include "cluster/detect/detect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

using testing::HasSubstr;

Machine machine(std::string hostname, std::map<std::string, std::string> files = {}) {
  return {std::move(hostname),
          [files = std::move(files)](const std::string& path) -> std::optional<std::string> {
            const auto file = files.find(path);
            if (file == files.end()) return std::nullopt;
            return file->second;
          }};
}

Environment with(Environment base, const Environment& more) {
  for (const auto& [name, value] : more) base.insert_or_assign(name, value);
  return base;
}

// srun -N2 -n3 on Slurm 22.05, third task.
Environment slurm_step() {
  return {{"SLURM_JOB_ID", "4711"},
          {"SLURM_JOBID", "4711"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_STEPID", "0"},
          {"SLURM_PROCID", "2"},
          {"SLURM_LOCALID", "0"},
          {"SLURM_NODEID", "1"},
          {"SLURM_NTASKS", "3"},
          {"SLURM_NPROCS", "3"},
          {"SLURM_NNODES", "2"},
          {"SLURM_JOB_NUM_NODES", "2"},
          {"SLURM_STEP_NUM_TASKS", "3"},
          {"SLURM_STEP_NUM_NODES", "2"},
          {"SLURM_STEP_TASKS_PER_NODE", "2,1"},
          {"SLURM_TASKS_PER_NODE", "2,1"},
          {"SLURM_STEP_NODELIST", "node[1-2]"},
          {"SLURM_NODELIST", "node[1-2]"},
          {"SLURM_JOB_NODELIST", "node[1-2]"},
          {"SLURM_LAUNCH_NODE_IPADDR", "10.9.9.9"},
          {"SLURM_SRUN_COMM_HOST", "10.9.9.9"},
          {"SLURMD_NODENAME", "node2"}};
}

// The script sbatch started: no step.
Environment slurm_batch() {
  return {{"SLURM_JOB_ID", "4711"},        {"SLURM_PROCID", "0"},
          {"SLURM_LOCALID", "0"},          {"SLURM_NODEID", "0"},
          {"SLURM_NTASKS", "4"},           {"SLURM_NNODES", "2"},
          {"SLURM_NODELIST", "node[1-2]"}, {"SLURM_TASKS_PER_NODE", "2(x2)"},
          {"SLURM_TASK_PID", "99"}};
}

// mpirun -np 4 on two nodes, Open MPI 4.1.4, fourth rank.
Environment openmpi() {
  return {{"OMPI_COMM_WORLD_RANK", "3"},
          {"OMPI_COMM_WORLD_SIZE", "4"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
          {"OMPI_COMM_WORLD_NODE_RANK", "1"},
          {"OMPI_UNIVERSE_SIZE", "4"},
          {"PMIX_RANK", "3"},
          {"PMIX_NAMESPACE", "1804009473"},
          {"OMPI_MCA_ess", "^singleton"}};
}

TEST(Detect, NothingIsAWorldOfOne) {
  const Placement placement = detect({{"HOME", "/root"}, {"WORLD_SIZE", ""}, {"RANK", ""}}, machine("here"));
  EXPECT_EQ(placement.system, JobSystem::none);
  EXPECT_EQ(placement.rank, std::nullopt);
  EXPECT_EQ(placement.nnodes, std::nullopt);
}

TEST(Detect, PlainEnvironmentWinsOverEverything) {
  const Environment worker{
      {"RANK", "5"},       {"WORLD_SIZE", "8"},       {"LOCAL_RANK", "1"},      {"LOCAL_WORLD_SIZE", "4"},
      {"GROUP_RANK", "1"}, {"GROUP_WORLD_SIZE", "2"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29501"}};
  const Placement placement = detect(with(with(slurm_step(), openmpi()), worker), machine("node2"));
  EXPECT_EQ(placement.system, JobSystem::environment);
  EXPECT_EQ(placement.rank, 5);
  EXPECT_EQ(placement.world_size, 8);
  EXPECT_EQ(placement.local_rank, 1);
  EXPECT_EQ(placement.local_world_size, 4);
  EXPECT_EQ(placement.nproc_per_node, 4);
  EXPECT_EQ(placement.node_rank, 1);
  EXPECT_EQ(placement.nnodes, 2);
  EXPECT_EQ(placement.master_addr, "node1");
  EXPECT_EQ(placement.master_port, 29501);
  EXPECT_EQ(placement.explanations.at("node_rank"), "GROUP_RANK");
}

TEST(Detect, SlurmStep) {
  const Placement placement = detect(slurm_step(), machine("node2"));
  EXPECT_EQ(placement.system, JobSystem::slurm);
  EXPECT_EQ(placement.rank, 2);
  EXPECT_EQ(placement.world_size, 3);
  EXPECT_EQ(placement.local_rank, 0);
  EXPECT_EQ(placement.local_world_size, 1);
  EXPECT_EQ(placement.node_rank, 1);
  EXPECT_EQ(placement.nnodes, 2);
  EXPECT_EQ(placement.master_addr, "node1") << "never SLURM_LAUNCH_NODE_IPADDR";
  EXPECT_NE(placement.master_port, std::nullopt);
}

TEST(Detect, SlurmTasksDeriveTheSamePortAndAnotherStepAnother) {
  const auto first = detect(slurm_step(), machine("node2"));
  const auto peer =
      detect(with(slurm_step(), {{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}, {"SLURMD_NODENAME", "node1"}}),
             machine("node1"));
  const auto other = detect(with(slurm_step(), {{"SLURM_STEP_ID", "1"}}), machine("node2"));
  EXPECT_EQ(first.master_port, peer.master_port);
  EXPECT_NE(first.master_port, other.master_port);
  EXPECT_GE(*first.master_port, 20000);
  EXPECT_LT(*first.master_port, 30000);
}

TEST(Detect, SlurmOneLauncherANode) {
  const Placement placement = detect(with(slurm_step(), {{"SLURM_STEP_NUM_TASKS", "4"},
                                                         {"SLURM_STEP_NUM_NODES", "4"},
                                                         {"SLURM_STEP_TASKS_PER_NODE", "1(x4)"},
                                                         {"SLURM_STEP_NODELIST", "gpu[009-011],big1"},
                                                         {"SLURMD_NODENAME", "gpu010"}}),
                                     machine("gpu010"));
  EXPECT_EQ(placement.nnodes, 4);
  EXPECT_EQ(placement.local_world_size, 1);
  EXPECT_EQ(placement.master_addr, "gpu009");
}

TEST(Detect, SlurmBatchScriptIsNoStepAndSaysSo) {
  const Placement placement = detect(slurm_batch(), machine("node1"));
  EXPECT_EQ(placement.system, JobSystem::none);
  EXPECT_EQ(placement.rank, std::nullopt);
  EXPECT_THAT(explain(placement), HasSubstr("srun"));
}

TEST(Detect, SlurmVariablesThatContradictEachOtherAreRefused) {
  EXPECT_THROW(detect(with(slurm_step(), {{"SLURM_STEP_NODELIST", "node[1-3]"}}), machine("")), UsageError);
  EXPECT_THROW(detect(with(slurm_step(), {{"SLURM_STEP_TASKS_PER_NODE", "1(x3)"}}), machine("")), UsageError);
  EXPECT_THROW(detect(with(slurm_step(), {{"SLURM_PROCID", "3"}}), machine("")), UsageError);
  EXPECT_THROW(detect(with(slurm_step(), {{"SLURM_NODEID", "2"}}), machine("")), UsageError);
  EXPECT_THROW(detect(with(slurm_step(), {{"SLURM_LOCALID", "1"}}), machine("")), UsageError);
  EXPECT_THROW(detect(with(slurm_step(), {{"SLURM_STEP_NODELIST", "node[1-2"}}), machine("")), UsageError);
}

TEST(Detect, OpenMpi) {
  const Placement placement = detect(openmpi(), machine("node2"));
  EXPECT_EQ(placement.system, JobSystem::openmpi);
  EXPECT_EQ(placement.rank, 3);
  EXPECT_EQ(placement.world_size, 4);
  EXPECT_EQ(placement.local_rank, 1);
  EXPECT_EQ(placement.local_world_size, 2);
  EXPECT_EQ(placement.node_rank, std::nullopt) << "OMPI_COMM_WORLD_NODE_RANK is something else";
  EXPECT_EQ(placement.master_addr, std::nullopt);
}

TEST(Detect, OpenMpiOnOneNodeKnowsItsNode) {
  const Placement placement =
      detect(with(openmpi(), {{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "3"}}),
             machine("h"));
  EXPECT_EQ(placement.nnodes, 1);
  EXPECT_EQ(placement.node_rank, 0);
}

TEST(Detect, OpenMpiInsideSlurmWins) {
  // mpirun's daemons are a Slurm step of their own, one task a node.
  const Placement remote = detect(with(slurm_step(), openmpi()), machine("node2"));
  EXPECT_EQ(remote.system, JobSystem::openmpi);
  EXPECT_EQ(remote.rank, 3);
  EXPECT_EQ(remote.world_size, 4);
  EXPECT_EQ(remote.node_rank, std::nullopt) << "SLURM_NODEID counts mpirun's daemons, not the job's nodes";
  const Placement local = detect(with(slurm_batch(), openmpi()), machine("node1"));
  EXPECT_EQ(local.rank, 3);
}

TEST(Detect, HydraWinsOverSlurmButSlurmsOwnPmiDoesNot) {
  const Environment hydra{
      {"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
  const Placement placement = detect(with(slurm_step(), hydra), machine("node1"));
  EXPECT_EQ(placement.system, JobSystem::hydra);
  EXPECT_EQ(placement.rank, 1);
  EXPECT_EQ(placement.world_size, 4);
  EXPECT_EQ(placement.local_rank, 1);
  EXPECT_EQ(placement.local_world_size, 2);
  EXPECT_EQ(detect(with(slurm_step(), {{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}}), machine("")).system,
            JobSystem::slurm);
  const Placement bare = detect({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}, machine(""));
  EXPECT_EQ(bare.system, JobSystem::pmi);
  EXPECT_EQ(bare.world_size, 2);
}

TEST(Detect, PmixAloneKnowsTheRankOnly) {
  const Placement placement =
      detect({{"PMIX_RANK", "3"}, {"PMIX_NAMESPACE", "slurm.pmix.4711.0"}}, machine(""));
  EXPECT_EQ(placement.system, JobSystem::pmix);
  EXPECT_EQ(placement.rank, 3);
  EXPECT_EQ(placement.world_size, std::nullopt);
  EXPECT_THAT(explain(placement), HasSubstr("PMIx query"));
  EXPECT_EQ(detect(with(slurm_step(), {{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "n"}}), machine("")).system,
            JobSystem::slurm);
}

TEST(Detect, Pbs) {
  const Environment job{{"PBS_ENVIRONMENT", "PBS_BATCH"},
                        {"PBS_JOBID", "123.server"},
                        {"PBS_NODEFILE", "/var/spool/pbs/aux/123"}};
  const std::map<std::string, std::string> files{
      {"/var/spool/pbs/aux/123", "nodeA.site.org\nnodeA.site.org\nnodeB.site.org\n"}};
  const Placement placement = detect(job, machine("nodeB", files));
  EXPECT_EQ(placement.system, JobSystem::pbs);
  EXPECT_EQ(placement.nnodes, 2);
  EXPECT_EQ(placement.node_rank, 1);
  EXPECT_EQ(placement.master_addr, "nodeA.site.org");
  const Placement stranger = detect(job, machine("login", files));
  EXPECT_EQ(stranger.node_rank, std::nullopt);
  EXPECT_THAT(stranger.explanations.at("node_rank"), HasSubstr("login"));
  EXPECT_EQ(detect(job, machine("nodeB")).nnodes, std::nullopt) << "the file cannot be read";
}

TEST(Detect, LsfJsrunLeavesTheBatchHostOut) {
  const Environment job{{"LSB_JOBID", "777"},
                        {"JSM_NAMESPACE_RANK", "3"},
                        {"JSM_NAMESPACE_SIZE", "4"},
                        {"JSM_NAMESPACE_LOCAL_RANK", "1"},
                        {"JSM_NAMESPACE_LOCAL_SIZE", "2"},
                        {"LSB_DJOB_RANKFILE", "/lsf/rank"},
                        {"OMPI_COMM_WORLD_RANK", "3"},
                        {"OMPI_COMM_WORLD_SIZE", "4"}};
  const Placement placement = detect(job, machine("c02", {{"/lsf/rank", "batch5\nc01\nc01\nc02\nc02\n"}}));
  EXPECT_EQ(placement.system, JobSystem::lsf);
  EXPECT_EQ(placement.rank, 3);
  EXPECT_EQ(placement.world_size, 4);
  EXPECT_EQ(placement.local_rank, 1);
  EXPECT_EQ(placement.nnodes, 2);
  EXPECT_EQ(placement.node_rank, 1);
  EXPECT_EQ(placement.master_addr, "c01");
}

// A task of flux run, as flux-environment(7) describes it.
Environment flux_task(int rank, int size, int nodes, int local_id) {
  return {{"FLUX_JOB_ID", "\u0192D2e73NP"},         {"FLUX_JOB_ID_PATH", "/\u0192D2e73NP"},
          {"FLUX_JOB_SIZE", std::to_string(size)},  {"FLUX_JOB_NNODES", std::to_string(nodes)},
          {"FLUX_TASK_RANK", std::to_string(rank)}, {"FLUX_TASK_LOCAL_ID", std::to_string(local_id)},
          {"FLUX_URI", "local:///run/flux/local"},  {"PMI_RANK", std::to_string(rank)},
          {"PMI_SIZE", std::to_string(size)},       {"PMI_FD", "23"}};
}

/// Where flux answers with these hosts and tasks; empty: it fails.
Machine flux_machine(const std::string& hosts, const std::string& tasks) {
  Machine here = machine("n2");
  here.output_of = [=](const std::vector<std::string>& argv) -> std::optional<std::string> {
    if (argv == std::vector<std::string>{"flux", "hostlist", "local"} && !hosts.empty()) return hosts + "\n";
    if (argv == std::vector<std::string>{"flux", "job", "taskmap", "--to=raw", "\u0192D2e73NP"} &&
        !tasks.empty())
      return tasks + "\n";
    return std::nullopt;
  };
  return here;
}

TEST(Detect, FluxWithOneTaskPerNode) {
  const Placement placement = detect(flux_task(1, 2, 2, 0), flux_machine("n[1-2]", ""));
  EXPECT_EQ(placement.system, JobSystem::flux) << "not PMI";
  EXPECT_EQ(name_of(placement.system), "flux");
  EXPECT_EQ(placement.rank, 1);
  EXPECT_EQ(placement.world_size, 2);
  EXPECT_EQ(placement.local_rank, 0);
  EXPECT_EQ(placement.local_world_size, 1);
  EXPECT_EQ(placement.node_rank, 1);
  EXPECT_EQ(placement.nnodes, 2);
  EXPECT_EQ(placement.master_addr, "n1");
  EXPECT_EQ(placement.hosts, (std::vector<std::string>{"n1", "n2"}));
  const Placement first = detect(flux_task(0, 2, 2, 0), flux_machine("n[1-2]", ""));
  EXPECT_EQ(first.master_port, placement.master_port);
  EXPECT_NE(placement.master_port, std::nullopt);
}

TEST(Detect, FluxSaysWhichTasksAreOnANode) {
  const Placement block = detect(flux_task(5, 6, 2, 1), flux_machine("n[1-2]", "0-3;4-5"));
  EXPECT_EQ(block.node_rank, 1);
  EXPECT_EQ(block.local_world_size, 2);
  EXPECT_EQ(block.local_rank, 1);
  const Placement cyclic = detect(flux_task(2, 5, 2, 1), flux_machine("n[1-2]", "0,2,4;1,3"));
  EXPECT_EQ(cyclic.node_rank, 0);
  EXPECT_EQ(cyclic.local_world_size, 3);
  const Placement unknown = detect(flux_task(2, 5, 2, 1), flux_machine("n[1-2]", ""));
  EXPECT_EQ(unknown.node_rank, std::nullopt);
  EXPECT_EQ(unknown.local_world_size, std::nullopt);
  EXPECT_THAT(explain(unknown), HasSubstr("`flux job taskmap` does not say"));
}

TEST(Detect, FluxOnOneNodeNeedsNoCommand) {
  const Placement placement = detect(flux_task(3, 4, 1, 3), machine("n1"));
  EXPECT_EQ(placement.local_world_size, 4);
  EXPECT_EQ(placement.node_rank, 0);
  EXPECT_EQ(placement.nnodes, 1);
}

TEST(Detect, FluxThatDoesNotAnswerLeavesTheMasterToTheUser) {
  const Placement placement = detect(flux_task(1, 2, 2, 0), machine("n2"));
  EXPECT_EQ(placement.master_addr, std::nullopt);
  EXPECT_THAT(explain(placement), HasSubstr("`flux hostlist local` gave no answer here; set MASTER_ADDR"));
  const Placement told = detect(with(flux_task(1, 2, 2, 0), {{"MASTER_ADDR", "n9"}}), machine("n2"));
  EXPECT_EQ(told.master_addr, "n9");
  EXPECT_THROW(detect(flux_task(1, 2, 2, 0), flux_machine("n[1-3]", "")), UsageError);
}

TEST(Detect, KubernetesIndexedJob) {
  const Environment pod{{"KUBERNETES_SERVICE_HOST", "10.96.0.1"}, {"JOB_COMPLETION_INDEX", "2"}};
  const Machine host = machine(
      "train-2",
      {{"/etc/hosts", "127.0.0.1 localhost\n10.1.2.3\ttrain-2.peers.default.svc.cluster.local\ttrain-2\n"}});
  const Placement placement = detect(with(pod, {{"NNODES", "4"}}), host);
  EXPECT_EQ(placement.system, JobSystem::kubernetes);
  EXPECT_EQ(placement.node_rank, 2);
  EXPECT_EQ(placement.nnodes, 4);
  EXPECT_EQ(placement.master_addr, "train-0.peers");
  EXPECT_EQ(placement.master_port, 29500);
  const Placement lonely = detect(pod, machine("train-2", {{"/etc/hosts", "10.1.2.3 train-2\n"}}));
  EXPECT_EQ(lonely.master_addr, std::nullopt);
  EXPECT_THAT(explain(lonely), HasSubstr("headless"));
}

TEST(Detect, Kubeflow) {
  const Environment pod{{"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
                        {"PET_NNODES", "2"},
                        {"PET_NODE_RANK", "1"},
                        {"PET_NPROC_PER_NODE", "4"},
                        {"PET_MASTER_ADDR", "job-master-0"},
                        {"PET_MASTER_PORT", "23456"}};
  const Placement placement = detect(pod, machine("job-worker-0"));
  EXPECT_EQ(placement.system, JobSystem::kubeflow);
  EXPECT_EQ(placement.nnodes, 2);
  EXPECT_EQ(placement.node_rank, 1);
  EXPECT_EQ(placement.nproc_per_node, 4);
  EXPECT_EQ(placement.master_addr, "job-master-0");
  EXPECT_EQ(placement.master_port, 23456);
  EXPECT_EQ(detect(with(pod, {{"PET_NNODES", "2:2"}}), machine("")).nnodes, 2);
  EXPECT_EQ(detect(with(pod, {{"PET_NNODES", "1:4"}}), machine("")).nnodes, std::nullopt);
  EXPECT_EQ(detect(with(pod, {{"PET_NPROC_PER_NODE", "auto"}}), machine("")).nproc_per_node, std::nullopt);
  EXPECT_EQ(detect(with(pod, {{"MASTER_ADDR", "mine"}}), machine("")).master_addr, "mine");
}

TEST(Detect, ImpossibleValuesNameTheVariable) {
  for (const char* value : {"-1", "x", "1x", " 1", "99999999999", "0x1", "1.0"}) {
    try {
      detect({{"RANK", value}, {"WORLD_SIZE", "2"}}, machine(""));
      ADD_FAILURE() << value;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("RANK"));
    }
  }
  EXPECT_THROW(detect({{"RANK", "2"}, {"WORLD_SIZE", "2"}}, machine("")), UsageError);
  EXPECT_THROW(detect({{"RANK", "0"}}, machine("")), UsageError) << "RANK without WORLD_SIZE";
  EXPECT_THROW(detect({{"MASTER_PORT", "70000"}}, machine("")), UsageError);
  EXPECT_THROW(detect(with(openmpi(), {{"OMPI_COMM_WORLD_SIZE", "0"}}), machine("")), UsageError);
}

TEST(Detect, ExplainsEveryValueItHas) {
  const std::string text = explain(detect(slurm_step(), machine("node2")));
  for (const char* part :
       {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NODEID", "first host in", "slurm"})
    EXPECT_THAT(text, HasSubstr(part));
}

}  // namespace
}  // namespace dtrain
