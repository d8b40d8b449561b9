// Who wins among options, variables and systems; what is refused; what mpirun, srun and others are understood
// to mean when they start launchers instead of workers.
#include "launcher/plan/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/nodes/reach.h"
#include "tests/unit/launcher/parse.h"

namespace dtrain::launcher {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

NodePlacement placement_of(const std::vector<std::string>& arguments, const Environment& environment = {},
                           bool has_token = true) {
  return settle_placement(options_of(arguments, environment), environment, {.hostname = "gpu002.cluster"},
                          has_token);
}

std::string how(const NodePlacement& placement, const std::string& name) {
  for (const Explanation& line : placement.explanations) {
    if (line.name == name) return line.how;
  }
  return "";
}

Environment slurm() {
  return {{"SLURM_JOB_ID", "7"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", "1"},
          {"SLURM_LOCALID", "0"},
          {"SLURM_NODEID", "1"},
          {"SLURM_STEP_NUM_TASKS", "3"},
          {"SLURM_STEP_NUM_NODES", "3"},
          {"SLURM_STEP_NODELIST", "gpu[001-003]"},
          {"SLURM_STEP_TASKS_PER_NODE", "1(x3)"},
          {"SLURMD_NODENAME", "gpu002"}};
}

Environment openmpi() {
  return {{"OMPI_COMM_WORLD_RANK", "1"},
          {"OMPI_COMM_WORLD_SIZE", "2"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}};
}

TEST(NodePlacement, OneNodeIsTheDefault) {
  const NodePlacement placement = placement_of({"p"});
  EXPECT_FALSE(placement.many());
  EXPECT_EQ(placement.node_rank, 0);
  EXPECT_EQ(placement.master_addr, "127.0.0.1");
  EXPECT_EQ(placement.master_port, 0);
  EXPECT_EQ(placement.host, "gpu002");
}

TEST(NodePlacement, SparesAreLaunchersBesideTheNodes) {
  const std::vector<std::string> spare{"--spares=1", "--max-restarts=3", "p"};
  const NodePlacement counted = placement_of(spare, slurm());
  EXPECT_EQ(counted.nodes.most, 2) << "of three launchers";
  EXPECT_EQ(counted.spares, 1);
  EXPECT_TRUE(counted.many());
  EXPECT_EQ(
      placement_of({"--nnodes=2", "--node_rank=2", "--master_addr=a", "--spares=1", "--max-restarts=3", "p"})
          .node_rank,
      2);
  EXPECT_THAT(complaint([] {
                placement_of({"--nnodes=2", "--node_rank=3", "--master_addr=a", "--spares=1",
                              "--max-restarts=3", "p"});
              }),
              HasSubstr("expected 0 to 2 with --nnodes=2 and --spares=1"));
  EXPECT_THAT(complaint([] {
                placement_of({"--spares=3", "--max-restarts=3", "p"}, slurm());
              }),
              HasSubstr("expected fewer than the 3 launchers"));
}

TEST(NodePlacement, AWorkersVariablesAreNotTheLaunchers) {
  const NodePlacement placement = placement_of({"p"}, {{"RANK", "3"},
                                                       {"WORLD_SIZE", "8"},
                                                       {"LOCAL_RANK", "1"},
                                                       {"MASTER_ADDR", "far"},
                                                       {"MASTER_PORT", "1"}});
  EXPECT_FALSE(placement.many());
  EXPECT_EQ(placement.master_addr, "127.0.0.1");
  EXPECT_EQ(placement.master_port, 0);
}

TEST(NodePlacement, FlagsSayAll) {
  const NodePlacement placement = placement_of({"--nnodes=2", "--node_rank=1", "--master_addr=head"});
  EXPECT_TRUE(placement.many());
  EXPECT_EQ(placement.node_rank, 1);
  EXPECT_EQ(placement.master_port, 29500);
  EXPECT_EQ(placement.rendezvous, (Endpoint{"head", 29501}));
  EXPECT_EQ(how(placement, "nnodes"), "--nnodes, command line");
}

TEST(NodePlacement, WhatIsMissingIsNamed) {
  EXPECT_THAT(complaint([] { placement_of({"--nnodes=2"}); }),
              HasSubstr("--node-rank is needed with --nnodes=2"));
  EXPECT_THAT(complaint([] {
                placement_of({"--nnodes=2", "--node_rank=1"});
              }),
              HasSubstr("--master-addr is needed"));
  EXPECT_THAT(complaint([] {
                placement_of({"--nnodes=2", "--node_rank=2", "--master_addr=a"});
              }),
              AllOf(HasSubstr("expected 0 to 1"), HasSubstr("got 2")));
  EXPECT_THAT(complaint([] { placement_of({"--node_rank=1"}); }), HasSubstr("--node-rank: expected 0 to 0"));
  EXPECT_THAT(complaint([] {
                placement_of({"--nnodes=2", "--node_rank=0", "--master_addr=a", "--master_port=65535"});
              }),
              HasSubstr("65534"));
}

TEST(NodePlacement, MasterVariablesCountForManyNodes) {
  const Environment environment{{"MASTER_ADDR", "head"}, {"MASTER_PORT", "4000"}};
  const NodePlacement placement = placement_of({"--nnodes=2", "--node_rank=1"}, environment);
  EXPECT_EQ(placement.master_addr, "head");
  EXPECT_EQ(placement.rendezvous.text(), "head:4001");
  EXPECT_EQ(placement_of({"--nnodes=2", "--node_rank=1", "--master_addr=m"}, environment).master_addr, "m");
}

TEST(NodePlacement, AnEndpointIsEnoughAndNodesGetTheirRanks) {
  const NodePlacement placement = placement_of({"--nnodes=1:4", "--rdzv-endpoint=[::1]:7000"});
  EXPECT_TRUE(placement.many());
  EXPECT_EQ(placement.nodes.least, 1);
  EXPECT_FALSE(placement.node_rank);
  EXPECT_EQ(placement.master_addr, "::1");
  EXPECT_EQ(placement.master_port, 0);
  EXPECT_EQ(placement.rendezvous, (Endpoint{"::1", 7000}));
  EXPECT_EQ(placement_of({"--nnodes=2", "--rdzv-endpoint=h"}).rendezvous.port, 29400);
  // On one node it stands in for master address and port.
  EXPECT_EQ(placement_of({"--rdzv-endpoint=localhost:29400"}).master_port, 29400);
}

TEST(NodePlacement, SlurmTellsEverything) {
  const NodePlacement placement = placement_of({"p"}, slurm());
  EXPECT_EQ(placement.nodes.most, 3);
  EXPECT_EQ(placement.node_rank, 1);
  EXPECT_EQ(placement.master_addr, "gpu001");
  EXPECT_GE(placement.master_port, 20000);
  EXPECT_EQ(placement.rendezvous.port, placement.master_port + 1);
  EXPECT_THAT(placement.hosts, ElementsAre("gpu001", "gpu002", "gpu003"));
  EXPECT_EQ(placement.host, "gpu002");
  EXPECT_THAT(how(placement, "master_addr"), HasSubstr("SLURM_STEP_NODELIST"));
  Environment other = slurm();
  other["SLURM_JOB_ID"] = "8";
  EXPECT_NE(placement_of({"p"}, other).master_port, placement.master_port);
  EXPECT_EQ(placement_of({"--master_port=5"}, slurm()).master_port, 5);
  EXPECT_FALSE(placement_of({"--standalone"}, slurm()).many());
}

// In a namespace with a service called "master" every pod finds these.
TEST(NodePlacement, AServiceCalledMasterIsNoPort) {
  const Environment pod{{"MASTER_PORT", "tcp://10.0.0.7:80"}, {"MASTER_SERVICE_HOST", "10.0.0.7"}};
  EXPECT_EQ(placement_of({"p"}, pod).master_port, 0);
  const NodePlacement many = placement_of({"--nnodes=2", "--node_rank=1", "--master_addr=head"}, pod);
  EXPECT_EQ(many.master_port, 29500);
  EXPECT_THAT(how(many, "master_port"),
              HasSubstr("MASTER_PORT=tcp://10.0.0.7:80 is a variable of a Kubernetes service"));
  EXPECT_THAT(complaint([] {
                placement_of({"--nnodes=2", "--node_rank=1", "--master_addr=head"}, {{"MASTER_PORT", "x"}});
              }),
              HasSubstr("expected a port"));
}

Environment heterogeneous(const std::string& step, const std::string& node, const std::string& node_id) {
  return {{"SLURM_JOB_ID", "7"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", node_id},
          {"SLURM_LOCALID", "0"},
          {"SLURM_NODEID", node_id},
          {"SLURM_STEP_NUM_TASKS", "2"},
          {"SLURM_STEP_NUM_NODES", "2"},
          {"SLURM_STEP_NODELIST", step},
          {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
          {"SLURM_HET_SIZE", "2"},
          {"SLURM_JOB_NODELIST_HET_GROUP_0", "node3"},
          {"SLURM_JOB_NODELIST_HET_GROUP_1", "node[1-2]"},
          {"SLURMD_NODENAME", node}};
}

TEST(NodePlacement, AStepOverComponentsOfAHeterogeneousSlurmJobIsRefused) {
  EXPECT_THAT(complaint([] { placement_of({"p"}, heterogeneous("node[1,3]", "node3", "0")); }),
              AllOf(HasSubstr("heterogeneous"), HasSubstr("node[1,3]"), HasSubstr("het-group")));
  EXPECT_EQ(placement_of({"p"}, heterogeneous("node[1-2]", "node2", "1")).node_rank, 1);
  EXPECT_FALSE(placement_of({"--standalone"}, heterogeneous("node[1,3]", "node3", "0")).many());
  Environment plain = slurm();
  plain["SLURMD_NODENAME"] = "gpu003";  // as "srun -w gpu003 … : -w gpu001 …" numbers them
  EXPECT_THAT(complaint([&] { placement_of({"p"}, plain); }),
              AllOf(HasSubstr("SLURM_NODEID"), HasSubstr("gpu003"), HasSubstr("got gpu002")));
}

TEST(NodePlacement, ABatchScriptWithoutSrunIsNoticed) {
  const Environment batch{{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}, {"SLURM_JOB_NUM_NODES", "4"}};
  const NodePlacement placement = placement_of({"p"}, batch);
  EXPECT_FALSE(placement.many());
  ASSERT_EQ(placement.notes.size(), 1u);
  EXPECT_THAT(placement.notes[0], AllOf(HasSubstr("4 nodes"), HasSubstr("srun --ntasks-per-node=1")));
  EXPECT_TRUE(placement_of({"--standalone"}, batch).notes.empty());
}

TEST(NodePlacement, SeveralLaunchersOnANodeAreToldTheFix) {
  Environment tasks = slurm();
  tasks["SLURM_STEP_NUM_TASKS"] = "6";
  tasks["SLURM_STEP_TASKS_PER_NODE"] = "2(x3)";
  EXPECT_THAT(complaint([&] { placement_of({"p"}, tasks); }),
              AllOf(HasSubstr("2 launchers on this node"), HasSubstr("srun --ntasks-per-node=1")));
  Environment ranks = openmpi();
  ranks["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  EXPECT_THAT(complaint([&] { placement_of({"p"}, ranks); }), HasSubstr("mpirun --map-by ppr:1:node"));
}

TEST(NodePlacement, UnderMpirunRanksAreNodesAndMpiIsAsked) {
  const NodePlacement placement = placement_of({"p"}, openmpi(), false);
  EXPECT_EQ(placement.nodes.most, 2);
  EXPECT_EQ(placement.node_rank, 1);
  EXPECT_TRUE(placement.ask_mpi);
  EXPECT_TRUE(placement.master_addr.empty());
  EXPECT_TRUE(placement_of({"--master_addr=head"}, openmpi(), false).ask_mpi) << "for the secret";
  EXPECT_FALSE(placement_of({"--master_addr=head"}, openmpi(), true).ask_mpi);
  EXPECT_FALSE(placement_of({"--master_addr=head", "--insecure"}, openmpi(), false).ask_mpi);
}

TEST(NodePlacement, HydraPmiKubernetesKubeflowPbsAndLsf) {
  const NodePlacement hydra = placement_of(
      {"p"}, {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "1"}});
  EXPECT_EQ(hydra.nodes.most, 4);
  EXPECT_EQ(hydra.node_rank, 3);
  const Environment pod{
      {"KUBERNETES_SERVICE_HOST", "x"}, {"JOB_COMPLETION_INDEX", "1"}, {"MASTER_ADDR", "job-0.s"}};
  EXPECT_THAT(complaint([&] { placement_of({"p"}, pod); }),
              AllOf(HasSubstr("--nnodes is needed"), HasSubstr("NNODES")));
  EXPECT_EQ(placement_of({"--nnodes=2"}, pod).node_rank, 1);
  const NodePlacement kubeflow = placement_of({"p"}, {{"PET_NNODES", "2"},
                                                      {"PET_NODE_RANK", "1"},
                                                      {"PET_MASTER_ADDR", "w-0"},
                                                      {"PET_MASTER_PORT", "23456"},
                                                      {"PET_NPROC_PER_NODE", "2"},
                                                      {"RANK", "1"},
                                                      {"WORLD_SIZE", "2"}});
  EXPECT_EQ(kubeflow.node_rank, 1);
  EXPECT_EQ(kubeflow.rendezvous.text(), "w-0:23457");
  const Machine machine{"n2", [](const std::string& path) -> std::optional<std::string> {
                          if (path == "/nodes") return "n1\nn1\nn2\n";
                          return std::nullopt;
                        }};
  const Environment pbs{
      {"PBS_ENVIRONMENT", "PBS_BATCH"}, {"PBS_JOBID", "5.head"}, {"PBS_NODEFILE", "/nodes"}};
  const NodePlacement at_pbs = settle_placement(options_of({"p"}), pbs, machine, true);
  EXPECT_EQ(at_pbs.nodes.most, 2);
  EXPECT_EQ(at_pbs.node_rank, 1);
  EXPECT_EQ(at_pbs.master_addr, "n1");
  const NodePlacement lsf = placement_of({"--master_addr=h"}, {{"LSB_JOBID", "9"},
                                                               {"JSM_NAMESPACE_RANK", "1"},
                                                               {"JSM_NAMESPACE_SIZE", "2"},
                                                               {"JSM_NAMESPACE_LOCAL_RANK", "0"},
                                                               {"JSM_NAMESPACE_LOCAL_SIZE", "1"}});
  EXPECT_EQ(lsf.nodes.most, 2);
  EXPECT_EQ(lsf.node_rank, 1);
}

TEST(NodePlacement, Flux) {
  Machine machine{.hostname = "n2"};
  machine.output_of = [](const std::vector<std::string>& argv) -> std::optional<std::string> {
    if (argv.back() == "local") return "n[1-2]\n";
    return std::nullopt;
  };
  const auto job = [](const char* size) {
    return Environment{{"FLUX_JOB_ID", "f1"},    {"FLUX_TASK_RANK", "1"},     {"FLUX_JOB_SIZE", size},
                       {"FLUX_JOB_NNODES", "2"}, {"FLUX_TASK_LOCAL_ID", "0"}, {"PMI_RANK", "1"},
                       {"PMI_SIZE", size}};
  };
  const NodePlacement placement = settle_placement(options_of({"p"}), job("2"), machine, true);
  EXPECT_EQ(placement.nodes.most, 2);
  EXPECT_EQ(placement.node_rank, 1);
  EXPECT_EQ(placement.master_addr, "n1");
  EXPECT_FALSE(placement.ask_mpi);
  EXPECT_THAT(complaint([&] { settle_placement(options_of({"p"}), job("3"), machine, true); }),
              AllOf(HasSubstr("flux run started 3 launchers on 2 nodes"), HasSubstr("--tasks-per-node=1")));
  machine.output_of = [](const std::vector<std::string>&) { return std::optional<std::string>(); };
  EXPECT_THAT(complaint([&] { settle_placement(options_of({"p"}), job("2"), machine, true); }),
              AllOf(HasSubstr("--master-addr is needed"), HasSubstr("flux hostlist local")));
}

TEST(NodePlacement, ExplanationsCoverEveryValue) {
  const std::string text = explanation_text(placement_of({"p"}, slurm()));
  for (const char* name :
       {"system", "host", "nnodes", "node_rank", "master_addr", "master_port", "rendezvous"})
    EXPECT_THAT(text, ::testing::ContainsRegex(std::string(name) + " +[^ ]"));
  EXPECT_THAT(text, HasSubstr("SLURM_NODEID"));
}

TEST(Reach, TheSecretsSources) {
  const std::string hex(64, 'a'), other(64, 'b');
  EXPECT_EQ(find_secret(options_of({"p"}), {}), std::nullopt);
  EXPECT_EQ(find_secret(options_of({"p"}), {{"DTRAIN_TOKEN", hex}})->hex(), hex);
  EXPECT_THROW(find_secret(options_of({"--token-file=/nonexistent"}), {{"DTRAIN_TOKEN", hex}}), SystemError);
}

TEST(Reach, ASecretIsNeededAndOnLoopbackThisUsersOwn) {
  const auto try_to = [](const std::vector<std::string>& arguments) {
    const LaunchOptions options = options_of(arguments);
    NodePlacement placement = settle_placement(options, {}, {.hostname = "h"}, false);
    std::optional<Token> token;
    complete_placement(placement, token, options, "/nonexistent", [](const std::string&) {});
    return token;
  };
  const std::vector<std::string> remote{"--nnodes=2", "--node_rank=0", "--master_addr=192.0.2.1"};
  EXPECT_THAT(complaint([&] { try_to(remote); }),
              AllOf(HasSubstr("192.0.2.1:29501"), HasSubstr("DTRAIN_TOKEN")));
  EXPECT_FALSE(try_to({"--nnodes=2", "--node_rank=0", "--master_addr=127.0.0.1", "--insecure"}));
  const auto token = try_to({"--nnodes=2", "--node_rank=0", "--master_addr=127.0.0.1"});
  ASSERT_TRUE(token) << "other users are on this machine";
  EXPECT_EQ(try_to({"--nnodes=2", "--node_rank=1", "--master_addr=localhost"})->hex(), token->hex());
  std::vector<std::string> insecure = remote;
  insecure.push_back("--insecure");
  EXPECT_EQ(complaint([&] { try_to(insecure); }), "");
}

}  // namespace
}  // namespace dtrain::launcher
