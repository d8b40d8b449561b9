#include "parallel/sync/average.h"

#include "parallel/span_of.h"
#include "runtime/autograd/grad_mode.h"

namespace dtrain {

void average(const NamedTensors& tensors, Communicator& ranks, const Deadline& deadline) {
  if (ranks.size() == 1) return;
  const NoGrad no_grad;
  std::vector<std::unique_ptr<Work>> works;
  for (const auto& [name, tensor] : tensors) {
    Tensor share = tensor.detach();
    share.scale_in_place(1.0 / ranks.size());
    works.push_back(ranks.all_reduce(span_of(share), ReduceOp::sum, name));
  }
  for (auto& work : works) work->wait(deadline);
  for (const auto& [name, tensor] : tensors) tensor.mark_modified();
}

NamedTensors floating(NamedTensors tensors) {
  std::erase_if(tensors, [](const NamedTensor& tensor) { return !is_floating(tensor.second.dtype()); });
  return tensors;
}

}  // namespace dtrain
