#include "parallel/sync/hooks/compress.h"

#include "parallel/span_of.h"
#include "parallel/sync/hooks/power_sgd.h"
#include "runtime/base/error.h"
#include "runtime/base/options.h"

namespace dtrain {
namespace {

View flat_view(const MemorySpan& span) {
  return {span.data, span.dtype, {static_cast<std::int64_t>(span.count)}, {1}};
}

/// A sum under way in another dtype; waiting for it brings it back.
class CompressedWork final : public Work {
 public:
  CompressedWork(std::unique_ptr<Work> sum, Tensor small, const MemorySpan& bucket)
      : sum_(std::move(sum)), small_(std::move(small)), bucket_(bucket) {}

  void wait(const Deadline& deadline) override {
    sum_->wait(deadline);
    bring_back();
  }
  void wait_on_host(const Deadline& deadline) override {
    sum_->wait_on_host(deadline);
    bring_back();
  }
  bool done() noexcept override { return sum_->done(); }

 private:
  void bring_back() {
    if (small_.defined()) bucket_.device->kernels().copy(small_.view(), flat_view(bucket_));
    small_ = Tensor();
  }

  std::unique_ptr<Work> sum_;
  Tensor small_;
  MemorySpan bucket_;
};

class CastExchange final : public CommHook {
 public:
  explicit CastExchange(DType dtype) : dtype_(dtype) {}

  std::unique_ptr<Work> begin(Communicator& communicator, const GradBucket& full) override {
    const MemorySpan& bucket = full.span;
    if (bucket.dtype != DType::f32 || communicator.size() == 1)
      return communicator.all_reduce(bucket, ReduceOp::sum, full.label);
    const Tensor small = Tensor::empty({static_cast<std::int64_t>(bucket.count)}, full.device, dtype_);
    full.device->kernels().copy(flat_view(bucket), small.view());
    return std::make_unique<CompressedWork>(
        communicator.all_reduce(span_of(small), ReduceOp::sum, full.label), small, bucket);
  }

 private:
  DType dtype_;
};

}  // namespace

std::shared_ptr<CommHook> compress_to(DType dtype) {
  if (dtype != DType::f16 && dtype != DType::bf16) {
    throw UsageError("compressed gradients: expected float16 or bfloat16, got " +
                     std::string(dtrain::name_of(dtype)));
  }
  return std::make_shared<CastExchange>(dtype);
}

Compression compression_named(std::string_view text) {
  constexpr std::string_view kPowerSgd = "powersgd:";
  if (text == "none") return {};
  if (text == "fp16") return {Compression::Kind::fp16};
  if (text == "bf16") return {Compression::Kind::bf16};
  if (text.starts_with(kPowerSgd)) {
    const auto rank = parse_integer(std::string(text.substr(kPowerSgd.size())));
    if (rank && *rank >= 1 && *rank <= 1024) return {Compression::Kind::power_sgd, static_cast<int>(*rank)};
  }
  throw UsageError(
      "compressed gradients: expected none, fp16, bf16 or powersgd:R with R from 1 to 1024, got '" +
      std::string(text) + "'");
}

std::shared_ptr<CommHook> exchange_for(const Compression& compression, std::uint64_t seed) {
  switch (compression.kind) {
    case Compression::Kind::none:
      return nullptr;
    case Compression::Kind::fp16:
      return compress_to(DType::f16);
    case Compression::Kind::bf16:
      return compress_to(DType::bf16);
    case Compression::Kind::power_sgd:
      return power_sgd({.rank = compression.rank, .seed = seed});
  }
  return nullptr;
}

}  // namespace dtrain
