// `dtrain doctor`: what is wrong is BAD, names the fix and decides the exit code; what is only absent is not.
#include <gtest/gtest.h>

#include "cluster/net/endpoint.h"
#include "tests/support/json.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace dtrain::test {
namespace {

class Doctor : public ::testing::Test {
 protected:
  // The finding about `subject`, and the exit code.
  Json finding(const std::string& subject, std::map<std::string, std::string> environment) {
    // Nothing of the machine's own is to decide.
    for (const char* name : {"MASTER_ADDR", "MASTER_PORT", "DTRAIN_TOKEN", "SLURM_CONF", "SLURM_JOB_ID"})
      environment.emplace(name, "");
    RunOptions options;
    options.environment = environment;
    const RunResult result =
        run({program("dtrain"), "doctor", "--json", "--run-dir", folder_.path().string()}, options);
    exit_code_ = result.exit_code;
    const Json report = Json::parse_or_null(result.out);
    EXPECT_FALSE(report.is_null()) << result.out << result.err;
    for (const Json entry : report.at("findings")) {
      if (entry.at("subject") == subject) return entry;
    }
    ADD_FAILURE() << "nothing is said about " << subject << ": " << result.out;
    return Json::parse(R"({"verdict": "", "text": "", "fix": ""})");
  }
  static std::string text(const Json& entry, const char* what) { return entry.at(what).get<std::string>(); }

  TempDir folder_;
  int exit_code_ = -1;
};

TEST_F(Doctor, ListsWhatIsThereWithoutComplaint) {
  for (const char* subject : {"master", "token", "mpirun", "slurm"})
    EXPECT_EQ(finding(subject, {{"PATH", "/nowhere"}}).at("verdict"), "ok") << subject;
  for (const char* subject : {"interfaces", "clock"})
    EXPECT_NE(finding(subject, {}).at("verdict"), "BAD") << subject;
}

TEST_F(Doctor, NamesAMasterThatDoesNotResolve) {
  const auto found = finding("master", {{"MASTER_ADDR", "no-such-host.invalid"}, {"MASTER_PORT", "29500"}});
  EXPECT_EQ(found.at("verdict"), "BAD");
  EXPECT_NE(text(found, "text").find("no-such-host.invalid"), std::string::npos) << found;
  EXPECT_NE(text(found, "fix").find("MASTER_ADDR"), std::string::npos) << found;
  EXPECT_EQ(exit_code_, 1);
}

TEST_F(Doctor, NamesWhoHasTheMastersPort) {
  const Listener taken = listen_on("127.0.0.1", 0, Deadline::after(std::chrono::seconds(1)));
  const auto found =
      finding("master", {{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", std::to_string(taken.port())}});
  EXPECT_EQ(found.at("verdict"), "BAD");
  EXPECT_NE(text(found, "text").find("cluster_doctor"), std::string::npos) << found;
}

TEST_F(Doctor, RefusesATokenThatIsNone) {
  const auto found = finding("token", {{"DTRAIN_TOKEN", "secret"}});
  EXPECT_EQ(found.at("verdict"), "BAD");
  EXPECT_NE(text(found, "fix").find("openssl rand -hex 32"), std::string::npos) << found;
  EXPECT_EQ(found.dump().find("secret\""), std::string::npos) << "the token is shown: " << found;
}

TEST_F(Doctor, SaysWhenSlurmCannotAuthenticate) {
  write_file(folder_ / "slurm.conf",
             "ClusterName=a\nAuthInfo=socket=" + (folder_ / "munge").string() + ",cred_expire=5\n");
  write_file(folder_ / "srun", "#!/bin/sh\n");
  std::filesystem::permissions(folder_ / "srun", std::filesystem::perms::owner_all);
  const std::map<std::string, std::string> here = {{"SLURM_CONF", (folder_ / "slurm.conf").string()},
                                                   {"PATH", folder_.path().string()}};
  const auto found = finding("slurm", here);
  EXPECT_EQ(found.at("verdict"), "BAD");
  EXPECT_NE(text(found, "text").find((folder_ / "munge").string()), std::string::npos) << found;
  EXPECT_NE(text(found, "fix").find("munge"), std::string::npos) << found;
  EXPECT_EQ(exit_code_, 1);
}

}  // namespace
}  // namespace dtrain::test
