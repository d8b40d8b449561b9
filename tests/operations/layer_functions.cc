// The operations of runtime/autograd/ops/: activations, indexing, joining, other convolutions, norms,
// attention, losses, recurrent cells.
#include "runtime/autograd/ops/activations.h"
#include "runtime/autograd/ops/attention.h"
#include "runtime/autograd/ops/convolutions.h"
#include "runtime/autograd/ops/embedding.h"
#include "runtime/autograd/ops/indexing.h"
#include "runtime/autograd/ops/joining.h"
#include "runtime/autograd/ops/linear_cross_entropy.h"
#include "runtime/autograd/ops/losses.h"
#include "runtime/autograd/ops/norms.h"
#include "runtime/autograd/ops/recurrent.h"
#include "runtime/autograd/ops/rotary.h"
#include "tests/operations/operations.h"

namespace dtrain::test {
namespace {

void add_activations(Table& table) {
  table["leaky_relu"] = {[](const Case& c) { return y(leaky_relu(c.tensor("x"), c.number("slope", 0.01))); }};
  table["silu"] = {[](const Case& c) { return y(silu(c.tensor("x"))); }};
  table["silu_mul"] = {[](const Case& c) { return y(silu_mul(c.tensor("a"), c.tensor("b"))); }};
  table["gelu_tanh"] = {[](const Case& c) { return y(gelu_tanh(c.tensor("x"))); }};
  table["softsign"] = {[](const Case& c) { return y(softsign(c.tensor("x"))); }};
  table["softplus"] = {[](const Case& c) {
    return y(softplus(c.tensor("x"), c.number("beta", 1), c.number("threshold", 20)));
  }};
  table["clamp"] = {
      [](const Case& c) { return y(clamp(c.tensor("x"), c.maybe_number("min"), c.maybe_number("max"))); }};
  table["prelu"] = {[](const Case& c) { return y(prelu(c.tensor("x"), c.tensor("weight"))); }};
  table["pow_tensor"] = {[](const Case& c) { return y(pow(c.tensor("a"), c.tensor("b"))); }};
}

void add_indexing(Table& table) {
  table["gather"] = {[](const Case& c) { return y(gather(c.tensor("x"), dim_of(c), c.tensor("index"))); }};
  table["scatter_add"] = {[](const Case& c) {
    return y(scatter_add(c.tensor("x"), dim_of(c), c.tensor("index"), c.tensor("source")));
  }};
  table["embedding"] = {[](const Case& c) {
    return y(embedding(c.tensor("index"), c.tensor("weight"), c.maybe_integer("padding")));
  }};
  table["cumsum"] = {[](const Case& c) { return y(cumsum(c.tensor("x"), dim_of(c))); }};
  table["sort"] = {[](const Case& c) {
    const Sorted sorted = sort(c.tensor("x"), dim_of(c), c.flag("descending"));
    return Results{{"y", sorted.values}, {"indices", sorted.indices}};
  }};
  table["topk"] = {[](const Case& c) {
    const Sorted sorted = topk(c.tensor("x"), c.integer("k", 1), dim_of(c), c.flag("largest"));
    return Results{{"y", sorted.values}, {"indices", sorted.indices}};
  }};
  table["pad"] = {
      [](const Case& c) { return y(pad(c.tensor("x"), c.dims("amounts"), c.number("value", 0))); }};
}

void add_joining(Table& table) {
  table["cat"] = {[](const Case& c) { return y(cat({c.tensor("a"), c.tensor("b")}, dim_of(c))); }};
  table["stack"] = {[](const Case& c) { return y(stack({c.tensor("a"), c.tensor("b")}, dim_of(c))); }};
  table["split"] = {[](const Case& c) {
    const Tensors parts = split(c.tensor("x"), c.integer("size", 1), dim_of(c));
    return Results{{"y", parts.front()}, {"z", parts.back()}};
  }};
  table["split_sizes"] = {[](const Case& c) {
    const Dims sizes = c.dims("sizes");
    return several(split(c.tensor("x"), std::vector<std::int64_t>(sizes.begin(), sizes.end()), dim_of(c)));
  }};
  table["chunk"] = {
      [](const Case& c) { return several(chunk(c.tensor("x"), c.integer("count", 1), dim_of(c))); }};
  table["unbind"] = {[](const Case& c) { return several(unbind(c.tensor("x"), dim_of(c))); }};
}

void add_convolutions(Table& table) {
  table["conv1d"] = {[](const Case& c) {
    const Conv1dGeometry geometry{c.integer("stride", 1), c.integer("padding", 0), c.integer("dilation", 1),
                                  c.integer("groups", 1)};
    return y(conv1d(c.tensor("x"), c.tensor("weight"), c.tensor("bias"), geometry));
  }};
  table["conv3d"] = {[](const Case& c) {
    const Dims s = c.dims("stride", {1, 1, 1}), p = c.dims("padding", {0, 0, 0}),
               d = c.dims("dilation", {1, 1, 1});
    const Conv3dGeometry geometry{s[0], s[1], s[2], p[0], p[1],
                                  p[2], d[0], d[1], d[2], c.integer("groups", 1)};
    return y(conv3d(c.tensor("x"), c.tensor("weight"), c.tensor("bias"), geometry));
  }};
  table["conv_transpose3d"] = {[](const Case& c) {
    const Dims s = c.dims("stride", {1, 1, 1}), p = c.dims("padding", {0, 0, 0}),
               d = c.dims("dilation", {1, 1, 1}), extra = c.dims("output_padding", {0, 0, 0});
    const Conv3dGeometry geometry{s[0], s[1], s[2], p[0], p[1],
                                  p[2], d[0], d[1], d[2], c.integer("groups", 1)};
    return y(conv_transpose3d(c.tensor("x"), c.tensor("weight"), c.tensor("bias"), geometry,
                              {extra[0], extra[1], extra[2]}));
  }};
  table["conv_transpose2d"] = {[](const Case& c) {
    const Dims s = c.dims("stride", {1, 1}), p = c.dims("padding", {0, 0}), d = c.dims("dilation", {1, 1}),
               extra = c.dims("output_padding", {0, 0});
    const Conv2dGeometry geometry{s[0], s[1], p[0], p[1], d[0], d[1], c.integer("groups", 1)};
    return y(
        conv_transpose2d(c.tensor("x"), c.tensor("weight"), c.tensor("bias"), geometry, extra[0], extra[1]));
  }};
}

void add_norms(Table& table) {
  table["layer_norm"] = {[](const Case& c) {
    return y(layer_norm(c.tensor("x"), c.dims("shape"), c.tensor("weight"), c.tensor("bias"),
                        c.number("eps", 1e-5)));
  }};
  table["rms_norm"] = {[](const Case& c) {
    return y(rms_norm(c.tensor("x"), c.dims("shape"), c.tensor("weight"), c.number("eps", 1e-5)));
  }};
}

AttentionOptions attention_options(const Case& c) {
  AttentionOptions options{.causal = c.flag("causal"), .first_query = c.integer("first_query", 0)};
  if (const auto scale = c.maybe_number("scale")) options.scale = scale->real();
  options.lengths = c.tensor("lengths");
  options.segments = c.tensor("segments");
  return options;
}

void add_attention(Table& table) {
  table["scaled_dot_product_attention"] = {[](const Case& c) {
    return y(scaled_dot_product_attention(c.tensor("query"), c.tensor("key"), c.tensor("value"),
                                          c.tensor("mask"), attention_options(c)));
  }};
  table["packed_attention"] = {[](const Case& c) {
    const PackedHeads heads{c.integer("heads", 1), c.integer("key_heads", 0), c.flag("by_group")};
    return y(packed_attention(c.tensor("qkv"), heads, attention_options(c)));
  }};
  table["rotary_embedding"] = {[](const Case& c) {
    return y(rotary_embedding(c.tensor("x"), c.tensor("cosines"), c.tensor("sines"), c.flag("interleaved")));
  }};
}

void add_losses(Table& table) {
  table["binary_cross_entropy"] = {
      [](const Case& c) { return y(binary_cross_entropy(c.tensor("a"), c.tensor("b"), reduction_of(c))); }};
  table["binary_cross_entropy_with_logits"] = {[](const Case& c) {
    return y(binary_cross_entropy_with_logits(c.tensor("a"), c.tensor("b"), reduction_of(c)));
  }};
  table["l1_loss"] = {
      [](const Case& c) { return y(l1_loss(c.tensor("a"), c.tensor("b"), reduction_of(c))); }};
  table["smooth_l1_loss"] = {[](const Case& c) {
    return y(smooth_l1_loss(c.tensor("a"), c.tensor("b"), reduction_of(c), c.number("beta", 1)));
  }};
  table["linear_cross_entropy"] = {[](const Case& c) {
    const LinearCrossEntropyOptions options{reduction_of(c), c.maybe_integer("ignore"),
                                            c.integer("rows_at_once", 0)};
    return y(linear_cross_entropy(c.tensor("x"), c.tensor("weight"), c.tensor("target"), options));
  }};
}

void add_cells(Table& table) {
  const auto gates = [](const Case& c) {
    return linear(c.tensor("x"), c.tensor("weight_ih"), c.tensor("bias_ih"));
  };
  table["lstm_cell"] = {[gates](const Case& c) {
    const LstmState after =
        lstm_cell(gates(c), {c.tensor("h"), c.tensor("c")}, c.tensor("weight_hh"), c.tensor("bias_hh"));
    return several({after.h, after.c});
  }};
  using Cell = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const Tensor&);
  const std::pair<const char*, Cell> cells[] = {
      {"gru_cell", gru_cell}, {"rnn_tanh_cell", rnn_tanh_cell}, {"rnn_relu_cell", rnn_relu_cell}};
  for (const auto& [name, cell] : cells) {
    table[name] = {[gates, cell = cell](const Case& c) {
      return y(cell(gates(c), c.tensor("h"), c.tensor("weight_hh"), c.tensor("bias_hh")));
    }};
  }
}

}  // namespace

void add_functions_of_layers(Table& table) {
  add_activations(table);
  add_indexing(table);
  add_joining(table);
  add_convolutions(table);
  add_norms(table);
  add_attention(table);
  add_losses(table);
  add_cells(table);
}

}  // namespace dtrain::test
