#include "parallel/schedule/stage_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "parallel/schedule/stage_actions.h"
#include "parallel/schedule/stage_module.h"
#include "parallel/span_of.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/error.h"
#include "runtime/base/options.h"

namespace dtrain {
namespace {

constexpr const char* kChoice = "stages";
constexpr std::size_t kRepeats = 3;

[[noreturn]] void refuse(std::string_view text, const std::string& expected) {
  throw UsageError(fmt::format("stages '{}': expected {}", text, expected));
}

/// Once through a part, forward and backward; what it gives.
Tensor pass(const LayerUnit& part, const Tensor& x, const Tensors& beside) {
  Tensor y = part.forward(x, beside);
  if (y.requires_grad()) y.backward(Tensor::zeros_like(y));
  for (const auto& [name, module] : part.modules) module->zero_grad();
  y.device().compute_stream().synchronize();
  return y.detach();
}

std::vector<std::size_t> ends_of(const std::vector<std::size_t>& firsts, std::size_t parts) {
  std::vector<std::size_t> ends(firsts.begin() + 1, firsts.end());
  ends.push_back(parts);
  return ends;
}

std::vector<std::size_t> firsts_of(const std::vector<std::size_t>& ends) {
  std::vector<std::size_t> firsts = {0};
  firsts.insert(firsts.end(), ends.begin(), ends.end() - 1);
  return firsts;
}

/// The mean over the ranks, the same bits on all of them.
std::vector<double> mean_of(const std::vector<double>& times, const std::shared_ptr<Device>& device,
                            Communicator& communicator, const Deadline& deadline) {
  const Tensor sums =
      Tensor::from_data(std::span<const double>(times), {static_cast<std::int64_t>(times.size())}, device);
  communicator.all_reduce(span_of(sums), ReduceOp::sum, "times of the parts")->wait(deadline);
  sums.mark_modified();
  std::vector<double> means = sums.to_vector<double>();
  for (double& mean : means) mean /= communicator.size();
  return means;
}

}  // namespace

StageCut parse_stages(std::string_view text) {
  if (text == "even") return {StageCut::Kind::even};
  if (text == "auto") return {StageCut::Kind::measured};
  StageCut cut{StageCut::Kind::listed};
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const auto number = parse_integer(text.substr(begin, end - begin));
    if (!number || *number < 0)
      refuse(text, "even, auto, or the number of each stage's first part, as in 0,3,7");
    cut.firsts.push_back(static_cast<std::size_t>(*number));
    begin = end + 1;
  }
  if (cut.firsts.front() != 0)
    refuse(text, fmt::format("the first stage to begin at part 0, got {}", cut.firsts.front()));
  for (std::size_t i = 1; i < cut.firsts.size(); ++i) {
    if (cut.firsts[i] <= cut.firsts[i - 1]) {
      refuse(text,
             fmt::format("numbers of parts that ascend, got {} behind {}", cut.firsts[i], cut.firsts[i - 1]));
    }
  }
  return cut;
}

std::vector<LayerUnit> chain_of(const ModelFactory& factory, const std::shared_ptr<Device>& device) {
  const std::unique_ptr<Module> whole = factory.build(device);
  const auto* const chained = dynamic_cast<const Chained*>(whole.get());
  if (chained == nullptr)
    throw UsageError("network: expected a chain of parts (Chained), got one that is not");
  return chained->chain();
}

std::vector<double> times_of(const std::vector<LayerUnit>& chain, const Tensors& inputs,
                             Precision precision) {
  LowPrecisionWeights weights;
  const Autocast autocast(precision, weights);
  std::vector<double> times;
  const Tensors beside = beside_first(inputs);
  Tensor x = inputs.front().detach();
  for (std::size_t i = 0; i < chain.size(); ++i) {
    if (i > 0) x.set_requires_grad(true);
    Tensor y = pass(chain[i], x, beside);  // memory is found, caches are warm
    std::array<double, kRepeats> passes{};
    for (double& time : passes) {
      x.zero_grad();
      const TimePoint start = steady_clock().now();
      y = pass(chain[i], x, beside);
      time = std::chrono::duration<double>(steady_clock().now() - start).count();
    }
    std::ranges::sort(passes);
    times.push_back(passes[kRepeats / 2]);
    x = y;
  }
  return times;
}

StageChoice::StageChoice(StageCut cut, int stages, int runs)
    : cut_(std::move(cut)),
      stages_(static_cast<std::size_t>(stages)),
      runs_(static_cast<std::size_t>(runs)) {}

void StageChoice::decide(const ModelFactory& factory, const std::shared_ptr<Device>& device,
                         Communicator& communicator, const Deadline& deadline) {
  if (cut_.kind != StageCut::Kind::measured) return;
  const auto chosen =
      factory.earlier_config ? factory.earlier_config() : std::map<std::string, std::string>();
  const std::vector<LayerUnit> chain = chain_of(factory, device);
  if (keep(chosen, chain.size())) return;
  if (!factory.example) throw UsageError("pipeline: expected an example to measure the parts with, got none");
  const auto times =
      mean_of(times_of(chain, factory.example(device), factory.precision), device, communicator, deadline);
  std::vector<bool> needed;
  for (const LayerUnit& part : chain) needed.push_back(parameter_count(part) > 0);
  cut_ = {StageCut::Kind::listed, firsts_of(cut_evenly(times, static_cast<int>(runs_), needed))};
  tuned_config_[kChoice] = fmt::format("{}", fmt::join(cut_.firsts, ","));
  describe(chain, times);
}

// A start with other stages, or another network, chooses again.
bool StageChoice::keep(const std::map<std::string, std::string>& chosen, std::size_t parts) {
  const auto found = chosen.find(kChoice);
  if (found == chosen.end()) return false;
  StageCut kept;
  try {
    kept = parse_stages(found->second);
  } catch (const UsageError&) {
    return false;
  }
  if (kept.firsts.size() != runs_ || kept.firsts.back() >= parts) return false;
  cut_ = std::move(kept);
  tuned_config_[kChoice] = found->second;
  plan_ = fmt::format("stages: {}, as at the start of the run", found->second);
  return true;
}

void StageChoice::describe(const std::vector<LayerUnit>& chain, const std::vector<double>& times) {
  plan_ = fmt::format("{:<6} {:<40} {:>14} {:>12}", "stage", "parts", "parameters", "a pass");
  const auto ends = ends_of(cut_.firsts, chain.size());
  for (std::size_t run = 0; run < runs_; ++run) {
    const auto name = [&](std::size_t part) {
      return chain[part].modules.empty() ? fmt::format("part {}", part) : chain[part].modules.front().first;
    };
    const std::size_t begin = cut_.firsts[run], last = ends[run] - 1;
    double seconds = 0, elements = 0;
    for (std::size_t part = begin; part <= last; ++part) {
      seconds += times[part];
      elements += static_cast<double>(parameter_count(chain[part]));
    }
    plan_ += fmt::format("\n{:<6} {:<40} {:>10.2f} MiB {:>9.2f} ms", run % stages_,
                         begin == last ? name(begin) : fmt::format("{} to {}", name(begin), name(last)),
                         4 * elements / (1 << 20), 1e3 * seconds);
  }
  plan_ += fmt::format("\nstages: {}", tuned_config_[kChoice]);
}

std::vector<std::size_t> StageChoice::ends(const std::vector<LayerUnit>& chain) const {
  if (cut_.kind != StageCut::Kind::listed) return cut_evenly(costs_of(chain), static_cast<int>(runs_));
  if (cut_.firsts.size() != runs_ || cut_.firsts.back() >= chain.size()) {
    throw UsageError(
        fmt::format("pipeline: expected the first part of each of {} stages, of the parts 0 to {}, got {}",
                    runs_, chain.size() - 1, fmt::join(cut_.firsts, ",")));
  }
  return ends_of(cut_.firsts, chain.size());
}

}  // namespace dtrain
