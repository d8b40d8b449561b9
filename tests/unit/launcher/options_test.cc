// Typed options: what is accepted, and how the impossible is refused.
#include "launcher/plan/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "launcher/plan/foreign_options.h"
#include "tests/unit/launcher/parse.h"

namespace dtrain::launcher {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

TEST(LaunchOptions, Defaults) {
  const LaunchOptions options = options_of({"p"});
  EXPECT_FALSE(options.nnodes);
  EXPECT_EQ(options.nproc_kind, NprocKind::automatic);
  EXPECT_EQ(options.max_restarts, 0);
  EXPECT_EQ(options.failure_grace, std::chrono::seconds(5));
  EXPECT_EQ(options.signal_grace, std::chrono::seconds(30));
  EXPECT_THAT(options.stop_signals, Contains(SIGINT));
}

TEST(LaunchOptions, NprocKinds) {
  EXPECT_EQ(options_of({"--nproc_per_node=auto"}).nproc_kind, NprocKind::automatic);
  EXPECT_EQ(options_of({"--nproc_per_node=gpu"}).nproc_kind, NprocKind::gpu);
  EXPECT_EQ(options_of({"--nproc_per_node=cpu"}).nproc_kind, NprocKind::cpu);
  EXPECT_EQ(options_of({"--nproc_per_node=xpu"}).nproc_kind, NprocKind::xpu);
  EXPECT_EQ(options_of({"--nproc_per_node=12"}).nproc, 12);
}

struct BadValue {
  std::vector<std::string> arguments;
  std::string says;
};

class ImpossibleValue : public ::testing::TestWithParam<BadValue> {};

TEST_P(ImpossibleValue, IsRefusedByName) {
  EXPECT_THAT(complaint([] { options_of(GetParam().arguments); }), HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    LaunchOptions, ImpossibleValue,
    ::testing::Values(
        BadValue{{"--nproc_per_node=0"}, "--nproc-per-node (from command line): expected"},
        BadValue{{"--nproc_per_node=-1"}, "got '-1'"}, BadValue{{"--nproc_per_node=2x"}, "got '2x'"},
        BadValue{{"--nproc_per_node="}, "--nproc-per-node (from command line): expected"},
        BadValue{{"--nproc_per_node=99999999999999999999"}, "--nproc-per-node"},
        BadValue{{"--nnodes=0"}, "--nnodes"}, BadValue{{"--nnodes=3:2"}, "MIN <= MAX"},
        BadValue{{"--nnodes=1:"}, "MIN:MAX"}, BadValue{{"--rdzv-conf=join_timeout"}, "NAME=VALUE"},
        BadValue{{"--rdzv-id=" + std::string(129, 'x')}, "a name of at most 128 bytes"},
        BadValue{{"--rdzv-conf=join_timeout=x"}, "join_timeout in seconds"},
        BadValue{{"--spares=1"}, "--spares: expected --max-restarts of 1 or more"},
        BadValue{{"--spares=1", "--max-restarts=1", "--nnodes=1:2"}, "--spares: expected a fixed number"},
        BadValue{{"--join-timeout=x"}, "--join-timeout"}, BadValue{{"--master_port=65536"}, "0 to 65535"},
        BadValue{{"--master_port=http"}, "got 'http'"}, BadValue{{"--max_restarts=-1"}, "--max-restarts"},
        BadValue{{"--shutdown-timeout=nan"}, "--shutdown-timeout"},
        BadValue{{"--shutdown-timeout=-2"}, "0 to 604800"}, BadValue{{"-r", "4"}, "--redirects"},
        BadValue{{"-t", "0:1,x:2"}, "--tee"}, BadValue{{"-t", "0:1,"}, "--tee"},
        BadValue{{"--local-ranks-filter=a"}, "--local-ranks-filter"},
        BadValue{{"--signals-to-handle=SIGNOPE"}, "--signals-to-handle"},
        BadValue{{"--signals-to-handle=SIGKILL"}, "can handle"},
        BadValue{{"--numa-binding=moon"}, "--numa-binding"}, BadValue{{"-m", "--no-python", "x"}, "exclude"},
        BadValue{{"--standalone", "--nnodes=2"}, "--standalone"},
        BadValue{{"--standalone=maybe"}, "true or false"},
        BadValue{{"--rdzv-endpoint=h:port"}, "--rdzv-endpoint"}));

TEST(LaunchOptions, NodesAreOneNumberOrARange) {
  EXPECT_EQ(options_of({"--nnodes=3"}).nnodes->least, 3);
  EXPECT_EQ(options_of({"--nnodes=3"}).nnodes->most, 3);
  EXPECT_EQ(options_of({"--nnodes=1:4"}).nnodes->least, 1);
  EXPECT_EQ(options_of({"--nnodes=1:4"}).nnodes->most, 4);
}

TEST(LaunchOptions, TorchrunsVariablesAreUnderstood) {
  const LaunchOptions options = options_of({"p"}, {{"PET_NNODES", "2"}, {"PET_RDZV_ID", "job"}});
  EXPECT_EQ(options.nnodes->most, 2);
  EXPECT_EQ(options.run_id, "job");
  EXPECT_EQ(options.sources.at("nnodes"), "PET_NNODES");
  EXPECT_EQ(options_of({"p"}, {{"PET_NNODES", "2"}, {"DTRAIN_NNODES", "3"}}).nnodes->most, 3);
}

// Of a service that is called dtrain-master or pet-master.
TEST(LaunchOptions, AServicesVariableIsNoPort) {
  for (const char* name : {"DTRAIN_MASTER_PORT", "PET_MASTER_PORT"})
    EXPECT_FALSE(options_of({"p"}, {{name, "tcp://10.0.0.7:80"}}).master_port) << name;
  EXPECT_THAT(complaint([] { options_of({"--master-port=tcp://10.0.0.7:80"}); }), HasSubstr("0 to 65535"));
}

// As torch 2.15's torchrun --help and torch.distributed.launch --help list them.
TEST(LaunchOptions, EveryOptionOfTorchrunIsAccepted) {
  for (const char* option : {"--nnodes=1",
                             "--nproc-per-node=1",
                             "--rdzv-backend=c10d",
                             "--rdzv-endpoint=h:1",
                             "--rdzv-id=x",
                             "--rdzv-conf=timeout=3",
                             "--standalone",
                             "--max-restarts=1",
                             "--monitor-interval=1",
                             "--start-method=spawn",
                             "--event-log-handler=null",
                             "--role=r",
                             "--module",
                             "--no-python",
                             "--run-path",
                             "--log-dir=d",
                             "--redirects=3",
                             "--tee=3",
                             "--log-line-prefix-template=x",
                             "--local-ranks-filter=0",
                             "--duplicate-stdout-filters=a,b",
                             "--duplicate-stderr-filters=a",
                             "--node-rank=0",
                             "--master-addr=a",
                             "--master-port=1",
                             "--local-addr=a",
                             "--logs-specs=default",
                             "--numa-binding=node",
                             "--signals-to-handle=SIGTERM",
                             "--shutdown-timeout=3",
                             "--virtual-local-rank",
                             "--print-completion=bash",
                             "--use-env"})
    EXPECT_EQ(complaint([&] { options_of({option, "program"}); }), "") << option;
  EXPECT_EQ(parse({"--event-log-handler=null", "p"}).notes.size(), 1u);
}

TEST(LaunchOptions, FiltersAreSeparatedByCommasAndADoubledOneIsMeant) {
  const LaunchOptions options = options_of({"--duplicate-stdout-filters=a,b,,c,d", "p"});
  EXPECT_THAT(options.stdout_filters, ::testing::ElementsAre("a", "b,c", "d"));
  EXPECT_THAT(options.stderr_filters, ::testing::IsEmpty());
  EXPECT_THAT(complaint([] {
                options_of({"--duplicate-stderr-filters=a,", "p"});
              }),
              HasSubstr("--duplicate-stderr-filters"));
}

TEST(LaunchOptions, TorchrunsVariableForTheShutdownTimeoutIsTakenWhereTheOptionIsNotGiven) {
  const Environment environment{{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7"}};
  LaunchOptions options = options_of({"p"});
  take_shutdown_timeout(environment, options);
  EXPECT_EQ(options.signal_grace, std::chrono::seconds(7));
  EXPECT_EQ(options.failure_grace, std::chrono::seconds(7));
  options = options_of({"--shutdown-timeout=3", "p"});
  take_shutdown_timeout(environment, options);
  EXPECT_EQ(options.signal_grace, std::chrono::seconds(3));
  EXPECT_THAT(complaint([&] {
                options = options_of({"p"});
                take_shutdown_timeout({{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "soon"}}, options);
              }),
              HasSubstr("TORCH_ELASTIC_SHUTDOWN_TIMEOUT: expected seconds"));
}

TEST(LaunchOptions, OptionsOfMpirunGetAnAnswer) {
  for (const char* option : {"-n", "-np", "-np4", "--np", "-ppn", "-n2", "-N", "--ntasks=4", "--num_gpus"})
    EXPECT_THAT(complaint([&] { parse({option, "4", "prog"}); }), HasSubstr("--nproc-per-node=N")) << option;
  for (const char* option : {"-H", "--hostfile", "--host=a,b", "-machinefile"})
    EXPECT_THAT(complaint([&] {
                  parse({"--nnodes", "2", "-m", option, "f"});
                }),
                HasSubstr("several hosts are --hosts a,b,c or --hosts @FILE"))
        << option;
  // The program's own, a value, and ours are none.
  EXPECT_EQ(parse({"--nproc-per-node=2", "prog", "-n", "3"}).rest.size(), 3U);
  EXPECT_EQ(parse({"--", "-n", "3"}).rest.size(), 2U);
  EXPECT_EQ(parse({"--role", "-n", "-r", "3", "-t3", "prog"}).rest.size(), 1U);
}

TEST(LaunchOptions, CompletionKnowsEveryOption) {
  for (const char* shell : {"bash", "zsh", "tcsh"}) {
    const std::string script = completion_script(parse({std::string("--print-completion=") + shell}).options);
    EXPECT_THAT(script, AllOf(HasSubstr("complete"), HasSubstr("nproc-per-node"), HasSubstr("rdzv-id")));
  }
  EXPECT_THAT(complaint([] { completion_script(parse({"--print-completion=fish"}).options); }),
              HasSubstr("bash, zsh, tcsh"));
}

TEST(LaunchOptions, RendezvousTimeouts) {
  const LaunchOptions options =
      options_of({"--rdzv-conf=join_timeout=1.5,last_call_timeout=2,read_timeout=60"});
  EXPECT_EQ(options.join_timeout, std::chrono::milliseconds(1500));
  EXPECT_EQ(options.last_call, std::chrono::seconds(2));
}

TEST(LaunchOptions, ErrorNamesTheSource) {
  EXPECT_THAT(complaint([] {
                options_of({"p"}, {{"DTRAIN_NPROC_PER_NODE", "zero"}});
              }),
              HasSubstr("from DTRAIN_NPROC_PER_NODE"));
  EXPECT_THAT(complaint([] { options_of({"--nproc_per_node=zero"}); }), HasSubstr("from command line"));
}

TEST(LaunchOptions, StreamChoiceByRank) {
  const LaunchOptions options = options_of({"-r", "3", "-t", "0:1,2:2", "p"});
  EXPECT_TRUE(options.redirects.of(5).out && options.redirects.of(5).err);
  EXPECT_TRUE(options.tee.of(0).out);
  EXPECT_FALSE(options.tee.of(0).err);
  EXPECT_FALSE(options.tee.of(1).out || options.tee.of(1).err);
  EXPECT_TRUE(options.tee.of(2).err);
  EXPECT_EQ(options.tee.highest_rank(), 2);
}

TEST(LaunchOptions, ShutdownTimeoutSetsBothGraces) {
  const LaunchOptions options = options_of({"--shutdown-timeout=0.25"});
  EXPECT_EQ(options.failure_grace, std::chrono::milliseconds(250));
  EXPECT_EQ(options.signal_grace, std::chrono::milliseconds(250));
}

TEST(LaunchOptions, SignalsHaveNamesAndNumbers) {
  EXPECT_EQ(signal_number("SIGTERM"), SIGTERM);
  EXPECT_EQ(signal_number("USR1"), SIGUSR1);
  EXPECT_EQ(signal_number("15"), 15);
  EXPECT_FALSE(signal_number("SIGFOO"));
  EXPECT_FALSE(signal_number("0"));
  EXPECT_EQ(signal_name(SIGSEGV), "SIGSEGV");
  // The three usual ones are handled whatever the list says.
  EXPECT_THAT(options_of({"--signals-to-handle=SIGQUIT"}).stop_signals,
              AllOf(Contains(SIGQUIT), Contains(SIGTERM)));
}

}  // namespace
}  // namespace dtrain::launcher
