// Tokens: random, parsed strictly, read only from files nobody else can read, never shown.
#include "cluster/net/token.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "runtime/base/error.h"
#include "tests/support/temp_dir.h"

namespace dtrain {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::string kHex = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

template <class Call>
std::string usage_error_of(Call call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Token, RoundTripsThroughHex) {
  EXPECT_EQ(parse_token(kHex, "x").hex(), kHex);
  EXPECT_EQ(parse_token(std::string(" ").append(kHex).append("\n"), "x").hex(), kHex);
  EXPECT_EQ(parse_token("00112233445566778899AABBCCDDEEFF00112233445566778899aabbccddeeff", "x").hex(), kHex);
  const Token made = make_token();
  EXPECT_EQ(parse_token(made.hex(), "x").bytes(), made.bytes());
  EXPECT_NE(made.hex(), make_token().hex());
}

TEST(Token, RefusesOtherTextWithoutShowingIt) {
  for (const std::string& text : {std::string(), kHex.substr(1), kHex + "0", std::string("g").append(kHex, 1),
                                  kHex.substr(2) + "\xff\xff"}) {
    const std::string message = usage_error_of([&] { parse_token(text, "DTRAIN_TOKEN"); });
    EXPECT_THAT(message, HasSubstr("DTRAIN_TOKEN"));
    EXPECT_THAT(message, Not(HasSubstr("2233445566")));
  }
}

TEST(TokenFile, IsWrittenAndReadWithMode0600) {
  const test::TempDir folder;
  const Token token = make_token();
  write_token_file(folder / "token", token);
  struct stat status {};
  ASSERT_EQ(::stat((folder / "token").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0600U);
  EXPECT_EQ(read_token_file(folder / "token").hex(), token.hex());
  EXPECT_THROW(write_token_file(folder / "token", token), SystemError) << "an existing one is kept";
}

TEST(TokenFile, LooserPermissionsAreRefusedAndNamed) {
  const test::TempDir folder;
  const std::filesystem::path path = folder / "token";
  write_token_file(path, make_token());
  for (const mode_t mode : {0640U, 0604U, 0620U, 0666U}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    const std::string message = usage_error_of([&] { read_token_file(path); });
    EXPECT_THAT(message, HasSubstr("0600"));
    char shown[8];
    std::snprintf(shown, sizeof shown, "%04o", mode);
    EXPECT_THAT(message, HasSubstr(shown));
    EXPECT_THAT(message, HasSubstr("chmod 600"));
  }
  ASSERT_EQ(::chmod(path.c_str(), 0400), 0);
  EXPECT_NO_THROW(read_token_file(path));
}

TEST(TokenFile, WhatIsNoTokenFileIsRefused) {
  const test::TempDir folder;
  EXPECT_THROW(read_token_file(folder / "absent"), SystemError);
  EXPECT_THROW(read_token_file(folder.path()), UsageError);
  test::write_file(folder / "text", "hello");
  ASSERT_EQ(::chmod((folder / "text").c_str(), 0600), 0);
  EXPECT_THROW(read_token_file(folder / "text"), UsageError);
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(read_token_file(folder / "pipe"), UsageError) << "and must not block";
}

TEST(OwnUserToken, IsMadeOnceAndReadableByThisUserAlone) {
  const test::TempDir parent;
  const std::filesystem::path folder = parent / "own";
  std::vector<std::string> found(8);
  std::vector<std::thread> processes;
  for (std::string& hex : found) processes.emplace_back([&] { hex = own_user_token(folder).hex(); });
  for (std::thread& process : processes) process.join();
  for (const std::string& hex : found) EXPECT_EQ(hex, found[0]);
  EXPECT_EQ(own_user_token(folder).hex(), found[0]);
  struct stat status {};
  ASSERT_EQ(::stat(folder.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0700U);
  ASSERT_EQ(::stat((folder / "token").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()),
            1)
      << "nothing else is left";
}

TEST(OwnUserToken, AFolderThatLetsOthersInIsRefused) {
  const test::TempDir parent;
  const std::filesystem::path folder = parent / "own";
  std::filesystem::create_directory(folder);
  ASSERT_EQ(::chmod(folder.c_str(), 0755), 0);
  const std::string message = usage_error_of([&] { own_user_token(folder); });
  EXPECT_THAT(message,
              testing::AllOf(HasSubstr("mode 0700"), HasSubstr("0755"), HasSubstr("openssl rand -hex 32")));
  std::filesystem::create_symlink(parent.path(), parent / "link");
  EXPECT_THROW(own_user_token(parent / "link"), UsageError);
  EXPECT_THROW(own_user_token(parent / "no" / "such"), UsageError);
  ASSERT_EQ(::chmod(folder.c_str(), 0700), 0);
  EXPECT_NO_THROW(own_user_token(folder));
  ASSERT_EQ(::chmod((folder / "token").c_str(), 0644), 0);
  EXPECT_THAT(usage_error_of([&] { own_user_token(folder); }), HasSubstr("mode 0600"));
}

TEST(FindToken, EnvironmentThenFileThenNothing) {
  const test::TempDir folder;
  const Token filed = make_token();
  write_token_file(folder / "token", filed);
  const std::string path = folder / "token";
  EXPECT_EQ(find_token({{"DTRAIN_TOKEN", kHex}, {"DTRAIN_TOKEN_FILE", path}})->hex(), kHex);
  EXPECT_EQ(find_token({{"DTRAIN_TOKEN_FILE", path}})->hex(), filed.hex());
  EXPECT_FALSE(find_token({}).has_value());
  EXPECT_THROW(find_token({{"DTRAIN_TOKEN", "short"}}), UsageError);
}

}  // namespace
}  // namespace dtrain
