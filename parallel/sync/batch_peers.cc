#include "parallel/sync/batch_peers.h"

#include <utility>

#include "parallel/span_of.h"

namespace dtrain {
namespace {

class CommunicatorPeers final : public BatchPeers {
 public:
  CommunicatorPeers(std::unique_ptr<Communicator> communicator, Duration timeout)
      : communicator_(std::move(communicator)), timeout_(timeout) {
    communicator_->set_call_start(CallStart::on_wait);
  }

  int size() const noexcept override { return communicator_->size(); }

  void all_gather(const Tensor& mine, const Tensor& all) override {
    communicator_->all_gather(span_of(mine), span_of(all), "batch norm statistics")
        ->wait(Deadline::after(timeout_));
  }

  void add_up(const Tensor& values) override {
    communicator_->all_reduce(span_of(values), ReduceOp::sum, "batch norm gradients")
        ->wait(Deadline::after(timeout_));
  }

 private:
  std::unique_ptr<Communicator> communicator_;
  Duration timeout_;
};

}  // namespace

std::shared_ptr<BatchPeers> make_batch_peers(Communicator& communicator, Duration timeout) {
  return std::make_shared<CommunicatorPeers>(
      communicator.split(0, communicator.rank(), Deadline::after(timeout)), timeout);
}

}  // namespace dtrain
