// What every Store promises, run against the TCP store and the in-memory one.
#include "cluster/store/store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <future>
#include <thread>

#include "cluster/store/store_barrier.h"
#include "cluster/store/store_client.h"
#include "cluster/store/store_connection.h"
#include "cluster/store/store_server.h"
#include "runtime/base/error.h"
#include "tests/support/memory_store.h"

namespace dtrain {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

Deadline soon() { return Deadline::after(seconds(20)); }
Deadline at_once() { return Deadline::after(milliseconds(30)); }

// One store and the means to reach it once more.
class Fixture {
 public:
  virtual ~Fixture() = default;
  virtual std::shared_ptr<Store> connect() = 0;
};

class MemoryFixture final : public Fixture {
 public:
  std::shared_ptr<Store> connect() override { return store_; }

 private:
  std::shared_ptr<Store> store_ = std::make_shared<test::MemoryStore>();
};

class TcpFixture final : public Fixture {
 public:
  std::shared_ptr<Store> connect() override {
    return std::make_shared<StoreClient>(Endpoint{"127.0.0.1", server_.port()},
                                         StoreClientOptions{.token = token_, .job = "j"}, soon());
  }

 private:
  Token token_ = make_token();
  StoreServer server_{listen_on("127.0.0.1", 0, soon()),
                      StoreServerOptions{.token = token_, .job = "j", .table = {}}};
};

class StoreContract : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() == std::string_view("tcp"))
      fixture_ = std::make_unique<TcpFixture>();
    else
      fixture_ = std::make_unique<MemoryFixture>();
  }
  std::shared_ptr<Store> connect() { return fixture_->connect(); }

 private:
  std::unique_ptr<Fixture> fixture_;
};

INSTANTIATE_TEST_SUITE_P(Stores, StoreContract, testing::Values("memory", "tcp"),
                         [](const auto& parameter) { return std::string(parameter.param); });

TEST_P(StoreContract, SetThenGetFromAnotherClient) {
  const auto one = connect(), two = connect();
  one->set("key", "value", soon());
  EXPECT_EQ(two->get("key", soon()), "value");
  one->set("key", "", soon());
  EXPECT_EQ(two->get("key", soon()), "");
  EXPECT_EQ(two->try_get("absent", soon()), std::nullopt);
  EXPECT_EQ(two->try_get("key", soon()), "");
}

TEST_P(StoreContract, KeepsAnyBytesUpToTheLimits) {
  const auto store = connect();
  const std::string key(256, 'k');
  std::string value(1 << 20, '\0');
  for (std::size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(i * 31);
  store->set(key, value, soon());
  EXPECT_EQ(store->get(key, soon()), value);
  EXPECT_THROW(store->set(key + "k", "", soon()), UsageError);
  EXPECT_THROW(store->set("", "", soon()), UsageError);
  EXPECT_THROW(store->set("key", value + "x", soon()), UsageError);
  EXPECT_EQ(store->get(key, soon()), value) << "a refused call must not hurt the connection";
}

TEST_P(StoreContract, GetWaitsForTheKey) {
  const auto one = connect(), two = connect();
  auto waiting = std::async(std::launch::async, [&] { return one->get("late", soon()); });
  EXPECT_EQ(waiting.wait_for(milliseconds(50)), std::future_status::timeout);
  two->set("late", "now", soon());
  EXPECT_EQ(waiting.get(), "now");
}

TEST_P(StoreContract, WaitNeedsEveryKey) {
  const auto one = connect(), two = connect();
  auto waiting = std::async(std::launch::async, [&] { one->wait({"a", "b", "c", "a"}, soon()); });
  two->set("a", "", soon());
  two->set("c", "", soon());
  EXPECT_EQ(waiting.wait_for(milliseconds(50)), std::future_status::timeout);
  two->set("b", "", soon());
  waiting.get();
  one->wait({}, soon());
  one->wait({"a"}, soon());
}

TEST_P(StoreContract, AddCounts) {
  const auto store = connect();
  EXPECT_EQ(store->add("n", 5, soon()), 5);
  EXPECT_EQ(store->add("n", -7, soon()), -2);
  EXPECT_EQ(store->get("n", soon()), "-2");
  store->set("text", "12x", soon());
  EXPECT_THROW(store->add("text", 1, soon()), UsageError);
}

TEST_P(StoreContract, CompareSetSetsOnlyOnMatch) {
  const auto store = connect();
  EXPECT_EQ(store->compare_set("leader", "x", "a", soon()), "") << "absent matches no value";
  EXPECT_EQ(store->try_get("leader", soon()), std::nullopt);
  EXPECT_EQ(store->compare_set("leader", std::nullopt, "a", soon()), "a");
  EXPECT_EQ(store->compare_set("leader", std::nullopt, "b", soon()), "a");
  EXPECT_EQ(store->compare_set("leader", "b", "c", soon()), "a");
  EXPECT_EQ(store->compare_set("leader", "a", "c", soon()), "c");
}

TEST_P(StoreContract, RemoveForgets) {
  const auto store = connect();
  store->set("key", "value", soon());
  EXPECT_TRUE(store->remove("key", soon()));
  EXPECT_FALSE(store->remove("key", soon()));
  EXPECT_EQ(store->try_get("key", soon()), std::nullopt);
}

TEST_P(StoreContract, PassedDeadlineIsPeerErrorNamingTheKeyAndLeavesTheStoreUsable) {
  const auto store = connect();
  store->set("there", "", soon());
  try {
    store->get("missing", at_once());
    FAIL();
  } catch (const PeerError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'missing'"));
  }
  try {
    store->wait({"there", "gone"}, at_once());
    FAIL();
  } catch (const PeerError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'gone'"));
  }
  store->set("missing", "now", soon());
  EXPECT_EQ(store->get("missing", soon()), "now");
}

TEST_P(StoreContract, OneClientServesManyThreads) {
  const auto store = connect();
  auto waiting = std::async(std::launch::async, [&] { return store->get("go", soon()); });
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) store->add("sum", t, soon());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store->get("sum", soon()), std::to_string(28 * 50));
  EXPECT_EQ(waiting.wait_for(milliseconds(0)), std::future_status::timeout);
  store->set("go", "yes", soon());
  EXPECT_EQ(waiting.get(), "yes") << "a waiting get must not hold up other threads' calls";
}

TEST_P(StoreContract, ABarrierOpensWhenAllHaveCome) {
  std::vector<std::future<void>> early;
  for (int i = 0; i < 3; ++i)
    early.push_back(std::async(std::launch::async, [this] { barrier(*connect(), "b", 4, soon()); }));
  const auto last = connect();
  while (last->try_get("barrier/b/arrived", soon()).value_or("0") != "3") std::this_thread::yield();
  for (auto& peer : early) EXPECT_EQ(peer.wait_for(milliseconds(20)), std::future_status::timeout);
  barrier(*last, "b", 4, soon());
  for (auto& peer : early) peer.get();
  EXPECT_THROW(barrier(*last, "b", 4, soon()), UsageError);
}

TEST_P(StoreContract, ABarrierWhoseDeadlinePassesSaysHowManyHaveCome) {
  const auto store = connect();
  store->add("barrier/b/arrived", 1, soon());
  try {
    barrier(*store, "b", 4, at_once());
    ADD_FAILURE() << "expected an error";
  } catch (const PeerError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'b': 2 of 4 peers"));
  }
}

// A process's descriptors are all in use.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::close(next);
    const rlimit none{static_cast<rlim_t>(next), before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

// What this machine lacks for a moment must not cost a launcher its slot: that is a peer that is not reached
// yet, as any other.
TEST(StoreConnect, WaitsForDescriptorsAsForAPeer) {
  const Token token = make_token();
  StoreServer server(listen_on("127.0.0.1", 0, soon()),
                     StoreServerOptions{.token = token, .job = "j", .table = {}});
  const Endpoint there{"127.0.0.1", server.port()};
  const StoreClientOptions options{.token = token, .job = "j"};
  auto none = std::make_unique<NoDescriptors>();
  try {
    connect_to_store(there, options, at_once());
    ADD_FAILURE() << "there was a descriptor";
  } catch (const PeerError& error) {
    EXPECT_THAT(error.what(), HasSubstr("Too many open files"));
  }
  auto connected = std::async(std::launch::async, [&] { return connect_to_store(there, options, soon()); });
  EXPECT_EQ(connected.wait_for(milliseconds(100)), std::future_status::timeout);
  none.reset();
  EXPECT_TRUE(connected.get().is_open());
}

}  // namespace
}  // namespace dtrain
