// Remote calls between ranks that are threads: what goes through, who answers, and what happens when somebody
// does not.
#include "parallel/rpc/rpc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "collectives/thread_ranks.h"
#include "runtime/autograd/ops.h"
#include "runtime/tensor/creation.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::text_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Deadline soon() { return Deadline::after(seconds(60)); }

const RemoteFunction kAdd = [](int, const Tensors& in) { return Tensors{in[0] + in[1]}; };
const RemoteFunction kEcho = [](int, const Tensors& in) { return in; };

/// Each rank's Rpc has `functions`; shut down when `body` has returned on all.
void run_ranks(int ranks, const RemoteFunctions& functions, const std::function<void(Rpc&)>& body,
               const RpcOptions& options = {}) {
  NullLog log;
  run_thread_ranks(ranks, {}, log, [&](Communicator& communicator) {
    Rpc rpc(communicator, functions, options, soon());
    body(rpc);
    rpc.shutdown(soon());
  });
}

/// What a test lets go when it is time.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [&] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

TEST(Rpc, EveryRankCallsEveryRank) {
  const RemoteFunction who = [](int caller, const Tensors&) { return Tensors{Tensor({double(caller)})}; };
  run_ranks(3, {{"add", kAdd}, {"who", who}}, [](Rpc& rpc) {
    ASSERT_EQ(rpc.size(), 3);
    for (int rank = 0; rank < 3; ++rank) {
      const Tensors sum = rpc.call(rank, "add", {Tensor({1.0, 2.0}), Tensor({10.0, 20.0})}, soon());
      EXPECT_THAT(sum.at(0).to_vector<float>(), ElementsAre(11, 22));
      EXPECT_EQ(rpc.call(rank, "who", {}, soon()).at(0).item(), rpc.rank());
    }
  });
}

TEST(Rpc, TensorsOfAnyKindGoThrough) {
  run_ranks(2, {{"echo", kEcho}}, [](Rpc& rpc) {
    if (rpc.rank() != 0) return;
    const Tensor matrix = arange(6).reshape({2, 3});
    Tensor learned = ones({2}).set_requires_grad();
    const Tensors sent{matrix.T(),
                       Tensor({1.5}).to(DType::bf16),
                       Tensor({7.0}).to(DType::f64),
                       zeros({0, 4}),
                       Tensor({1.0, 0.0}).to(DType::boolean),
                       randn({1 << 20}),
                       sum(ones({3})),
                       learned};
    const Tensors back = rpc.call(1, "echo", sent, soon());
    ASSERT_EQ(back.size(), sent.size());
    for (std::size_t i = 0; i < sent.size(); ++i) {
      EXPECT_EQ(back[i].dtype(), sent[i].dtype()) << i;
      EXPECT_EQ(back[i].shape(), sent[i].shape()) << i;
      EXPECT_EQ(back[i].to(DType::f64).to_vector<double>(),
                sent[i].detach().to(DType::f64).contiguous().to_vector<double>())
          << i;
    }
    EXPECT_FALSE(back.back().requires_grad());
    EXPECT_TRUE(rpc.call(1, "echo", {}, soon()).empty());
    EXPECT_THAT(text_of<UsageError>([&] { rpc.call(1, "echo", {Tensor()}, soon()); }),
                HasSubstr("undefined"));
  });
}

TEST(Rpc, ManyCallsFromManyThreadsAreAnsweredEachWithItsOwn) {
  run_ranks(2, {{"add", kAdd}}, [](Rpc& rpc) {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&rpc, thread] {
        for (int i = 0; i < 100; ++i) {
          const Tensors sum =
              rpc.call(1 - rpc.rank(), "add", {Tensor({double(i)}), Tensor({1000.0 * thread})}, soon());
          EXPECT_EQ(sum.at(0).item(), i + 1000 * thread);
        }
      });
    }
  });
}

TEST(Rpc, AFunctionMayCallBack) {
  NullLog log;
  run_thread_ranks(2, {}, log, [](Communicator& communicator) {
    Rpc* self = nullptr;
    // Counts down, from one rank to the other and back.
    const RemoteFunction down = [&self](int caller, const Tensors& in) {
      if (in[0].item() == 0) return Tensors{Tensor({0.0})};
      return Tensors{self->call(caller, "down", {in[0] - 1}, soon())[0] + 1};
    };
    Rpc rpc(communicator, {{"down", down}}, {}, soon());
    self = &rpc;
    communicator.barrier("ready")->wait(soon());
    if (rpc.rank() == 0) {
      EXPECT_EQ(rpc.call(1, "down", {Tensor({9.0})}, soon())[0].item(), 9);
    }
    rpc.shutdown(soon());
  });
}

TEST(Rpc, SeveralCallsAreUnderWayAtOnce) {
  Gate gate;
  std::atomic<int> inside{0};
  const RemoteFunction wait = [&](int, const Tensors& in) {
    ++inside;
    gate.pass();
    return in;
  };
  run_ranks(2, {{"wait", wait}, {"echo", kEcho}}, [&](Rpc& rpc) {
    if (rpc.rank() != 0) return;
    std::vector<std::future<Tensors>> waiting;
    for (int i = 0; i < 5; ++i) waiting.push_back(rpc.call_async(1, "wait", {Tensor({double(i)})}, soon()));
    EXPECT_EQ(rpc.call(1, "echo", {Tensor({3.0})}, soon())[0].item(), 3) << "past those that wait";
    while (inside < 5) std::this_thread::sleep_for(milliseconds(1));
    gate.open();
    for (int i = 0; i < 5; ++i) EXPECT_EQ(waiting[static_cast<std::size_t>(i)].get()[0].item(), i);
  });
}

TEST(Rpc, NoMoreThreadsAnswerThanAllowed) {
  std::atomic<int> inside{0}, most{0};
  const RemoteFunction count = [&](int, const Tensors& in) {
    const int now = ++inside;
    int before = most;
    while (now > before && !most.compare_exchange_weak(before, now)) {
    }
    std::this_thread::sleep_for(milliseconds(2));
    --inside;
    return in;
  };
  run_ranks(2, {{"count", count}},
            [&](Rpc& rpc) {
              if (rpc.rank() != 0) return;
              std::vector<std::future<Tensors>> waiting;
              for (int i = 0; i < 20; ++i) waiting.push_back(rpc.call_async(1, "count", {}, soon()));
              for (auto& one : waiting) one.get();
            },
            {.threads = 2});
  EXPECT_LE(most, 2);
  NullLog log;
  run_thread_ranks(1, {}, log, [](Communicator& communicator) {
    EXPECT_THAT(text_of<UsageError>([&] { Rpc(communicator, {}, {.threads = 0}, soon()); }),
                HasSubstr("at least 1 thread, got 0"));
  });
}

TEST(Rpc, ErrorsNameTheFunctionAndItsRank) {
  const RemoteFunction fails = [](int, const Tensors& in) { return Tensors{matmul(in[0], in[0])}; };
  run_ranks(2, {{"fails", fails}, {"echo", kEcho}}, [](Rpc& rpc) {
    if (rpc.rank() != 0) return;
    EXPECT_THAT(text_of<RemoteError>([&] {
                  rpc.call(1, "fails", {ones({2, 3})}, soon());
                }),
                AllOf(HasSubstr("call of 'fails' of rank 1"), HasSubstr("matmul")));
    EXPECT_THAT(text_of<UsageError>([&] { rpc.call(1, "ecco", {}, soon()); }),
                HasSubstr("expected one of the functions there (echo, fails)"));
    EXPECT_THAT(text_of<UsageError>([&] { rpc.call(2, "echo", {}, soon()); }),
                HasSubstr("expected a rank from 0 to 1, got 2"));
    EXPECT_EQ(rpc.call(1, "echo", {Tensor({1.0})}, soon())[0].item(), 1) << "continues all the same";
  });
}

TEST(Rpc, ADeadlineEndsACallAndNoOther) {
  Gate gate;
  const RemoteFunction wait = [&](int, const Tensors& in) {
    gate.pass();
    return in;
  };
  run_ranks(2, {{"wait", wait}, {"echo", kEcho}}, [&](Rpc& rpc) {
    if (rpc.rank() != 0) return;
    EXPECT_THAT(text_of<PeerError>([&] { rpc.call(1, "wait", {}, Deadline::after(milliseconds(50))); }),
                AllOf(HasSubstr("call of 'wait' of rank 1"), HasSubstr("no answer in time")));
    gate.open();  // its answer comes late, for nobody
    EXPECT_EQ(rpc.call(1, "echo", {Tensor({1.0})}, soon())[0].item(), 1);
  });
}

TEST(Rpc, ALostRankIsNamedAtOnce) {
  Gate gone, called;
  NullLog log;
  run_thread_ranks(2, {}, log, [&](Communicator& communicator) {
    const RemoteFunction wait = [&](int, const Tensors& in) {
      called.open();
      std::this_thread::sleep_for(milliseconds(20));
      return in;
    };
    auto rpc = std::make_unique<Rpc>(communicator, RemoteFunctions{{"wait", wait}}, RpcOptions{.host = "box"},
                                     soon());
    if (communicator.rank() == 1) {
      called.pass();
      rpc.reset();  // its sockets close before it has answered, or just after
      gone.open();
      return;
    }
    auto waiting = rpc->call_async(1, "wait", {}, soon());
    try {
      waiting.get();
    } catch (const PeerError& error) {
      EXPECT_EQ(error.failure().rank, 1);
      EXPECT_THAT(error.what(), HasSubstr("rank 1 on box"));
    }
    gone.pass();
    EXPECT_THAT(text_of<PeerError>([&] { rpc->call(1, "wait", {}, soon()); }), HasSubstr("rank 1 on box"));
  });
}

TEST(Rpc, ARankThatIsGoneBeforeAnyCallIsNamedAtOnce) {
  Gate gone;
  NullLog log;
  run_thread_ranks(2, {}, log, [&](Communicator& communicator) {
    auto rpc = std::make_unique<Rpc>(communicator, RemoteFunctions(), RpcOptions(), soon());
    if (communicator.rank() == 1) {
      rpc.reset();
      return gone.open();
    }
    gone.pass();
    const TimePoint begin = steady_clock().now();
    EXPECT_THAT(text_of<PeerError>([&] { rpc->call(1, "any", {}, soon()); }),
                AllOf(HasSubstr("call of 'any' of rank 1"), HasSubstr("refused")));
    EXPECT_LT(steady_clock().now() - begin, seconds(30)) << "not only when the deadline has passed";
  });
}

TEST(Rpc, WhoHasAnotherSecretStaysOut) {
  NullLog log;
  run_thread_ranks(2, {}, log, [&](Communicator& communicator) {
    Rpc rpc(communicator, {{"echo", kEcho}}, {.token = make_token()}, soon());
    if (communicator.rank() == 0) {
      EXPECT_THAT(text_of<PeerError>([&] { rpc.call(1, "echo", {}, Deadline::after(milliseconds(300))); }),
                  HasSubstr("no connection"));
    }
    rpc.shutdown(soon());
  });
}

TEST(Rpc, ShutdownWaitsForTheCallsOfAll) {
  std::atomic<int> answered{0};
  const RemoteFunction slow = [&](int, const Tensors& in) {
    std::this_thread::sleep_for(milliseconds(50));
    ++answered;
    return in;
  };
  NullLog log;
  run_thread_ranks(2, {}, log, [&](Communicator& communicator) {
    Rpc rpc(communicator, {{"slow", slow}}, {}, soon());
    std::future<Tensors> waiting;
    if (rpc.rank() == 0) waiting = rpc.call_async(1, "slow", {}, soon());
    rpc.shutdown(soon());
    EXPECT_EQ(answered, 1);
    if (rpc.rank() == 0) {
      EXPECT_TRUE(waiting.get().empty());
    }
    EXPECT_THAT(text_of<PeerError>([&] { rpc.call(1 - rpc.rank(), "slow", {}, soon()); }),
                HasSubstr("remote calls were shut down here"));
  });
}

}  // namespace
}  // namespace dtrain
