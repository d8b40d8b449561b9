// attention and its gradients: cuts the work into chunks for the threads and hands each to the loops. Chunks
// follow from shapes, and gradients of queries that come from several stripes of keys are added up in their
// order: the same bits for any number of threads.
#include <algorithm>

#include "runtime/device/cpu/attention/attention_loops.h"
#include "runtime/device/cpu/cpu_kernels.h"
#include "runtime/device/cpu/dispatch.h"
#include "runtime/device/kernel_flops.h"
#include "runtime/device/philox.h"

namespace dtrain::cpu {
namespace {

constexpr double kFlopsOfNs = 60;
constexpr std::int64_t kLeastKeysOfStripe = 1024, kMostStripes = 4;

/// Of keys and values [B, G, S, E], or of queries [B, G, R, L, E].
AttentionArray array_of(const View& view) {
  const Dims& strides = view.strides;
  if (view.rank() == 4) return {view.data, strides[0], strides[1], 0, strides[2], 1};
  return {view.data, strides[0], strides[1], strides[2], strides[3], view.shape[2]};
}

/// What forward and backward share. Step and rows of a mask are read here.
AttentionJob job_of(const AttentionRule& rule, const AttentionMasks& masks, const View& query,
                    const View& key, const View& value, const View& output, const View& log_sums) {
  AttentionJob job;
  job.dtype = query.dtype;
  job.heads = query.shape[1] * query.shape[2];
  job.key_heads = query.shape[1];
  job.queries = query.shape[3];
  job.keys = key.shape[2];
  job.width = query.shape[4];
  job.value_width = value.shape[3];
  job.scale = rule.scale;
  job.causal = rule.causal;
  job.first_query = rule.first_query;
  job.query = array_of(query);
  job.key = array_of(key);
  job.value = array_of(value);
  job.output = array_of(output);
  job.log_sums = log_sums.data;
  if (masks.bias.data != nullptr) {
    job.bias = array_of(masks.bias);
    job.bias_column = masks.bias.strides[4];
  }
  job.lengths = masks.lengths.as<const std::int64_t>();
  job.segments = masks.segments.as<const std::int32_t>();
  job.keep_share = masks.keep_share;
  if (masks.keep_share < 1) {
    const MaskNumbers& numbers = masks.numbers;
    job.mask_key = philox_key(numbers.seed, numbers.layer,
                              static_cast<std::uint64_t>(*numbers.step.as<const std::int64_t>()));
    job.mask_rows = numbers.rows.as<const std::int64_t>();
    job.mask_first = numbers.first;
  }
  return job;
}

const AttentionLoops& loops_for(std::string_view operation, DType dtype) {
  if (dtype == DType::f16) refuse_dtype(operation, dtype);
  return attention_loops(dtype);
}

/// The gradients of queries: what the stripes of keys gave, in their order, scaled.
template <class T>
void write_grad_queries(const AttentionJob& job, std::int64_t stripes, std::int64_t rows, std::int64_t pitch,
                        const View& to) {
  using C = Compute<T>;
  const auto* const from = static_cast<const C*>(job.grad_queries);
  const auto scale = static_cast<C>(job.scale);
  const AttentionArray array = array_of(to);
  for_ranges(to.shape[0] * job.heads, 1, static_cast<double>(job.queries * job.width),
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t head = begin; head < end; ++head) {
                 for (std::int64_t i = 0; i < job.queries; ++i) {
                   const C* row = from + (head * rows + i) * pitch;
                   T* out = to.as<T>() + array.offset(head / job.heads, head % job.heads, i);
                   for (std::int64_t c = 0; c < job.width; ++c) {
                     C sum = row[c];
                     for (std::int64_t s = 1; s < stripes; ++s) sum += row[s * job.stripe_step + c];
                     out[c] = cast<T>(sum * scale);
                   }
                 }
               }
             });
}

}  // namespace

void CpuKernels::attention(const AttentionRule& rule, const AttentionMasks& masks, const View& query,
                           const View& key, const View& value, const View& output, const View& log_sums) {
  const AttentionLoops& loops = loops_for("attention", query.dtype);
  if (log_sums.numel() == 0) return;
  const AttentionJob job = job_of(rule, masks, query, key, value, output, log_sums);
  const std::int64_t parts = (job.queries + kQueriesOfChunk - 1) / kQueriesOfChunk;
  const std::int64_t chunks = query.shape[0] * job.heads * parts;
  const std::size_t bytes = loops.scratch_bytes(job);
  attention_scratch_.prepare();
  for_chunks(chunks, attention_flops(rule, query, key, value) / kFlopsOfNs / static_cast<double>(chunks),
             [&](std::int64_t chunk, int worker) {
               const std::int64_t head = chunk / parts;
               loops.forward(job, head / job.heads, head % job.heads, chunk % parts,
                             attention_scratch_.of(worker).at_least(bytes));
             });
}

void CpuKernels::attention_backward(const AttentionRule& rule, const AttentionMasks& masks, const View& query,
                                    const View& key, const View& value, const View& output,
                                    const View& log_sums, const View& grad_output, const View& grad_query,
                                    const View& grad_key, const View& grad_value) {
  const AttentionLoops& loops = loops_for("attention_backward", query.dtype);
  const std::int64_t batch = query.shape[0];
  if (batch * query.shape[1] * query.shape[2] == 0) return;
  AttentionJob job = job_of(rule, masks, query, key, value, output, log_sums);
  job.grad_output = array_of(grad_output);
  if (grad_key.data != nullptr) job.grad_key = array_of(grad_key);
  if (grad_value.data != nullptr) job.grad_value = array_of(grad_value);

  // At least one, which writes zeros where there are no keys.
  const std::int64_t stripes = std::clamp<std::int64_t>(job.keys / kLeastKeysOfStripe, 1, kMostStripes);
  const std::int64_t tiles = (job.keys + kKeysOfTile - 1) / kKeysOfTile;
  job.keys_of_stripe = (tiles + stripes - 1) / stripes * kKeysOfTile;
  const std::int64_t rows = (job.queries + kQueriesOfBlock - 1) / kQueriesOfBlock * kQueriesOfBlock;
  const std::int64_t pitch = (job.width + loops.lanes - 1) / loops.lanes * loops.lanes;
  job.stripe_step = batch * job.heads * rows * pitch;
  const std::size_t number_bytes = query.dtype == DType::f64 ? sizeof(double) : sizeof(float);
  job.grad_queries =
      attention_gradients_.at_least(static_cast<std::size_t>(stripes * job.stripe_step) * number_bytes);

  const std::int64_t chunks = batch * job.key_heads * stripes;
  const std::size_t bytes = loops.scratch_bytes(job);
  attention_scratch_.prepare();
  for_chunks(chunks,
             2.5 * attention_flops(rule, query, key, value) / kFlopsOfNs / static_cast<double>(chunks),
             [&](std::int64_t chunk, int worker) {
               const std::int64_t head = chunk / stripes;
               loops.backward(job, head / job.key_heads, head % job.key_heads, chunk % stripes,
                              attention_scratch_.of(worker).at_least(bytes));
             });
  if (grad_query.data == nullptr) return;
  dispatch_floating("attention_backward", query.dtype, [&](auto tag) {
    write_grad_queries<decltype(tag)>(job, stripes, rows, pitch, grad_query);
  });
}

}  // namespace dtrain::cpu
