// --hosts: the list, what each host's launcher is started with, and the lines between the two ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/hosts/hosts_plan.h"
#include "tests/unit/launcher/parse.h"

namespace dtrain::launcher {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

ReadFile file(const std::string& content) {
  return
      [content](const std::string& path) { return path == "hosts" ? std::optional(content) : std::nullopt; };
}

std::vector<HostEntry> hosts_of(const std::string& text, const std::string& content = "") {
  return parse_hosts(text, file(content));
}

std::string refusal_of(const std::string& text, const std::string& content = "") {
  return complaint([&] { parse_hosts(text, file(content)); });
}

TEST(HostList, ListsOfAllNotations) {
  EXPECT_THAT(hosts_of("a,b,c"), ElementsAre(HostEntry{"a", {}}, HostEntry{"b", {}}, HostEntry{"c", {}}));
  EXPECT_THAT(hosts_of("a:4,me@b:2"), ElementsAre(HostEntry{"a", 4}, HostEntry{"me@b", 2}));
  EXPECT_THAT(hosts_of("gpu[08-10],x"), ElementsAre(HostEntry{"gpu08", {}}, HostEntry{"gpu09", {}},
                                                    HostEntry{"gpu10", {}}, HostEntry{"x", {}}));
  EXPECT_THAT(hosts_of("n[1,3]:8"), ElementsAre(HostEntry{"n1", 8}, HostEntry{"n3", 8}));
  EXPECT_THAT(hosts_of("me@n[1-2]:8"), ElementsAre(HostEntry{"me@n1", 8}, HostEntry{"me@n2", 8}));
  EXPECT_THAT(hosts_of("fd00::1,10.0.0.2"), ElementsAre(HostEntry{"fd00::1", {}}, HostEntry{"10.0.0.2", {}}));
  EXPECT_THAT(hosts_of("a,b,a"), ElementsAre(HostEntry{"a", 2}, HostEntry{"b", {}})) << "a slot each time";
}

TEST(HostList, FilesOfOpenMpiSlurmAndPbs) {
  EXPECT_THAT(hosts_of("@hosts", "# the rack\na slots=4 max-slots=8\n\nb slots=2   # half\n"),
              ElementsAre(HostEntry{"a", 4}, HostEntry{"b", 2}));
  EXPECT_THAT(hosts_of("@hosts", "a\na\nb\na\n"), ElementsAre(HostEntry{"a", 3}, HostEntry{"b", {}}));
  EXPECT_THAT(hosts_of("@hosts", "a:4\nb"), ElementsAre(HostEntry{"a", 4}, HostEntry{"b", {}}));
}

TEST(HostList, SaysWhereAndWhatIsExpected) {
  EXPECT_THAT(refusal_of("a,,b"), HasSubstr("--hosts: expected the name or address of a host, got ''"));
  EXPECT_THAT(refusal_of("a,-oProxyCommand=x"), HasSubstr("got '-oProxyCommand=x'")) << "ssh would obey it";
  EXPECT_THAT(refusal_of("a;rm"), HasSubstr("got 'a;rm'"));
  EXPECT_THAT(refusal_of("a:0"), HasSubstr("a number of workers from 1 to 4096, got 'a:0'"));
  EXPECT_THAT(refusal_of("@hosts", "a\nb cores=2\n"), AllOf(HasSubstr("hosts:2:"), HasSubstr("'cores=2'")));
  EXPECT_THAT(refusal_of("@hosts", "# none\n"), HasSubstr("names no host"));
  EXPECT_THAT(refusal_of("@nothing"), HasSubstr("the file nothing cannot be read"));
}

HostsPlan plan_of(const std::vector<std::string>& arguments, const Environment& environment = {}) {
  const ParsedCommand line = parse(arguments, environment);
  return make_hosts_plan(line, make_options(line), environment, file(""), "/work");
}

std::string plan_refusal(const std::vector<std::string>& arguments) {
  return complaint([&] { plan_of(arguments); });
}

TEST(HostsPlan, OneLauncherAHostWithTheOptionsAsResolvedHere) {
  const HostsPlan plan = plan_of({"--hosts=a:2,b", "--max_restarts=3", "dtrain", "train", "--model=lenet"},
                                 {{"DTRAIN_PREFIX", "1"}, {"PET_MASTER_PORT", "4000"}});
  const LaunchRequest request = request_for(plan, plan.hosts[0], 0, 2, "10.0.0.1");
  EXPECT_THAT(request.arguments, ElementsAre("--nnodes=2", "--node-rank=0", "--master-addr=10.0.0.1",
                                             "--nproc-per-node=2", "--master-port=4000", "--max-restarts=3",
                                             "--prefix=1", "--", "dtrain", "train", "--model=lenet"));
  EXPECT_EQ(request.folder, "/work");
  EXPECT_THAT(request_for(plan, plan.hosts[1], 1, 2, "10.0.0.1").arguments,
              AllOf(::testing::Contains("--node-rank=1"), Not(::testing::Contains("--nproc-per-node=2"))));
  const HostsPlan said = plan_of({"--hosts=a:2", "--nproc-per-node=1"});
  EXPECT_THAT(request_for(said, said.hosts[0], 0, 1, "").arguments,
              ElementsAre("--nnodes=1", "--nproc-per-node=1"));
}

TEST(HostsPlan, SettingsOfTheJobGoToAllHostsAndSecretsDoNot) {
  const Environment here = {{"DTRAIN_EMULATED_GPUS", "2"}, {"NCCL_DEBUG", "INFO"}, {"PATH", "/bin"},
                            {"DTRAIN_TOKEN", "secret"},    {"WANDB_MODE", "off"},  {"HOME", "/root"}};
  EXPECT_EQ(plan_of({"--hosts=a,b", "--export=WANDB_MODE,X=1=2"}, here).environment,
            (Environment{
                {"DTRAIN_EMULATED_GPUS", "2"}, {"NCCL_DEBUG", "INFO"}, {"WANDB_MODE", "off"}, {"X", "1=2"}}));
  EXPECT_THAT(plan_refusal({"--hosts=a", "--export=NOT_SET"}), HasSubstr("got 'NOT_SET'"));
}

TEST(HostsPlan, NodesAndSparesComeFromTheList) {
  EXPECT_EQ(plan_of({"--hosts=a,b,c", "--spares=1", "--max-restarts=1"}).nodes.most, 2);
  EXPECT_EQ(plan_of({"--hosts=a,b,c", "--nnodes=2:3"}).nodes.least, 2);
  EXPECT_THAT(plan_refusal({"--hosts=a,b,c", "--nnodes=2"}),
              HasSubstr("expected 2 hosts for --nnodes=2 and --spares=0, got 3"));
  EXPECT_THAT(plan_refusal({"--hosts=a", "--spares=1", "--max-restarts=1"}), HasSubstr("fewer than the 1"));
  EXPECT_THAT(plan_refusal({"--hosts=a,b", "--node-rank=1"}), HasSubstr("--node-rank"));
  EXPECT_THAT(plan_refusal({"--hosts=a,b", "--events=3"}), HasSubstr("--events"));
  // Of three hosts of an elastic job two have answered: they do not wait for the third.
  const HostsPlan elastic = plan_of({"--hosts=a,b,c", "--nnodes=2:3"});
  EXPECT_THAT(request_for(elastic, elastic.hosts[2], 1, 2, "x").arguments,
              ::testing::Contains("--nnodes=2:2"));
}

PresentHost present(const std::string& name, bool here, const std::string& at = "",
                    const std::string& from = "") {
  return {{name, {}}, here, {"", at, from}};
}

TEST(HostsPlan, TheFirstHostsAddressIsWhatSshHasShown) {
  const HostsPlan plan = plan_of({"--hosts=a,b"});
  EXPECT_EQ(address_of_first(plan, {present("a", false, "10.0.0.1", "10.0.0.9"), present("b", false)}),
            "10.0.0.1");
  // This machine is what the other one saw knocking; what this shell's own ssh says is another matter.
  EXPECT_EQ(address_of_first(plan, {present("a", true, "192.168.1.1", "192.168.1.2"),
                                    present("b", false, "10.0.0.2", "10.0.0.9")}),
            "10.0.0.9");
  EXPECT_EQ(address_of_first(plan, {present("a", false, "127.0.0.1", "127.0.0.1"),
                                    present("b", false, "10.0.0.2", "10.0.0.9")}),
            "10.0.0.9");
  EXPECT_EQ(address_of_first(plan, {present("a", false, "127.0.0.1", "127.0.0.1"),
                                    present("b", false, "127.0.0.1", "127.0.0.1")}),
            "127.0.0.1");
  EXPECT_EQ(address_of_first(plan, {present("a", true), present("b", false)}), "");
  EXPECT_EQ(address_of_first(plan_of({"--hosts=a,b", "--master-addr=x"}),
                             {present("a", false, "10.0.0.1"), present("b", false)}),
            "")
      << "it was given";
}

TEST(HostsPlan, CommandsOverSshCarryNothingSecretAndOneWordForTheShell) {
  const HostsPlan plan = plan_of({"--hosts=a,b", "--ssh=ssh -p 22"});
  EXPECT_THAT(command_for(plan, plan.hosts[0], false, "/opt/it's/dtrain-launch", "mark"),
              ElementsAre("ssh", "-p", "22", "a", "'/opt/it'\\''s/dtrain-launch' --from-stdin mark"));
  EXPECT_THAT(command_for(plan, plan.hosts[0], true, "/bin/dtrain-launch", "mark"),
              ElementsAre("/bin/dtrain-launch", "--from-stdin", "mark"));
}

TEST(LaunchRequest, GoesThereAndBack) {
  const LaunchRequest request{
      "/a folder", {"--x", "line\nbreak", "\"'", "größe", "\xff\xc3("}, {{"A", "1\x80"}, {"B", ""}}};
  EXPECT_EQ(encode(request).find('\n'), std::string::npos);
  const LaunchRequest back = parse_request(encode(request));
  EXPECT_EQ(back.folder, request.folder);
  EXPECT_EQ(back.arguments, request.arguments);
  EXPECT_EQ(back.environment, request.environment);
  for (const char* wrong : {"", "{}", "[1]", R"({"arguments":[1],"environment":{}})",
                            R"({"arguments":[],"environment":{"A":1}})"})
    EXPECT_THROW(parse_request(wrong), UsageError) << wrong;
}

TEST(LaunchRequest, ProxysLinesAreToldFromWorkers) {
  const auto greeting = parse_proxy_line("mark1", greeting_line("mark1", {"0.1", "10.0.0.1", "10.0.0.2"}));
  ASSERT_TRUE(greeting && greeting->greeting);
  EXPECT_EQ(greeting->greeting->reached_at, "10.0.0.1");
  const std::string after_a_prompt = "name? " + exit_line("mark1", 7);
  const auto exit = parse_proxy_line("mark1", after_a_prompt);
  ASSERT_TRUE(exit && exit->exit_code);
  EXPECT_EQ(*exit->exit_code, 7);
  EXPECT_EQ(exit->before, "name? ");
  const auto killed = parse_proxy_line("mark1", killed_line("mark1", 9));
  ASSERT_TRUE(killed && killed->killed_by);
  EXPECT_EQ(*killed->killed_by, 9);
  EXPECT_FALSE(killed->exit_code) << "137 would be a worker's";
  EXPECT_FALSE(parse_proxy_line("mark1", "mark2 exit 0"));
  EXPECT_FALSE(parse_proxy_line("mark1", "mark1 exit soon"));
}

}  // namespace
}  // namespace dtrain::launcher
