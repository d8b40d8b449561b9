// Requests to a launcher: read, refused and answered, over real sockets too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "launcher/control/control_socket.h"
#include "launcher/control/http_server.h"
#include "runtime/base/error.h"
#include "tests/support/temp_dir.h"

namespace dtrain::launcher {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Http, ReadsARequestWhereverItIsCut) {
  const std::string bytes = "GET /metrics?x=1 HTTP/1.1\r\nHost: here\r\nAccept: text/plain\r\n\r\n";
  for (std::size_t cut = 0; cut < bytes.size(); ++cut)
    EXPECT_FALSE(read_request(std::string_view(bytes).substr(0, cut)).complete) << cut;
  const HttpInput input = read_request(bytes);
  ASSERT_TRUE(input.request);
  EXPECT_EQ(input.request->method, "GET");
  EXPECT_EQ(input.request->path, "/metrics");
}

TEST(Http, RefusesWhatIsNoRequestOrHasABody) {
  for (const char* bytes : {"GET /metrics\r\n\r\n", "GET metrics HTTP/1.1\r\n\r\n", "GET / HTTP/2\r\n\r\n",
                            " / HTTP/1.1\r\n\r\n", "\r\n\r\n", "GET /a b HTTP/1.1\r\n\r\n"}) {
    const HttpInput input = read_request(bytes);
    EXPECT_TRUE(input.complete && !input.request) << bytes;
    EXPECT_EQ(input.refusal.status, 400) << bytes;
  }
  for (const char* header : {"Content-Length: 5", "content-LENGTH:5", "Transfer-Encoding: chunked"}) {
    const HttpInput input = read_request(std::string("POST /stop HTTP/1.1\r\n") + header + "\r\n\r\n");
    EXPECT_EQ(input.refusal.status, 413) << header;
  }
  EXPECT_TRUE(read_request("POST /stop HTTP/1.1\r\nContent-Length: 0\r\n\r\n").request);
  EXPECT_FALSE(read_request(std::string(kMaxRequestBytes - 1, 'x')).complete);
  EXPECT_EQ(read_request(std::string(kMaxRequestBytes, 'x')).refusal.status, 431);
}

TEST(Http, AnAnswerIsReadAsItWasWritten) {
  const HttpAnswer written{409, "text/plain", "no\r\n\r\nworkers"};
  const auto read = read_answer(text_of(written));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->status, 409);
  EXPECT_EQ(read->body, written.body);
  const std::string cut = text_of(written).substr(0, text_of(written).size() - 1);
  EXPECT_FALSE(read_answer(cut));
  EXPECT_FALSE(read_answer("SSH-2.0-OpenSSH\r\n\r\n"));
  EXPECT_FALSE(text_of(written, true).ends_with("workers"));
}

class Server : public testing::Test {
 protected:
  Server() { server_.listen(listen_on_path(path_, 0600), Audience::owner); }

  UniqueFd connected() const {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    ::strcpy(address.sun_path, path_.c_str());
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return socket;
  }
  /// What comes of serving until nothing happens any more.
  std::vector<HttpServer::Asked> serve() {
    std::vector<HttpServer::Asked> all;
    for (pollfd wait{server_.fd(), POLLIN, 0}; ::poll(&wait, 1, 100) > 0;) {
      for (auto& asked : server_.serve()) all.push_back(std::move(asked));
    }
    return all;
  }
  static std::string rest_of(const UniqueFd& socket) {
    std::string text;
    char bytes[4096];
    for (ssize_t got; (got = ::recv(socket.get(), bytes, sizeof bytes, 0)) > 0;)
      text.append(bytes, static_cast<std::size_t>(got));
    return text;
  }

  test::TempDir folder_;
  const std::filesystem::path path_ = folder_ / "socket";
  HttpServer server_;
};

TEST_F(Server, AnswersPiecesAndSeveralAtATime) {
  const UniqueFd first = connected(), second = connected();
  ::send(first.get(), "GET /sta", 8, 0);
  ::send(second.get(), "POST /stop HTTP/1.1\r\n\r\n", 23, 0);
  auto asked = serve();
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_EQ(asked[0].request.path, "/stop");
  EXPECT_EQ(asked[0].audience, Audience::owner);
  server_.answer(asked[0].id, {200, "text/plain", "one"});
  EXPECT_THAT(rest_of(second), HasSubstr("\r\n\r\none"));
  ::send(first.get(), "tus HTTP/1.1\r\n\r\n", 16, 0);
  asked = serve();
  ASSERT_EQ(asked.size(), 1U);
  server_.answer(asked[0].id, {200, "text/plain", std::string(1 << 20, 'x')});
  std::string text;
  std::jthread reading([&] { text = rest_of(first); });
  serve();
  reading.join();
  EXPECT_TRUE(text.ends_with(std::string(1 << 20, 'x')));
}

TEST_F(Server, WhoLeavesOrSendsRubbishCostsNothing) {
  {
    const UniqueFd gone = connected();
    ::send(gone.get(), "POST /stacks HTTP/1.1\r\n\r\n", 25, 0);
    ASSERT_EQ(serve().size(), 1U);
  }
  EXPECT_TRUE(serve().empty());  // and ends: a connection that hangs keeps no loop busy
  server_.answer(1000, {200, "text/plain", "late"});
  const UniqueFd rubbish = connected();
  ::send(rubbish.get(), "\x16\x03\x01 hello\r\n\r\n", 14, 0);
  EXPECT_TRUE(serve().empty());
  EXPECT_THAT(rest_of(rubbish), StartsWith("HTTP/1.1 400 "));
  // More than it takes: closed at once, and those who came before are served.
  std::vector<UniqueFd> many;
  for (int i = 0; i < 2 * HttpServer::kMostConnections; ++i) many.push_back(connected());
  serve();
  EXPECT_EQ(rest_of(many.back()), "");
  ::send(many.front().get(), "GET /status HTTP/1.1\r\n\r\n", 24, 0);
  EXPECT_EQ(serve().size(), 1U);
}

TEST_F(Server, WhoHalfClosesStillGetsTheAnswer) {
  const UniqueFd half = connected();
  ::send(half.get(), "GET /status HTTP/1.1\r\n\r\n", 24, 0);
  ::shutdown(half.get(), SHUT_WR);
  const auto asked = serve();
  ASSERT_EQ(asked.size(), 1U);
  server_.answer(asked[0].id, {200, "text/plain", "here"});
  EXPECT_TRUE(rest_of(half).ends_with("here"));
}

TEST_F(Server, ASocketWithoutAListenerIsFoundAndReplaced) {
  EXPECT_THROW(listen_on_path(path_, 0600), UsageError);
  const std::filesystem::path left = folder_ / "launch-42-0.sock", other = folder_ / "launch-no.sock";
  { const UniqueFd ended = listen_on_path(left, 0600); }
  EXPECT_TRUE(std::filesystem::exists(left));
  test::write_file(other, "");
  EXPECT_TRUE(running_launchers({folder_.path()}).empty());
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_TRUE(std::filesystem::exists(other));
  const ControlSocket running({folder_.path()});
  const auto found = running_launchers({folder_.path()});
  EXPECT_EQ(std::filesystem::status(running.path()).permissions(), std::filesystem::perms(0600));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].pid, ::getpid());
  EXPECT_THROW(ask(found[0], {"GET", "/status"}, Deadline::after(std::chrono::milliseconds(100))), PeerError);
}

}  // namespace
}  // namespace dtrain::launcher
