// Ranks, environment, devices and output of each worker.
#include "launcher/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/unit/launcher/parse.h"

namespace dtrain::launcher {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const Program kForeign{"/bin/prog", {"prog", "-x"}, false};
const Program kBuiltin{"/opt/dtrain", {"dtrain", "train"}, true};

Hardware hardware_with(std::vector<std::string> gpus, int cores = 8) {
  Hardware hardware;
  hardware.gpus = std::move(gpus);
  for (int i = 0; i < cores; ++i) hardware.cpus.allowed.push_back(i);
  return hardware;
}

Plan plan_of(const std::vector<std::string>& arguments, const Hardware& hardware = hardware_with({}),
             const Environment& environment = {}, const Program& program = kForeign) {
  const LaunchOptions options = options_of(arguments);
  const NodePlacement placement = settle_placement(options, {}, {.hostname = "box.domain"}, true);
  return make_plan(options, placement, equal_share(placement, count_workers(options, hardware)), program,
                   environment, hardware);
}

TEST(Plan, RanksOfTheSecondNodeFollowTheFirst) {
  const Plan plan = plan_of(
      {"--nnodes=3", "--node_rank=1", "--nproc_per_node=4", "--master_addr=head", "--master_port=2222"});
  EXPECT_EQ(plan.share.world_size, 12);
  ASSERT_EQ(plan.workers.size(), 4u);
  const Environment& e = plan.workers[2].environment;
  EXPECT_EQ(e.at("RANK"), "6");
  EXPECT_EQ(e.at("LOCAL_RANK"), "2");
  EXPECT_EQ(e.at("WORLD_SIZE"), "12");
  EXPECT_EQ(e.at("LOCAL_WORLD_SIZE"), "4");
  EXPECT_EQ(e.at("GROUP_RANK"), "1");
  EXPECT_EQ(e.at("GROUP_WORLD_SIZE"), "3");
  EXPECT_EQ(e.at("NODE_RANK"), "1");
  EXPECT_EQ(e.at("ROLE_RANK"), "6");
  EXPECT_EQ(e.at("ROLE_WORLD_SIZE"), "12");
  EXPECT_EQ(e.at("ROLE_NAME"), "default");
  EXPECT_EQ(e.at("MASTER_ADDR"), "head");
  EXPECT_FALSE(e.contains("TORCHELASTIC_RUN_ID")) << "each job has one of its own";
  EXPECT_EQ(e.at("TORCHELASTIC_MAX_RESTARTS"), "0");
}

TEST(Plan, ServersStandBesideTheWorkersAndGoRoundTheNodes) {
  const std::vector<std::string> arguments = {"--nnodes=2", "--nproc_per_node=2", "--servers=3",
                                              "--master_addr=head", "--node_rank=1"};
  const Plan plan = plan_of(arguments, hardware_with({}), {}, kBuiltin);
  EXPECT_EQ(plan.nproc, 2);
  ASSERT_EQ(plan.workers.size(), 3u) << "server 1 is here, 0 and 2 are on the first node";
  EXPECT_EQ(plan.workers[0].environment.at("WORLD_SIZE"), "4");
  EXPECT_EQ(plan.workers[0].environment.at("LOCAL_WORLD_SIZE"), "2");
  EXPECT_EQ(plan.workers[0].environment.at("DTRAIN_SERVERS"), "3");
  EXPECT_EQ(plan.workers[0].environment.at("DTRAIN_SERVER"), "none");
  const WorkerPlan& server = plan.workers[2];
  EXPECT_EQ(server.server, 1);
  EXPECT_EQ(server.rank, 5) << "no worker's";
  EXPECT_EQ(name_of(server), "parameter server 1");
  EXPECT_EQ(server.environment.at("DTRAIN_SERVER"), "1");
  EXPECT_EQ(server.environment.at("WORLD_SIZE"), "4");
  EXPECT_FALSE(server.environment.contains("RANK"));
  EXPECT_THAT(plan_text(plan), HasSubstr("2 workers, 1 parameter servers, world size 4"));
  EXPECT_THROW(plan_of({"--servers=1"}), UsageError) << "others know nothing of servers";
}

TEST(Plan, EmulatedGpusAreCountedAndHandedOn) {
  const LaunchOptions options = options_of({"--emulated-gpus=4"});
  EXPECT_EQ(read_hardware(options, {}).gpus, (std::vector<std::string>{"0", "1", "2", "3"}));
  const Hardware some = read_hardware(options, {{"CUDA_VISIBLE_DEVICES", "2,0"}});
  EXPECT_EQ(some.gpus, (std::vector<std::string>{"2", "0"}));
  EXPECT_TRUE(some.gpu_numa_nodes.empty());
  EXPECT_EQ(read_hardware(options_of({}), {{"DTRAIN_EMULATED_GPUS", "3"}}).gpus.size(), 3u);
  const Plan plan = plan_of({"--emulated-gpus=4"}, some);
  ASSERT_EQ(plan.workers.size(), 2u);  // --nproc-per-node=auto
  EXPECT_EQ(plan.workers[0].environment.at("DTRAIN_EMULATED_GPUS"), "4");
  EXPECT_EQ(plan.workers[0].gpu, "2");
  EXPECT_FALSE(plan_of({}, some).workers[0].environment.contains("DTRAIN_EMULATED_GPUS"));
}

TEST(Plan, NodesMayDifferInTheirNumberOfWorkers) {
  const LaunchOptions options =
      options_of({"--nnodes=3", "--node_rank=2", "--nproc_per_node=2", "--master_addr=head"});
  const NodePlacement placement = settle_placement(options, {}, {.hostname = "box"}, true);
  // Of three nodes with 4, 0 (lost) and 2 workers.
  const Plan plan = make_plan(options, placement, {2, 1, 2, 4, 6}, kForeign, {}, hardware_with({}));
  const Environment& e = plan.workers[1].environment;
  EXPECT_EQ(e.at("RANK"), "5");
  EXPECT_EQ(e.at("WORLD_SIZE"), "6");
  EXPECT_EQ(e.at("LOCAL_WORLD_SIZE"), "2");
  EXPECT_EQ(e.at("GROUP_RANK"), "1");
  EXPECT_EQ(e.at("GROUP_WORLD_SIZE"), "2");
}

TEST(Plan, VariablesOfMpirunAreNotHandedOn) {
  const Environment environment{{"OMPI_COMM_WORLD_RANK", "1"},
                                {"OMPI_MCA_orte_hnp_uri", "1.0;tcp://10.0.0.1:5"},
                                {"OMPI_MCA_ess", "^singleton"},
                                {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                                {"OMPI_CC", "clang"},
                                {"OMPI_MCA_btl", "tcp,self"},
                                {"OMPI_MCA_orte_default_hostfile", "/hosts"},
                                {"PMIX_RANK", "1"},
                                {"PMI_SIZE", "2"},
                                {"ORTE_X", "1"},
                                {"SLURM_PROCID", "1"},
                                {"HYDRA_X", "1"}};
  const Plan plan = plan_of({"p"}, hardware_with({}), environment);
  EXPECT_THAT(plan.removed_variables,
              ::testing::IsSupersetOf({"OMPI_COMM_WORLD_RANK", "OMPI_MCA_orte_hnp_uri", "OMPI_MCA_ess",
                                       "PMIX_RANK", "PMI_SIZE", "ORTE_X", "HYDRA_X"}));
  EXPECT_THAT(plan.removed_variables, Not(::testing::Contains("SLURM_PROCID")));
  // Settings for an mpirun that the program starts itself stay.
  for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_CC",
                           "OMPI_MCA_btl", "OMPI_MCA_orte_default_hostfile"})
    EXPECT_THAT(plan.removed_variables, Not(::testing::Contains(name)));
  EXPECT_THAT(plan_of({"p"}, hardware_with({}), {{"OMPI_MCA_btl", "tcp"}}).removed_variables,
              Not(::testing::Contains("OMPI_MCA_btl")));
}

TEST(Plan, WhatTheUserHadSetBeforeMpirunStays) {
  const std::string policy = "OMPI_MCA_hwloc_base_binding_policy", plm = "OMPI_MCA_plm";
  const Environment environment{{"OMPI_COMM_WORLD_RANK", "0"}, {policy, "none"}, {plm, "rsh"}};
  Hardware hardware = hardware_with({});
  EXPECT_THAT(plan_of({"p"}, hardware, environment).removed_variables,
              ::testing::IsSupersetOf({policy, plm}));
  hardware.before_mpi = {{policy, "none"}, {plm, "slurm"}, {"OMPI_COMM_WORLD_RANK", "0"}};
  const Plan plan = plan_of({"p"}, hardware, environment);
  EXPECT_THAT(plan.removed_variables, Not(::testing::Contains(policy)));
  EXPECT_THAT(plan.removed_variables, ::testing::IsSupersetOf({plm, std::string("OMPI_COMM_WORLD_RANK")}));
}

TEST(Plan, AttemptBringsPortRestartsAndSecrets) {
  const Plan plan = plan_of({"--nproc_per_node=2"}, hardware_with({}), {}, kBuiltin);
  const Attempt attempt{2, 1234, "/scratch", "secret", 9};
  Environment e = attempt_environment(plan, plan.workers[0], attempt);
  EXPECT_EQ(e.at("MASTER_PORT"), "1234");
  EXPECT_EQ(e.at("TORCHELASTIC_RESTART_COUNT"), "2");
  EXPECT_EQ(e.at("TORCHELASTIC_ERROR_FILE"), "/scratch/error_0.json");
  EXPECT_EQ(e.at("DTRAIN_SAVING_FILE"), "/scratch/saving_0");
  EXPECT_EQ(e.at("DTRAIN_TOKEN"), "secret");
  EXPECT_EQ(e.at("DTRAIN_STORE_FD"), "9");
  e = attempt_environment(plan, plan.workers[1], attempt);
  EXPECT_EQ(e.at("DTRAIN_TOKEN"), "secret");
  EXPECT_FALSE(e.contains("DTRAIN_STORE_FD"));
  EXPECT_FALSE(e.contains("DTRAIN_MET_FILE")) << "nobody asks";
  const Plan served = plan_of({"--nproc_per_node=2", "--servers=1"}, hardware_with({}), {}, kBuiltin);
  EXPECT_EQ(attempt_environment(served, served.workers[1], attempt).at("DTRAIN_MET_FILE"), "/scratch/met_1");
  EXPECT_FALSE(attempt_environment(served, served.workers[2], attempt).contains("DTRAIN_MET_FILE"));
}

TEST(Plan, EachJobHasARunId) {
  const std::string name = "TORCHELASTIC_RUN_ID";
  const auto id_of = [&](const std::vector<std::string>& arguments, std::int64_t launched, int restart) {
    const Plan plan = plan_of(arguments);
    Attempt attempt{restart, 1234, "", ""};
    attempt.launch_time_ns = launched;
    Environment e = plan.workers[0].environment;
    e.merge(attempt_environment(plan, plan.workers[0], attempt));
    return e.at(name);
  };
  const std::string own = id_of({"p"}, 1000, 0);
  EXPECT_EQ(own.size(), 16u);
  EXPECT_EQ(id_of({"p"}, 1000, 3), own) << "a restart is the same job's";
  EXPECT_NE(id_of({"p"}, 1001, 0), own);
  EXPECT_EQ(id_of({"--rdzv-id=job7", "p"}, 1000, 0), "job7");
}

TEST(Plan, WorkersAreToldOfTheAgentsStore) {
  const std::string name = "TORCHELASTIC_USE_AGENT_STORE";
  EXPECT_EQ(plan_of({"--agent-store"}).workers[0].environment.at(name), "True");
  const Plan plain = plan_of({"p"}, hardware_with({}), {{name, "True"}});
  EXPECT_FALSE(plain.workers[0].environment.contains(name));
  EXPECT_THAT(plain.removed_variables, ::testing::Contains(name)) << "rank 0 has to open the port";
  EXPECT_THAT(complaint([] { plan_of({"--agent-store"}, hardware_with({}), {}, kBuiltin); }),
              HasSubstr("--agent-store: expected a program that uses PyTorch"));
  EXPECT_TRUE(asks_for_agent_store({{name, "True"}}));
  EXPECT_FALSE(asks_for_agent_store({{name, "False"}}));
  EXPECT_FALSE(asks_for_agent_store({{name, "True"}, {"RANK", "0"}})) << "another launcher's";
}

TEST(Plan, LinesAreMarkedByTheTemplate) {
  const std::vector<std::string> base{"--role=r", "--nproc_per_node=2"};
  const auto prefix_of = [&](const std::vector<std::string>& more, const Environment& environment = {}) {
    std::vector<std::string> arguments = base;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return plan_of(arguments, hardware_with({}), environment).workers[1].prefix;
  };
  const std::string given =
      "--log-line-prefix-template=${hostname}/${rank}/${local_rank}/${role_name}/${x}: ";
  EXPECT_EQ(prefix_of({"-t", "3"}), "[r1]:");
  EXPECT_EQ(prefix_of({"-t", "3", given}), "box/1/1/r/${x}: ");
  EXPECT_EQ(prefix_of({"--log-dir=d", given}), "box/1/1/r/${x}: ");
  EXPECT_EQ(prefix_of({given}), "") << "nothing is teed";
  EXPECT_EQ(prefix_of({"-t", "3"}, {{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "<${rank}>"}}), "<1>");
  EXPECT_EQ(prefix_of({"-t", "3", "--log-line-prefix-template=${${rank}}"}), "${1}");
}

TEST(Plan, ForeignProgramsGetNeitherTokenNorSocket) {
  const Plan plan = plan_of({"--nproc_per_node=1"});
  const Environment e = attempt_environment(plan, plan.workers[0], {0, 1234, "/scratch", "secret", 9});
  EXPECT_FALSE(e.contains("DTRAIN_TOKEN"));
  EXPECT_FALSE(e.contains("DTRAIN_STORE_FD"));
  EXPECT_THAT(plan.removed_variables, ::testing::IsSupersetOf({"DTRAIN_TOKEN", "DTRAIN_STORE_FD"}));
}

TEST(Plan, ForeignProgramsHandleNcclErrorsAsUnderTorchrunAndPrintAtOnce) {
  for (const std::string name : {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "PYTHONUNBUFFERED"}) {
    EXPECT_EQ(plan_of({"p"}).workers[0].environment.at(name), "1");
    EXPECT_FALSE(plan_of({"p"}, hardware_with({}), {{name, ""}}).workers[0].environment.contains(name));
    EXPECT_FALSE(plan_of({"p"}, hardware_with({}), {}, kBuiltin).workers[0].environment.contains(name));
  }
}

TEST(Plan, AutoIsOneWorkerForEachVisibleGpuElseOne) {
  EXPECT_EQ(plan_of({"p"}, hardware_with({"0", "1", "2"})).nproc, 3);
  EXPECT_EQ(plan_of({"p"}).nproc, 1);
  EXPECT_EQ(plan_of({"--nproc_per_node=cpu"}, hardware_with({}, 6)).nproc, 6);
  EXPECT_EQ(plan_of({"--nproc_per_node=gpu"}, hardware_with({"0", "1"})).nproc, 2);
  EXPECT_THAT(complaint([] { plan_of({"--nproc_per_node=gpu"}); }), HasSubstr("found none"));
  EXPECT_THAT(complaint([] { plan_of({"--nproc_per_node=xpu"}); }), HasSubstr("found none"));
  Hardware intel = hardware_with({});
  intel.xpus = 2;
  EXPECT_EQ(plan_of({"--nproc_per_node=xpu"}, intel).nproc, 2);
}

TEST(Plan, GpuOfAWorkerIsItsLocalRankOrTheOnlyOne) {
  const Plan two = plan_of({"--nproc_per_node=2"}, hardware_with({"3", "5"}));
  EXPECT_EQ(two.workers[1].gpu, "5");
  const Plan one = plan_of({"--nproc_per_node=2"}, hardware_with({"3"}));
  EXPECT_EQ(one.workers[1].gpu, "3");
}

TEST(Plan, VirtualLocalRankShowsEachWorkerItsOwnGpu) {
  const Plan plan = plan_of({"--nproc_per_node=2", "--virtual-local-rank"}, hardware_with({"3", "5"}));
  EXPECT_EQ(plan.workers[1].environment.at("LOCAL_RANK"), "0");
  EXPECT_EQ(plan.workers[1].environment.at("RANK"), "1");
  EXPECT_EQ(plan.workers[1].environment.at("CUDA_VISIBLE_DEVICES"), "5");
}

TEST(Plan, OmpThreadsOnlyWhenUnset) {
  EXPECT_EQ(plan_of({"--nproc_per_node=2"}).workers[0].environment.at("OMP_NUM_THREADS"), "4");
  EXPECT_EQ(plan_of({"--nproc_per_node=64"}).workers[0].environment.at("OMP_NUM_THREADS"), "1");
  EXPECT_FALSE(plan_of({"p"}, hardware_with({}), {{"OMP_NUM_THREADS", "7"}})
                   .workers[0]
                   .environment.contains("OMP_NUM_THREADS"));
}

TEST(Plan, ThreadsOfOurWorkersWaitAsleep) {
  const auto policy = [](const Environment& environment) {
    const Environment worker = plan_of({}, hardware_with({}), environment, kBuiltin).workers[0].environment;
    const auto found = worker.find("OMP_WAIT_POLICY");
    return found == worker.end() ? std::string("as it is") : found->second;
  };
  EXPECT_EQ(policy({}), "passive");
  EXPECT_EQ(policy({{"OMP_WAIT_POLICY", "active"}}), "as it is");
  EXPECT_EQ(policy({{"GOMP_SPINCOUNT", "100"}}), "as it is");
  EXPECT_FALSE(plan_of({"p"}).workers[0].environment.contains("OMP_WAIT_POLICY"))
      << "another program's threads";
}

TEST(Plan, LocalRankIsPassedOnlyOnRequest) {
  EXPECT_EQ(plan_of({"--nproc_per_node=2"}).workers[1].argv, kForeign.argv);
  EXPECT_EQ(plan_of({"--nproc_per_node=2", "--pass-local-rank"}).workers[1].argv.back(), "--local-rank=1");
}

TEST(Plan, StreamsFollowRedirectsTeeAndFilter) {
  Plan plan = plan_of({"--nproc_per_node=2", "p"});
  EXPECT_TRUE(plan.workers[0].out.console && plan.workers[0].out.file.empty());
  EXPECT_FALSE(plan.writes_files);

  plan = plan_of({"--nproc_per_node=2", "-r", "1", "p"});
  EXPECT_FALSE(plan.workers[1].out.console);
  EXPECT_EQ(plan.workers[1].out.file, "1/stdout.log");
  EXPECT_TRUE(plan.workers[1].err.console && plan.workers[1].err.file.empty());

  plan = plan_of({"--nproc_per_node=2", "-t", "1:2", "p"});
  EXPECT_TRUE(plan.workers[1].err.console);
  EXPECT_EQ(plan.workers[1].err.file, "1/stderr.log");
  EXPECT_EQ(plan.workers[1].prefix, "[default1]:");
  EXPECT_EQ(plan.workers[0].prefix, "");

  plan = plan_of({"--nproc_per_node=2", "--log-dir=d", "--local-ranks-filter=1", "p"});
  EXPECT_FALSE(plan.workers[0].out.console);
  EXPECT_EQ(plan.workers[0].out.file, "0/stdout.log");
  EXPECT_TRUE(plan.workers[1].out.console);
}

TEST(Plan, RanksFilterCountsGlobally) {
  const Plan plan = plan_of({"--nnodes=2", "--node_rank=1", "--nproc_per_node=2", "--master_addr=a",
                             "--master_port=1", "--ranks-filter=0,3", "p"});
  EXPECT_FALSE(plan.workers[0].out.console);
  EXPECT_TRUE(plan.workers[1].out.console);
}

TEST(Plan, RanksThatDoNotExistAreRefused) {
  EXPECT_THAT(complaint([] { plan_of({"--nproc_per_node=2", "-r", "2:3"}); }), HasSubstr("--redirects"));
  EXPECT_THAT(complaint([] {
                plan_of({"--nproc_per_node=2", "--local-ranks-filter=0,2"});
              }),
              HasSubstr("local rank 2"));
}

TEST(Plan, PrefixNamesHostAndRank) {
  EXPECT_EQ(plan_of({"--nproc_per_node=2", "--prefix"}).workers[1].prefix, "box:1: ");
}

TEST(Plan, IfaceIsForNcclAndGloo) {
  const Plan plan = plan_of({"--iface=eth7"});
  EXPECT_EQ(plan.workers[0].environment.at("NCCL_SOCKET_IFNAME"), "eth7");
  EXPECT_EQ(plan.workers[0].environment.at("GLOO_SOCKET_IFNAME"), "eth7");
}

TEST(Plan, TextShowsWhoRunsWhatAndNoSecret) {
  const std::string text = plan_text(
      plan_of({"--nproc_per_node=2"}, hardware_with({"0", "1"}), {{"DTRAIN_TOKEN", "hush"}}, kBuiltin));
  EXPECT_THAT(text, HasSubstr("world size 2"));
  EXPECT_THAT(text, HasSubstr("rank 1 (local rank 1) on box, GPU 1"));
  EXPECT_THAT(text, HasSubstr("dtrain train"));
  EXPECT_THAT(text, Not(HasSubstr("hush")));
}

}  // namespace
}  // namespace dtrain::launcher
