#include "runtime/autograd/fork.h"

#include <future>
#include <map>
#include <string>
#include <unordered_set>
#include <utility>

#include "runtime/autograd/autocast.h"
#include "runtime/autograd/backward_pass.h"
#include "runtime/base/draw_guard.h"
#include "runtime/base/error.h"
#include "runtime/base/thread_slot.h"
#include "runtime/device/cpu/workers/workers.h"

namespace dtrain {
namespace {

/// What a new thread takes over from the one that starts it.
class ThreadState {
 public:
  /// Of the calling thread.
  ThreadState()
      : grad_(grad_enabled()),
        autocast_(AutocastState::now()),
        refuses_draws_(DrawGuard::refused()),
        workers_(cpu::worker_count()) {}

  bool grad() const noexcept { return grad_; }

  /// Runs `body` in a thread of its own.
  template <class Body>
  auto start(Body body) const {
    return std::async(std::launch::async, [*this, body = std::move(body)]() mutable {
      cpu::set_worker_count(workers_);  // a new thread would start with as many as there are cores
      const ThreadSlotScope slot;
      const GradMode mode(grad_);
      const Autocast autocast(autocast_);
      const DrawGuard guard(refuses_draws_);
      return body();
    });
  }

 private:
  bool grad_;
  AutocastState autocast_;
  bool refuses_draws_;
  int workers_;
};

/// A branch as backward sees it: its results with their history, and where that history comes from outside.
struct Branch {
  Tensors results;
  std::vector<Edge> sources;                             ///< leaves, and operations from before the fork
  std::uint64_t floor = 0;                               ///< operations of the branch have larger numbers
  std::map<std::uint64_t, std::future<Tensors>> passes;  ///< under way, by the pass' number

  /// The gradients of the sources.
  Tensors backward(const std::vector<Tensor>& grads, BackwardOptions options) const {
    std::vector<BackwardPass::Root> roots;
    for (std::size_t i = 0; i < grads.size(); ++i) {
      if (grads[i].defined()) roots.push_back({results[i], grads[i]});
    }
    std::vector<BackwardPass::Captured> states;
    for (const Edge& source : sources) states.push_back({source.state});
    BackwardPass pass(options);
    pass.capture(states, floor);
    pass.run(roots);
    Tensors captured;
    for (std::size_t i = 0; i < sources.size(); ++i) captured.push_back(pass.captured(i));
    return captured;
  }
};

// In an order that does not depend on chance.
void find_sources(Branch& branch) {
  std::unordered_set<const void*> seen;
  std::vector<Edge> unvisited;
  for (auto result = branch.results.rbegin(); result != branch.results.rend(); ++result) {
    if (result->requires_grad()) unvisited.push_back({grad_state(*result), result->shape(), result->dtype()});
  }
  while (!unvisited.empty()) {
    Edge edge = std::move(unvisited.back());
    unvisited.pop_back();
    const Node* const node = edge.state->node.get();
    if (!seen.insert(node != nullptr ? static_cast<const void*>(node) : edge.state.get()).second) continue;
    if (node == nullptr || node->sequence() <= branch.floor) {
      branch.sources.push_back(std::move(edge));
      continue;
    }
    for (auto input = node->inputs().rbegin(); input != node->inputs().rend(); ++input) {
      if (input->state != nullptr && input->state->requires_grad) unvisited.push_back(*input);
    }
  }
}

// Two operations stand for the branch. Backward comes to the later one first, which starts the branch's own
// pass in a thread; the earlier one is numbered as of the fork, so that whatever was recorded since runs
// meanwhile, and waits for that thread.
Tensors join_graph(Tensors results, std::uint64_t floor) {
  const auto branch = std::make_shared<Branch>();
  branch->results = results;
  branch->floor = floor;
  find_sources(*branch);
  for (Tensor& result : results) result = result.detach();
  if (branch->sources.empty()) return results;

  auto gather = [branch](const Tensor&, GradSink& sink) {
    Tensors grads = branch->passes.extract(sink.pass()).mapped().get();
    for (std::size_t i = 0; i < grads.size(); ++i) sink.deliver(static_cast<int>(i), std::move(grads[i]));
  };
  Tensor gate = Tensor::zeros({}, results[0].shared_device());
  auto state = std::make_shared<GradState>();
  state->requires_grad = true;
  state->node = std::make_shared<Node>("fork", branch->sources, gather, true, floor);
  const Tensor signal = gate.detach();
  gate.attach(std::move(state));

  // Only what has a gradient takes part.
  std::vector<std::size_t> places;
  Tensors recorded;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!branch->results[i].requires_grad()) continue;
    places.push_back(i);
    recorded.push_back(results[i]);
  }
  recorded = record_several(
      "wait", std::move(recorded), std::span<const Tensor>(&gate, 1),
      [branch, places, signal](const std::vector<Tensor>& given, GradSink& sink) {
        std::vector<Tensor> grads(branch->results.size());
        for (std::size_t i = 0; i < places.size(); ++i) grads[places[i]] = given[i];
        const BackwardOptions options = sink.options();
        auto pass = [branch, grads = std::move(grads), options] { return branch->backward(grads, options); };
        // What is recorded is numbered by its thread: a pass that is recorded stays in this one.
        branch->passes[sink.pass()] = options.create_graph
                                          ? std::async(std::launch::deferred, std::move(pass))
                                          : ThreadState().start(std::move(pass));
        sink.deliver(0, signal);
      });
  for (std::size_t i = 0; i < places.size(); ++i) results[places[i]] = recorded[i];
  return results;
}

}  // namespace

struct Fork::State {
  std::future<Tensors> running;
  bool recording = false;
  std::uint64_t floor = 0;
  Tensors results;
  std::exception_ptr error;
};

const Tensors& Fork::wait_all() const {
  State& state = *state_;
  if (state.running.valid()) {
    try {
      state.results = state.running.get();
      const GradMode mode(state.recording);
      if (state.recording) state.results = join_graph(std::move(state.results), state.floor);
    } catch (...) {
      state.error = std::current_exception();
    }
  }
  if (state.error) std::rethrow_exception(state.error);
  return state.results;
}

Tensor Fork::wait() const {
  const Tensors& results = wait_all();
  if (results.size() == 1) return results[0];
  throw UsageError("fork: expected a function with one result to wait() for, got " +
                   std::to_string(results.size()) + " results; use wait_all()");
}

Fork fork_all(std::function<Tensors()> function) {
  const ThreadState thread_state;
  Fork started;
  started.state_ = std::make_shared<Fork::State>();
  started.state_->recording = thread_state.grad();
  const std::uint64_t floor = started.state_->floor = reserve_sequence();
  started.state_->running = thread_state.start([function = std::move(function), floor] {
    number_after(floor);
    return function();
  });
  return started;
}

Fork fork(std::function<Tensor()> function) {
  return fork_all([function = std::move(function)] { return Tensors{function()}; });
}

void parallel_invoke(const std::function<void(int)>& function, int count) {
  const ThreadState thread_state;
  std::vector<std::future<void>> running;
  for (int i = 0; i < count; ++i) running.push_back(thread_state.start([&function, i] { function(i); }));
  std::exception_ptr first;
  for (auto& one : running) {
    try {
      one.get();
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace dtrain
