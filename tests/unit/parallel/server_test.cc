// Parameter servers: rules without sockets, then real servers and workers, which are threads here: the user's
// update, sums in the workers' order, bounds on staleness, workers that are lost and come back, servers that
// go.
#include "parallel/server/parameter_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "parallel/server/key_layout.h"
#include "parallel/server/key_value_store.h"
#include "parallel/server/table.h"
#include "runtime/base/error.h"
#include "runtime/optim/adamw.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::shared_ptr<Device> kCpu = make_device("cpu");

Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }
Tensor vector_of(std::initializer_list<float> values) {
  return Tensor::from_data(values, {static_cast<std::int64_t>(values.size())}, kCpu);
}
std::unique_ptr<Updater> subtracting() {
  return make_updater([](const std::string&, const Tensor& pushed, Tensor& value, double rate) {
    value.add_in_place(pushed, -rate);
  });
}

/// Servers in threads of their own.
class Servers {
 public:
  explicit Servers(const ServerRules& rules, int count = 1,
                   const std::optional<Token>& token = std::nullopt) {
    for (int i = 0; i < count; ++i) {
      ParameterServerOptions options;
      options.number = i;
      options.token = token;
      servers_.push_back(std::make_unique<ParameterServer>(rules, subtracting(), options));
      addresses_.push_back(servers_.back()->address());
    }
    for (auto& server : servers_) {
      threads_.emplace_back([this, &server] {
        try {
          server->run(std::chrono::seconds(60));
        } catch (const PeerError& error) {
          ++failed_;
        }
      });
    }
  }
  ~Servers() { stop(); }
  void stop() {
    for (auto& server : servers_) {
      if (server) server->stop();
    }
    wait();
  }
  void wait() {
    for (auto& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }
  /// The sockets close.
  void kill(std::size_t server) {
    servers_[server]->stop();
    threads_[server].join();
    servers_[server].reset();
  }
  std::unique_ptr<KeyValueStore> worker(int number, const std::optional<Token>& token = std::nullopt) const {
    return std::make_unique<KeyValueStore>(addresses_, KeyValueStoreOptions{.worker = number, .token = token},
                                           soon());
  }
  int failed() const { return failed_; }
  const UpdateDelays& delays(std::size_t server = 0) const { return servers_[server]->delays(); }
  const std::vector<std::string>& addresses() const { return addresses_; }

 private:
  std::vector<std::unique_ptr<ParameterServer>> servers_;
  std::vector<std::string> addresses_;
  std::vector<std::thread> threads_;
  std::atomic<int> failed_{0};
};

TEST(ParameterServer, UpdatesKeysByTheUsersFunction) {
  Servers servers({.workers = 1, .update = ServerUpdate::async}, 2);
  const auto store = servers.worker(0);
  Tensor w = vector_of({1, 2, 3}), b = vector_of({5});
  store->init("w", w, soon());
  store->init("b", b, soon(), 1);
  store->init("b", vector_of({7}), soon(), 1);  // it is there already
  store->push({{"w", vector_of({1, 1, 1})}, {"b", vector_of({2})}}, 0.5, soon());
  store->pull({{"b", b}, {"w", w}}, soon());
  EXPECT_THAT(w.to_vector<float>(), ElementsAre(0.5F, 1.5F, 2.5F));
  EXPECT_THAT(b.to_vector<float>(), ElementsAre(4));
  EXPECT_THAT(test::message_of([&] { store->push({{"x", b}}, 1, soon()); }), HasSubstr("'x'"));
  EXPECT_THAT(test::message_of([&] { store->init("w", vector_of({1}), soon(), store->server_of("w")); }),
              HasSubstr("float32 [3]"));
  store->disconnect(soon());
  servers.wait();
  EXPECT_EQ(servers.failed(), 0);
}

// Synchronous updates are by the average, as data parallelism has it: a worker that did not use a key counts
// as zero, and one that nobody used is left alone.
TEST(ParameterServer, AveragesWhatWorkersUsed) {
  Servers servers({.workers = 2});
  std::vector<std::vector<float>> found(2);
  std::vector<std::thread> workers;
  for (int number = 0; number < 2; ++number) {
    workers.emplace_back([&, number] {
      const auto store = servers.worker(number);
      Tensor all = vector_of({1}), one = vector_of({2}), none = vector_of({3});
      for (const auto& [name, value] : NamedTensors{{"all", all}, {"one", one}, {"none", none}})
        number == 0 ? store->init(name, value, soon()) : store->expect(name, value, soon());
      const Tensor gradient = vector_of({static_cast<float>(8 + 4 * number)});
      store->exchange({{"all", gradient}, {"one", number == 0 ? gradient : Tensor()}, {"none", Tensor()}}, 1,
                      {{"all", all}, {"one", one}, {"none", none}}, soon());
      found[static_cast<std::size_t>(number)] = {all.to_vector<float>()[0], one.to_vector<float>()[0],
                                                 none.to_vector<float>()[0]};
      store->disconnect(soon());
    });
  }
  for (auto& worker : workers) worker.join();
  EXPECT_THAT(found, testing::Each(ElementsAre(1 - 10, 2 - 4, 3)));
}

// (1e8 + 1) - 1e8 is 0 in float32, 1e8 - 1e8 + 1 is 1: the order can be seen, in thirds of them too.
TEST(ParameterServer, SumsInTheWorkersOrderWhicheverComesFirst) {
  const std::vector<float> parts = {1e8F, 1, -1e8F};
  for (int first = 0; first < 3; ++first) {
    Servers servers({.workers = 3});
    std::vector<float> found(3);
    std::vector<std::thread> workers;
    for (int number = 0; number < 3; ++number) {
      workers.emplace_back([&, number] {
        const auto store = servers.worker(number);
        Tensor w = vector_of({0});
        number == 0 ? store->init("w", w, soon()) : store->expect("w", w, soon());
        std::this_thread::sleep_for(std::chrono::milliseconds(10 * ((number + first) % 3)));
        store->exchange({{"w", vector_of({parts[static_cast<std::size_t>(number)]})}}, -1, {{"w", w}},
                        soon());
        found[static_cast<std::size_t>(number)] = w.to_vector<float>()[0];
        store->disconnect(soon());
      });
    }
    for (auto& worker : workers) worker.join();
    EXPECT_THAT(found, testing::Each(0.0F)) << first;
  }
}

/// Steps of `workers` with sleeps, worker 0 being the slow one; the largest lead that a push was answered
/// with.
std::int64_t largest_lead(std::optional<std::int64_t> bound, UpdateDelays& delays) {
  Servers servers({.workers = 3, .update = ServerUpdate::async, .max_staleness = bound});
  std::atomic<std::int64_t> largest{0};
  std::vector<std::thread> workers;
  std::vector<std::unique_ptr<KeyValueStore>> stores;
  for (int number = 0; number < 3; ++number) stores.push_back(servers.worker(number));
  for (int number = 0; number < 3; ++number) {
    workers.emplace_back([&, number] {
      KeyValueStore& store = *stores[static_cast<std::size_t>(number)];
      Tensor w = vector_of({0});
      store.init("w", w, soon());
      for (int step = 0; step < 12; ++step) {
        if (number == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        const PushDelay delay = store.exchange({{"w", vector_of({1})}}, 1, {{"w", w}}, soon());
        std::int64_t before = largest;
        while (delay.ahead > before && !largest.compare_exchange_weak(before, delay.ahead)) {
        }
      }
      store.finish(soon());
      store.wait_for_others(soon());
      if (number == 0) delays = store.delays(soon());
      store.disconnect(soon());
    });
  }
  for (auto& worker : workers) worker.join();
  servers.wait();
  EXPECT_EQ(servers.failed(), 0);
  return largest;
}

TEST(ParameterServer, KeepsTheBoundOnStaleness) {
  for (const std::int64_t bound : {0, 2, 5}) {
    UpdateDelays delays;
    const std::int64_t largest = largest_lead(bound, delays);
    EXPECT_LE(largest, bound);
    EXPECT_GE(largest, std::min<std::int64_t>(bound, 1)) << "worker 0 is slow";
    EXPECT_EQ(delays.ahead.rbegin()->first, largest);
    EXPECT_THAT(delays.pushes, ElementsAre(std::pair(0, 12), std::pair(1, 12), std::pair(2, 12)));
    // Between a pull and a push each other worker makes at most 2 x bound + 1 updates.
    EXPECT_LE(delays.behind.rbegin()->first, 2 * (2 * bound + 1));
  }
  UpdateDelays delays;
  EXPECT_GT(largest_lead(std::nullopt, delays), 5);
}

TEST(ParameterServer, GoesOnWithoutAWorkerAndTakesItBack) {
  Servers servers({.workers = 2, .update = ServerUpdate::async, .max_staleness = 0});
  auto steady = servers.worker(0), lost = servers.worker(1);
  Tensor w = vector_of({0});
  steady->init("w", w, soon());
  lost->expect("w", w, soon());
  lost->exchange({{"w", vector_of({1})}}, -1, {}, soon());
  lost.reset();  // without a word, and behind nobody waits
  for (int step = 0; step < 5; ++step) steady->exchange({{"w", vector_of({1})}}, -1, {{"w", w}}, soon());
  EXPECT_EQ(w.to_vector<float>()[0], 6);
  auto back = servers.worker(1);
  EXPECT_EQ(back->expect("w", w, soon()), 1) << "of its updates one was applied";
  back->pull({{"w", w}}, soon());
  EXPECT_EQ(w.to_vector<float>()[0], 6);
  const PushDelay delay = back->push({{"w", vector_of({1})}}, -1, soon());
  EXPECT_EQ(delay.ahead, 0);
  EXPECT_EQ(delay.behind, 0);
  steady->disconnect(soon());
  back->disconnect(soon());
  servers.wait();
  EXPECT_EQ(servers.failed(), 0);
}

TEST(ParameterServer, TellsAtOnceWhatCannotGoOn) {
  for (const ServerRules& rules :
       {ServerRules{.workers = 2},
        ServerRules{
            .workers = 2, .update = ServerUpdate::async, .max_staleness = std::nullopt, .recorder = 1}}) {
    Servers servers(rules);
    auto waits = servers.worker(0), goes = servers.worker(1);
    Tensor w = vector_of({0});
    waits->init("w", w, soon());
    std::thread kills([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      goes.reset();
    });
    const TimePoint start = steady_clock().now();
    EXPECT_THAT(test::message_of([&] {
                  if (rules.update == ServerUpdate::async) waits->wait_get(0, soon());
                  waits->exchange({{"w", w}}, 1, {{"w", w}}, soon());
                }),
                HasSubstr("worker 1"));
    EXPECT_LT(steady_clock().now() - start, std::chrono::seconds(10));
    kills.join();
    waits.reset();
    servers.wait();
    EXPECT_EQ(servers.failed(), 1);
  }
}

TEST(ParameterServer, IsMissedAtOnceWhenItGoes) {
  Servers servers({.workers = 2}, 2);
  const auto store = servers.worker(0);
  store->init("w", vector_of({0}), soon(), 0);
  std::thread kills([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    servers.kill(1);
  });
  const TimePoint start = steady_clock().now();
  EXPECT_THAT(test::message_of([&] { store->wait_get(3, soon()); }), HasSubstr("parameter server 1"));
  EXPECT_LT(steady_clock().now() - start, std::chrono::seconds(10));
  kills.join();
}

TEST(ParameterServer, LetsNobodyInWithoutTheSecret) {
  const Token token = make_token();
  Servers servers({.workers = 1}, 1, token);
  const Deadline short_time = Deadline::after(std::chrono::milliseconds(300));
  EXPECT_THAT(test::message_of([&] {
                KeyValueStore(servers.addresses(), {.worker = 0, .token = make_token()}, short_time);
              }),
              HasSubstr("no connection"));
  EXPECT_THAT(test::message_of([&] {
                KeyValueStore(servers.addresses(), {.worker = 1, .token = token},
                              Deadline::after(std::chrono::milliseconds(300)));
              }),
              HasSubstr("no connection"));
  servers.worker(0, token)->disconnect(soon());
  servers.wait();
}

TEST(ParameterServer, RefusesRulesThatMakeNoSense) {
  EXPECT_THAT(test::message_of([] { Servers({.workers = 0}); }), HasSubstr("got 0"));
  EXPECT_THAT(test::message_of([] { Servers({.workers = 1, .max_staleness = 2}); }),
              HasSubstr("asynchronous"));
}

NamedTensors parameters() {
  Generator generator(3);
  return {{"big", Tensor::randn({1500, 1000}, generator, kCpu)},
          {"vector", Tensor::randn({1200000}, generator, kCpu)},
          {"small", Tensor::randn({30, 20}, generator, kCpu)}};
}

TEST(ServerKeys, AreSpreadByBytesAndCutWhereTheyAreLong) {
  const NamedTensors tensors = parameters();
  EXPECT_EQ(server::lay_out_keys(tensors, 1).size(), 3U) << "one server has them whole";
  const auto keys = server::lay_out_keys(tensors, 3);
  std::vector<std::int64_t> held(3), covered(3);
  for (const auto& key : keys) {
    held[static_cast<std::size_t>(key.server)] += key.count * 4;
    covered[key.parameter] += key.count;
    EXPECT_LE(key.count * 4, server::kMostKeyBytes);
    EXPECT_EQ(key.part_of(tensors[key.parameter].second).rank(), key.parameter == 1 ? 1 : 2);
  }
  EXPECT_THAT(covered, ElementsAre(1500000, 1200000, 600));
  EXPECT_LE(*std::max_element(held.begin(), held.end()) - *std::min_element(held.begin(), held.end()),
            server::kMostKeyBytes);
}

TEST(ServerKeys, HaveTheOptimizersStateOfWholeParameters) {
  NamedTensors tensors = parameters();
  Generator generator(4);
  for (auto& [name, tensor] : tensors) {
    tensor.set_requires_grad(true);
    tensor.set_grad(Tensor::randn(tensor.shape(), generator, kCpu));
  }
  AdamW optimizer(tensors, AdamWOptions{});
  optimizer.step();
  const NamedTensors whole = optimizer.named_state();
  const auto keys = server::lay_out_keys(tensors, 2);
  const auto parts = server::state_by_server(keys, tensors, whole, 2);
  const NamedTensors again = server::state_of_parameters(keys, tensors, parts);
  ASSERT_EQ(again.size(), whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const auto found = std::find_if(again.begin(), again.end(),
                                    [&](const NamedTensor& one) { return one.first == whole[i].first; });
    ASSERT_NE(found, again.end()) << whole[i].first;
    EXPECT_EQ(found->second.to_vector<double>(), whole[i].second.to_vector<double>()) << whole[i].first;
  }
}

}  // namespace
}  // namespace dtrain
