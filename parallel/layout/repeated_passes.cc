#include "parallel/layout/repeated_passes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>

#include "parallel/layout/saved_tensors.h"
#include "parallel/share.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/node.h"
#include "runtime/checkpoint/checksum.h"
#include "runtime/nn/trainable.h"

namespace dtrain {
namespace {

std::uint32_t checksum_of(const Tensor& tensor, std::uint32_t before) {
  const RankState host = on_host({whole({{"gradient", tensor.detach().contiguous()}}), {}});
  const View view = host.model.front().tensor.view();
  return crc32({static_cast<const std::byte*>(view.data),
                static_cast<std::size_t>(view.numel()) * size_of(view.dtype)},
               before);
}

}  // namespace

RepeatedPasses::RepeatedPasses(Module& network)
    : parameters_(trainable_parameters(network)), buffers_(network.named_buffers()) {
  const NoGrad no_grad;
  for (const auto& [name, tensor] : buffers_) kept_.emplace_back(name, tensor.detach().clone());
  for (Noted& noted : noted_) noted.gradients.resize(parameters_.size());
  for (std::size_t index = 0; index < parameters_.size(); ++index) {
    hooks_.push_back(grad_state(parameters_[index].second)->ready);
    parameters_[index].second.on_grad_ready([this, index] {
      note_gradient(index);
      if (hooks_[index]) hooks_[index]();
    });
  }
}

RepeatedPasses::~RepeatedPasses() {
  for (std::size_t index = 0; index < parameters_.size(); ++index)
    parameters_[index].second.on_grad_ready(std::move(hooks_[index]));
}

void RepeatedPasses::note_gradient(std::size_t index) {
  const NoGrad no_grad;
  const Tensor gradient = parameters_[index].second.grad();
  if (!gradient.defined()) return;  // a part of the graph that did not use the parameter
  const std::lock_guard lock(mutex_);
  std::uint32_t& sum = noted_[second_ ? 1 : 0].gradients[index];
  sum = checksum_of(gradient, sum);
}

void RepeatedPasses::note_loss(std::size_t i, const Tensor& loss) {
  const double value = loss.detach().item();
  const std::lock_guard lock(mutex_);
  std::vector<double>& losses = noted_[second_ ? 1 : 0].losses;
  if (losses.size() <= i) losses.resize(i + 1);
  losses[i] = value;
}

void RepeatedPasses::begin_second() {
  const NoGrad no_grad;
  for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].second.copy_from(kept_[i].second);
  second_ = true;
}

std::string RepeatedPasses::difference() const {
  const auto& [first, second] = noted_;
  if (first.losses.size() != second.losses.size())
    return fmt::format("the number of losses, {} and {}", first.losses.size(), second.losses.size());
  for (std::size_t i = 0; i < first.losses.size(); ++i) {
    if (std::bit_cast<std::uint64_t>(first.losses[i]) != std::bit_cast<std::uint64_t>(second.losses[i]))
      return fmt::format("the loss of micro-batch {}, {} and {}", i + 1, first.losses[i], second.losses[i]);
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (first.gradients[i] != second.gradients[i])
      return fmt::format("the gradient of {}, with checksums {:08x} and {:08x}", parameters_[i].first,
                         first.gradients[i], second.gradients[i]);
  }
  return {};
}

void check_repeated(const std::string& difference, const std::string& place, Communicator& ranks,
                    const Deadline& deadline) {
  const std::vector<std::string> all =
      gather_texts(ranks, difference.empty() ? "" : fmt::format("{} ({})", difference, place), deadline);
  std::vector<std::string> found;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].empty()) found.push_back(fmt::format("rank {} got two results for {}", rank, all[rank]));
  }
  if (found.empty()) return;
  throw ComputeError(fmt::format(
      "a computation cannot be trusted: expected the same bits twice from the same parameters, samples and "
      "random numbers; {}. The step was not applied. Memory or a processor went wrong there, unless an "
      "operation of the network's own is not deterministic: take the machine out, and resume from a "
      "checkpoint that is older than the fault",
      fmt::join(found, "; ")));
}

}  // namespace dtrain
