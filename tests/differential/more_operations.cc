// The operations of the differential test that are made of others or work along one dimension.
#include <string>

#include "runtime/autograd/ops.h"
#include "runtime/autograd/ops/attention.h"
#include "runtime/autograd/ops/embedding.h"
#include "runtime/autograd/ops/losses.h"
#include "runtime/autograd/ops/norms.h"
#include "tests/differential/operations.h"

namespace dtrain::differential {
namespace {

LossReduction reduction(const Case& c) {
  return static_cast<LossReduction>(c.integer("reduction", 0));  // mean, sum, none
}

int dim(const Case& c) { return static_cast<int>(c.integer("dim", 0)); }

void add_activations(Table& table) {
  table["leaky_relu"] = [](const Case& c) {
    return Results{{"y", leaky_relu(c.tensor("x"), c.number("slope", 0.01))}};
  };
  table["silu"] = [](const Case& c) { return Results{{"y", silu(c.tensor("x"))}}; };
  table["softsign"] = [](const Case& c) { return Results{{"y", softsign(c.tensor("x"))}}; };
  table["softplus"] = [](const Case& c) {
    return Results{{"y", softplus(c.tensor("x"), c.number("beta", 1), c.number("threshold", 20))}};
  };
  table["clamp"] = [](const Case& c) {
    return Results{{"y", clamp(c.tensor("x"), c.maybe_number("min"), c.maybe_number("max"))}};
  };
  table["prelu"] = [](const Case& c) { return Results{{"y", prelu(c.tensor("x"), c.tensor("weight"))}}; };
  table["pow_tensor"] = [](const Case& c) { return Results{{"y", pow(c.tensor("a"), c.tensor("b"))}}; };
}

void add_indexing(Table& table) {
  table["gather"] = [](const Case& c) {
    return Results{{"y", gather(c.tensor("x"), dim(c), c.tensor("index"))}};
  };
  table["scatter_add"] = [](const Case& c) {
    return Results{{"y", scatter_add(c.tensor("x"), dim(c), c.tensor("index"), c.tensor("source"))}};
  };
  table["embedding"] = [](const Case& c) {
    return Results{{"y", embedding(c.tensor("index"), c.tensor("weight"), c.maybe_integer("padding"))}};
  };
  table["cumsum"] = [](const Case& c) { return Results{{"y", cumsum(c.tensor("x"), dim(c))}}; };
  table["sort"] = [](const Case& c) {
    const Sorted sorted = sort(c.tensor("x"), dim(c), c.flag("descending"));
    return Results{{"y", sorted.values}, {"indices", sorted.indices}};
  };
  table["topk"] = [](const Case& c) {
    const Sorted sorted = topk(c.tensor("x"), c.integer("k", 1), dim(c), c.flag("largest"));
    return Results{{"y", sorted.values}, {"indices", sorted.indices}};
  };
  table["pad"] = [](const Case& c) {
    return Results{{"y", pad(c.tensor("x"), c.dims("amounts"), c.number("value", 0))}};
  };
  table["cat"] = [](const Case& c) { return Results{{"y", cat({c.tensor("a"), c.tensor("b")}, dim(c))}}; };
  table["split"] = [](const Case& c) {
    const Tensors parts = split(c.tensor("x"), c.integer("size", 1), dim(c));
    return Results{{"y", parts.front()}, {"z", parts.back()}};
  };
}

void add_convolutions(Table& table) {
  table["conv1d"] = [](const Case& c) {
    const Conv1dGeometry geometry{c.integer("stride", 1), c.integer("padding", 0), c.integer("dilation", 1),
                                  c.integer("groups", 1)};
    return Results{{"y", conv1d(c.tensor("x"), c.tensor("weight"), c.tensor("bias"), geometry)}};
  };
  table["conv3d"] = [](const Case& c) {
    const Dims s = c.dims("stride"), p = c.dims("padding"), d = c.dims("dilation");
    const Conv3dGeometry geometry{s[0], s[1], s[2], p[0], p[1],
                                  p[2], d[0], d[1], d[2], c.integer("groups", 1)};
    return Results{{"y", conv3d(c.tensor("x"), c.tensor("weight"), c.tensor("bias"), geometry)}};
  };
  table["conv_transpose2d"] = [](const Case& c) {
    const Dims s = c.dims("stride"), p = c.dims("padding"), d = c.dims("dilation"),
               extra = c.dims("output_padding");
    const Conv2dGeometry geometry{s[0], s[1], p[0], p[1], d[0], d[1], c.integer("groups", 1)};
    return Results{{"y", conv_transpose2d(c.tensor("x"), c.tensor("weight"), c.tensor("bias"), geometry,
                                          extra[0], extra[1])}};
  };
}

void add_layers(Table& table) {
  table["layer_norm"] = [](const Case& c) {
    return Results{{"y", layer_norm(c.tensor("x"), c.dims("shape"), c.tensor("weight"), c.tensor("bias"),
                                    c.number("eps", 1e-5))}};
  };
  table["rms_norm"] = [](const Case& c) {
    return Results{
        {"y", rms_norm(c.tensor("x"), c.dims("shape"), c.tensor("weight"), c.number("eps", 1e-5))}};
  };
  table["attention"] = [](const Case& c) {
    return Results{{"y", scaled_dot_product_attention(c.tensor("query"), c.tensor("key"), c.tensor("value"),
                                                      c.tensor("mask"), {.causal = c.flag("causal")})}};
  };
}

void add_losses(Table& table) {
  table["binary_cross_entropy"] = [](const Case& c) {
    return Results{{"y", binary_cross_entropy(c.tensor("a"), c.tensor("b"), reduction(c))}};
  };
  table["binary_cross_entropy_with_logits"] = [](const Case& c) {
    return Results{{"y", binary_cross_entropy_with_logits(c.tensor("a"), c.tensor("b"), reduction(c))}};
  };
  table["l1_loss"] = [](const Case& c) {
    return Results{{"y", l1_loss(c.tensor("a"), c.tensor("b"), reduction(c))}};
  };
  table["smooth_l1_loss"] = [](const Case& c) {
    return Results{{"y", smooth_l1_loss(c.tensor("a"), c.tensor("b"), reduction(c), c.number("beta", 1))}};
  };
}

}  // namespace

void add_more(Table& table) {
  add_activations(table);
  add_indexing(table);
  add_convolutions(table);
  add_layers(table);
  add_losses(table);
}

}  // namespace dtrain::differential
