// `dtrain report` as a program: pages of real runs, side by side and live, and what it refuses.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/base/fd.h"
#include "tests/support/json.h"
#include "tests/support/temp_dir.h"
#include "tests/support/training.h"

namespace dtrain::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

/// A listening socket on a free port of 127.0.0.1.
struct Taken {
  Taken() : fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    check(Sys{::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address)}, "bind");
    check(Sys{::listen(fd.get(), 1)}, "listen");
    socklen_t size = sizeof address;
    check(Sys{::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size)}, "getsockname");
    port = ::ntohs(address.sin_port);
  }
  UniqueFd fd;
  int port = 0;
};

/// What comes back for the bytes `request` from `port` of 127.0.0.1.
std::string asked(int port, const std::string& request) {
  const UniqueFd fd(static_cast<int>(check(Sys{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)}, "socket")));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  address.sin_port = ::htons(static_cast<std::uint16_t>(port));
  check(Sys{::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address)}, "connect");
  check(Sys{::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL)}, "send");
  std::string answer;
  char piece[4096];
  for (ssize_t got; (got = ::recv(fd.get(), piece, sizeof piece, 0)) > 0;)
    answer.append(piece, static_cast<std::size_t>(got));
  return answer;
}

std::string get(int port, const std::string& target, const std::string& host = "127.0.0.1") {
  return asked(port, "GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n");
}

class Report : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempDir;
    write_small_dataset(*folder_ / "data", 600, 20);
    for (const char* lr : {"0.1", "0.05"}) {
      const RunResult result =
          train({.start = Start::launcher,
                 .world = 2,
                 .launcher_arguments = {},
                 .arguments = {"--model", "linear", "--data-dir", (*folder_ / "data").string(), "--epochs",
                               "2", "--global-batch-size", "10", "--log-every", "1", "--lr", lr},
                 .run_dir = *folder_ / (std::string("lr-") + lr),
                 .options = {}});
      ASSERT_EQ(result.exit_code, 0) << result.err;
    }
  }
  static void TearDownTestSuite() { delete folder_; }
  static std::string path(const std::string& name) { return (*folder_ / name).string(); }
  static RunResult report(std::vector<std::string> arguments, const RunOptions& options = {}) {
    arguments.insert(arguments.begin(), {program("dtrain"), "report"});
    return run(arguments, options);
  }
  static Json data_of(const fs::path& page) {
    const std::string text = read_file(page);
    constexpr std::string_view kBegin = "id=\"data\">";
    const std::size_t begin = text.find(kBegin) + kBegin.size();
    return Json::parse(text.substr(begin, text.find("</script>", begin) - begin));
  }

  static inline TempDir* folder_ = nullptr;
};

TEST_F(Report, OfARealRunHasAllThatItDraws) {
  const RunResult result = report({path("lr-0.1")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, path("lr-0.1/report.html") + "\n");
  const Json run = data_of(path("lr-0.1/report.html")).at("runs").at(0);
  EXPECT_EQ(run.at("summary").at("status"), "finished");
  EXPECT_EQ(run.at("curves").at("train_loss").at("x").size(), 120U);
  EXPECT_EQ(run.at("curves").at("evaluations").at(0).at("curve").at("x"), std::vector({60.0, 120.0}));
  ASSERT_EQ(run.at("epochs").size(), 2U);
  for (const Json epoch : run.at("epochs")) EXPECT_GT(epoch.at("seconds").get<double>(), 0);
  ASSERT_EQ(run.at("phases").at("ranks").size(), 2U) << "every rank's times";
  EXPECT_EQ(run.at("phases").at("parts").size(), 7U);
  EXPECT_EQ(run.at("starts").size(), 1U);
  EXPECT_EQ(run.at("notes"), Json::parse("[]"));
  EXPECT_TRUE(run.at("config").at("machine").contains("host"));
}

TEST_F(Report, SideBySideIsAPageOfItsOwn) {
  RunOptions options;
  options.working_directory = folder_->path().string();
  RunResult result = report({"lr-0.1", "lr-0.05"}, options);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "comparison.html\n");
  EXPECT_EQ(data_of(path("comparison.html")).at("runs").at(1).at("name"), "lr-0.05");
  EXPECT_EQ(report({"lr-0.1", "lr-0.05"}, options).exit_code, 0) << "a page of ours may be made again";
  write_file(path("precious"), "mine");
  result = report({"lr-0.1", "lr-0.05", "--output", "precious"}, options);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("Nothing was written"));
  EXPECT_EQ(read_file(path("precious")), "mine");
}

TEST_F(Report, WhatIsNoRunIsNamedInOneLine) {
  fs::create_directory(path("empty"));
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{path("nowhere")}, "there is none"},
      {{path("lr-0.1/metrics.jsonl")}, "got a file"},
      {{path("empty")}, "metrics.jsonl"},
      {{path("empty"), "--watch"}, "metrics.jsonl"},
      {{path("lr-0.1"), path("lr-0.1/../lr-0.1")}, "twice"},
      {{path("lr-0.1"), "--port", "7"}, "--watch"},
      {{path("lr-0.1"), "--watch", "--output", "x"}, "--watch"},
      {{path("lr-0.1"), "--watch", "--port", "70000"}, "--port"},
      {{path("lr-0.1"), "--wach"}, "--watch"}};
  for (const auto& [arguments, expected] : cases) {
    const RunResult result = report(arguments);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr(expected));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_EQ(result.out, "");
  }
}

TEST_F(Report, WithoutAnArgumentItIsTheNewestRun) {
  const TempDir here;
  RunOptions options;
  options.working_directory = here.path().string();
  EXPECT_THAT(report({}, options).err, HasSubstr("runs/ here has none"));
  fs::create_directory(here / "runs");
  for (const char* name : {"lr-0.1", "lr-0.05"})
    fs::copy(path(name), here / "runs" / name, fs::copy_options::recursive);
  fs::last_write_time(here / "runs/lr-0.1/metrics.jsonl",
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_EQ(report({}, options).out, "runs/lr-0.05/report.html\n");
}

/// A live report that the test ends.
class LiveReport : public Report {
 protected:
  void SetUp() override {
    if (report({path("lr-0.1"), "--watch", "--port", std::to_string(taken_.port)})
            .err.find("without libevent") != std::string::npos)
      GTEST_SKIP() << "dtrain was built without libevent";
    fs::copy(path("lr-0.1"), runs_ / "run", fs::copy_options::recursive);
  }
  /// Runs it on a port of its own while `use(port, token)` does, then ends it by `signal`.
  RunResult watch(int signal, const std::function<void(int, const std::string&)>& use) {
    const fs::path out = runs_ / "out";
    RunOptions options;
    options.timeout = std::chrono::seconds(60);
    options.while_running = [&](pid_t pid) {
      std::string text;
      for (int i = 0; i < 2000 && text.find('\n') == std::string::npos; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        if (fs::exists(out)) text = read_file(out);
      }
      int port = 0;
      char token[65] = {};
      if (std::sscanf(text.c_str(), "http://127.0.0.1:%d/?token=%64[0-9a-f]", &port, token) == 2) {
        try {
          use(port, token);
        } catch (const std::exception& error) {
          ADD_FAILURE() << error.what();
        }
      } else {
        ADD_FAILURE() << "no address: " << text;
      }
      ::kill(pid, signal);
    };
    return run({"/bin/sh", "-c", "exec \"$0\" report \"$1\" --watch >\"$2\"", program("dtrain"),
                (runs_ / "run").string(), out.string()},
               options);
  }

  TempDir runs_;
  Taken taken_;
};

TEST_F(LiveReport, GivesNothingWithoutItsToken) {
  const RunResult result = watch(SIGTERM, [](int port, const std::string& token) {
    EXPECT_EQ(token.size(), 32U);
    const std::string with = "/?token=" + token;
    EXPECT_THAT(get(port, with), HasSubstr("200 OK"));
    EXPECT_THAT(get(port, with, "localhost:99"), HasSubstr("200 OK"));
    for (const std::string& refused :
         {get(port, "/"), get(port, "/?token="), get(port, "/?token=" + std::string(32, '0')),
          get(port, "/data.json"), get(port, with, "evil.example"),
          get(port, "/data.json?token=" + token + "x")}) {
      EXPECT_THAT(refused, HasSubstr(" 403 "));
      EXPECT_THAT(refused, HasSubstr("that dtrain report --watch printed\n"));
      EXPECT_THAT(refused, Not(HasSubstr("lr-0.1")));
    }
    EXPECT_THAT(get(port, "/../../etc/passwd?token=" + token), HasSubstr(" 404 "));
    EXPECT_THAT(
        asked(port, "POST " + with +
                        " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
        Not(HasSubstr(" 200 ")));
    asked(port, "\r\n\x01\x02garbage\r\n\r\n");
    EXPECT_THAT(get(port, with), HasSubstr("200 OK")) << "garbage changes nothing";
  });
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST_F(LiveReport, APortThatIsTakenIsOneError) {
  const RunResult first = watch(SIGTERM, [&](int port, const std::string&) {
    const RunResult second = run(
        {program("dtrain"), "report", (runs_ / "run").string(), "--watch", "--port", std::to_string(port)},
        limited_to(std::chrono::seconds(30)));
    EXPECT_EQ(second.exit_code, 6);
    EXPECT_EQ(second.out, "");
    EXPECT_THAT(second.err,
                HasSubstr("listen on 127.0.0.1:" + std::to_string(port) + ": the port is taken by pid "));
    EXPECT_EQ(std::count(second.err.begin(), second.err.end(), '\n'), 1) << second.err;
  });
  EXPECT_EQ(first.exit_code, 0) << first.err;
}

TEST_F(LiveReport, FollowsTheRunAndEndsAtInterrupt) {
  const RunResult result = watch(SIGINT, [&](int port, const std::string& token) {
    const std::string target = "/data.json?token=" + token;
    const std::string before = get(port, target);
    EXPECT_THAT(before, HasSubstr("\"last_step\":120"));
    const std::size_t tag = before.find("ETag: ") + 6;
    const std::string version = before.substr(tag, before.find("\r\n", tag) - tag);
    EXPECT_THAT(get(port, target + "&after=" + version), HasSubstr(" 204 "));
    std::ofstream(runs_ / "run/metrics.jsonl", std::ios::app) << R"({"event":"step","step":121,"loss":0.5})"
                                                              << "\n";
    EXPECT_THAT(get(port, target + "&after=" + version), HasSubstr("\"last_step\":121"));
  });
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST_F(LiveReport, APortInUseIsNamed) {
  const RunResult result = report({path("lr-0.1"), "--watch", "--port", std::to_string(taken_.port)});
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_THAT(result.err, HasSubstr("127.0.0.1:" + std::to_string(taken_.port)));
  EXPECT_THAT(result.err, HasSubstr("choose another port"));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
}

}  // namespace
}  // namespace dtrain::test
