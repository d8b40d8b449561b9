#include "parallel/sync/stage_sharing.h"

#include <algorithm>

#include "parallel/sync/data_parallel.h"
#include "parallel/sync/equal_start.h"
#include "parallel/sync/part_gradients.h"
#include "parallel/sync/sharded/dealt_parameters.h"
#include "runtime/nn/trainable.h"

namespace dtrain {
namespace {

/// Every copy has the whole stage, and all gradients of each step.
class CopiedStage : public StageSharing {
 public:
  CopiedStage(StageModule& stage, Communicator& copies, bool deal) : stage_(stage), copies_(copies) {
    if (deal) dealt_.emplace(stage_.named_parameters(), copies_);
  }

  NamedTensors updated() const override { return dealt_ ? dealt_->own() : stage_.named_parameters(); }
  NamedTensors parameters() const override { return trainable_parameters(stage_); }
  Communicator* ranges() noexcept override { return nullptr; }

  void begin_step() override { stage_.zero_grad(); }
  void begin_use(ParameterUse /*use*/) override {}
  void after_backward(const StageBackward& /*which*/) override {}
  void take_update(const Deadline& deadline) override {
    if (dealt_) dealt_->hand_over(deadline);
  }

  void load_model(const TensorFiles& files) override {
    const NamedTensors here = stage_.state_dict();
    stage_.load_state_dict(load_tensors(files, device(), [&](const std::string& saved) {
      return belongs_to(saved, here) ? std::optional(saved) : std::nullopt;
    }));
  }
  NamedTensors load_state(const TensorFiles& files, const NameHere& name_here) const override {
    return load_tensors(files, device(), name_here);
  }
  // What is dealt out one copy alone has.
  StateParts save(const NamedTensors& state) const override {
    return {written_here(stage_.state_dict(), copies_), dealt_ ? whole(state) : written_here(state, copies_)};
  }
  Replicas replicas(const NamedTensors& state) const override {
    NamedTensors tensors = stage_.named_parameters();
    if (!dealt_) tensors.insert(tensors.end(), state.begin(), state.end());
    return {&copies_, std::move(tensors)};
  }

 protected:
  const std::shared_ptr<Device>& device() const {
    return stage_.named_parameters().front().second.shared_device();
  }

  StageModule& stage_;
  Communicator& copies_;

 private:
  std::optional<DealtParameters> dealt_;
};

/// Gradients are averaged over the copies, beside the last micro-batch's backward.
class AveragedStage final : public CopiedStage {
 public:
  AveragedStage(StageModule& stage, Communicator& copies, ReducerOptions reducer, bool deal)
      : CopiedStage(stage, copies, deal), reducer_(std::move(reducer)) {}

  void begin(const Deadline& deadline) override {
    parallel_ = std::make_unique<DataParallel>(copies_, stage_, deadline, reducer_);
  }
  void after_forward(std::size_t /*micro_batch*/, std::size_t /*count*/) override {}
  double loss_divisor() const noexcept override { return 1; }
  void run_backward(const StageBackward& which, const std::function<void()>& body) override {
    if (which.exchange && which.is_last) return body();
    const auto no_sync = parallel_->no_sync();
    body();
  }
  void finish(const Deadline& deadline) override { parallel_->finish(deadline); }
  void drop_step() override {}
  void settle(const Deadline& deadline) override { parallel_->sync_buffers(deadline); }
  void exchange_alone(const Deadline& deadline) override {
    if (!idle_) idle_ = parallel_->make_idle_reducer();
    for (std::size_t index = idle_->slot_count(); index-- > 0;) idle_->mark_ready(index);
    idle_->finish(deadline);
  }

 private:
  ReducerOptions reducer_;
  std::unique_ptr<DataParallel> parallel_;
  std::unique_ptr<Reducer> idle_;
};

/// Micro-batches are parts of the batch, whose gradients are added up along one tree. Every schedule of whole
/// stages runs backwards in the order of the micro-batches, as the tree wants them.
class SummedStage final : public CopiedStage {
 public:
  SummedStage(StageModule& stage, Communicator& copies, std::shared_ptr<Device> device, int parts, bool deal)
      : CopiedStage(stage, copies, deal), device_(std::move(device)), parts_(parts) {}

  void begin(const Deadline& deadline) override {
    const NamedTensors state = stage_.state_dict();
    check_same_model(copies_, state, deadline);
    copy_from_first_rank(copies_, state, deadline);
    gradients_ = std::make_unique<PartGradients>(copies_, device_, stage_, parts_);
  }
  void after_forward(std::size_t micro_batch, std::size_t count) override {
    memory_.after_forward(stage_, micro_batch, count);
  }
  double loss_divisor() const noexcept override { return parts_; }
  void run_backward(const StageBackward& which, const std::function<void()>& body) override {
    gradients_->begin_part(which.exchange);
    body();
    gradients_->end_part();
  }
  void finish(const Deadline& deadline) override {
    memory_.put_back();
    gradients_->finish(deadline);
    gradients_->give();
  }
  void drop_step() override { memory_.put_back(); }
  void settle(const Deadline& deadline) override {
    copy_from_first_rank(copies_, stage_.named_buffers(), deadline);
  }
  void exchange_alone(const Deadline& deadline) override { gradients_->exchange_alone(deadline); }

 private:
  std::shared_ptr<Device> device_;
  int parts_;
  std::unique_ptr<PartGradients> gradients_;
  FirstPartMemory memory_;
};

/// Nothing here learns; gradients pass through.
class FrozenStage final : public CopiedStage {
 public:
  FrozenStage(StageModule& stage, Communicator& copies, int parts)
      : CopiedStage(stage, copies, false), parts_(parts) {}

  void begin(const Deadline& deadline) override {
    const NamedTensors state = stage_.state_dict();
    check_same_model(copies_, state, deadline);
    copy_from_first_rank(copies_, state, deadline);
  }
  void after_forward(std::size_t micro_batch, std::size_t count) override {
    if (parts_ > 0) memory_.after_forward(stage_, micro_batch, count);
  }
  double loss_divisor() const noexcept override { return std::max(parts_, 1); }
  void run_backward(const StageBackward& /*which*/, const std::function<void()>& body) override { body(); }
  void finish(const Deadline& /*deadline*/) override { memory_.put_back(); }
  void drop_step() override { memory_.put_back(); }
  void settle(const Deadline& deadline) override {
    copy_from_first_rank(copies_, stage_.named_buffers(), deadline);
  }
  void exchange_alone(const Deadline& /*deadline*/) override {}

 private:
  int parts_;
  FirstPartMemory memory_;
};

// A micro-batch's gradients go to their owners behind its backward, as those of a pass that accumulates do in
// ShardedStrategy. Chunks are sets of parameters with passes of their own.
class RangedStage final : public StageSharing {
 public:
  RangedStage(StageModule& stage, std::size_t chunks, Communicator& copies, const ShardOptions& options,
              const std::map<std::string, TensorPart>& slices)
      : stage_(stage), copies_(copies), shards_({copies}, options) {
    shards_.own(stage_, slices,
                {chunks, [this](const std::string& parameter) { return stage_.chunk_of(parameter); }});
  }

  NamedTensors updated() const override { return shards_.owned(); }
  NamedTensors parameters() const override { return shards_.owned(); }
  Communicator* ranges() noexcept override { return &copies_; }

  void begin(const Deadline& deadline) override { shards_.begin(copies_, deadline); }
  void begin_step() override { shards_.begin_step(); }
  void begin_use(ParameterUse use) override { shards_.begin_use(use); }
  void after_forward(std::size_t /*micro_batch*/, std::size_t /*count*/) override {}
  double loss_divisor() const noexcept override { return 1; }
  void run_backward(const StageBackward& which, const std::function<void()>& body) override {
    shards_.begin_use(ParameterUse::backward);
    shards_.begin_pass(which.exchange, which.chunk);
    body();
  }
  void after_backward(const StageBackward& which) override {
    if (which.exchange) shards_.finish_pass();
  }
  void finish(const Deadline& /*deadline*/) override { shards_.finish_step(); }
  void take_update(const Deadline& /*deadline*/) override { shards_.take_update(); }
  void drop_step() override { shards_.drop_step(); }
  void settle(const Deadline& deadline) override {
    copy_from_first_rank(copies_, stage_.named_buffers(), deadline);
  }

  void load_model(const TensorFiles& files) override { shards_.load_model(files); }
  NamedTensors load_state(const TensorFiles& files, const NameHere& name_here) const override {
    return shards_.load_state(files, name_here);
  }
  StateParts save(const NamedTensors& state) const override { return shards_.save(state); }
  Replicas replicas(const NamedTensors& /*state*/) const override { return shards_.replicas(copies_); }
  void exchange_alone(const Deadline& deadline) override { shards_.exchange_nothing(deadline); }

 private:
  StageModule& stage_;
  Communicator& copies_;
  ShardedParameters shards_;
};

}  // namespace

std::vector<SavedPart> written_here(const NamedTensors& tensors, const Communicator& copies) {
  NamedTensors mine;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (static_cast<int>(i % static_cast<std::size_t>(copies.size())) == copies.rank())
      mine.push_back(tensors[i]);
  }
  return whole(mine);
}

std::unique_ptr<StageSharing> share_whole(StageModule& stage, Communicator& copies, ReducerOptions reducer,
                                          bool deal) {
  return std::make_unique<AveragedStage>(stage, copies, std::move(reducer), deal);
}

std::unique_ptr<StageSharing> share_parts(StageModule& stage, Communicator& copies,
                                          std::shared_ptr<Device> device, int parts, bool deal) {
  return std::make_unique<SummedStage>(stage, copies, std::move(device), parts, deal);
}

std::unique_ptr<StageSharing> share_frozen(StageModule& stage, Communicator& copies, int parts) {
  return std::make_unique<FrozenStage>(stage, copies, parts);
}

std::unique_ptr<StageSharing> share_ranges(StageModule& stage, std::size_t chunks, Communicator& copies,
                                           const ShardOptions& options,
                                           const std::map<std::string, TensorPart>& slices) {
  return std::make_unique<RangedStage>(stage, chunks, copies, options, slices);
}

}  // namespace dtrain
