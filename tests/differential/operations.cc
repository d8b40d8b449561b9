#include "tests/differential/operations.h"

#include "runtime/autograd/ops.h"
#include "runtime/optim/adamw.h"
#include "runtime/optim/sgd.h"

namespace dtrain::differential {
namespace {

Operation unary(Tensor (*function)(const Tensor&)) {
  return [function](const Case& c) { return Results{{"y", function(c.tensor("x"))}}; };
}

Operation binary(Tensor (*function)(const Tensor&, const Tensor&)) {
  return [function](const Case& c) { return Results{{"y", function(c.tensor("a"), c.tensor("b"))}}; };
}

Operation with_number(Tensor (*function)(const Tensor&, Number)) {
  return [function](const Case& c) {
    return Results{{"y", function(c.tensor("x"), c.any_number("number"))}};
  };
}

Operation over_dims(Tensor (*function)(const Tensor&, const Dims&, bool)) {
  return [function](const Case& c) {
    return Results{{"y", function(c.tensor("x"), c.dims("dims"), c.flag("keep"))}};
  };
}

Conv2dGeometry conv_geometry(const Case& c) {
  const Dims stride = c.dims("stride"), pad = c.dims("padding"), dilation = c.dims("dilation");
  return {stride[0], stride[1], pad[0], pad[1], dilation[0], dilation[1], c.integer("groups", 1)};
}

Pool2dGeometry pool_geometry(const Case& c) {
  const Dims kernel = c.dims("kernel"), stride = c.dims("pool_stride"), pad = c.dims("pool_padding");
  return {c.flag("max") ? PoolKind::max : PoolKind::avg,
          kernel[0],
          kernel[1],
          stride[0],
          stride[1],
          pad[0],
          pad[1]};
}

Activation activation(const Case& c) { return c.flag("relu") ? Activation::relu : Activation::none; }

Results batch_norm_case(const Case& c) {
  const BatchNormRule rule{c.number("eps", 1e-5), c.number("momentum", 0.1), activation(c)};
  const Tensor mean = c.tensor("running_mean"), var = c.tensor("running_var");
  Results results{{"y", batch_norm(c.tensor("x"), c.tensor("weight"), c.tensor("bias"), mean, var, rule,
                                   c.flag("training"), c.tensor("residual"))}};
  // The memory around statistics that are a column of a matrix counts too.
  if (mean.defined()) results.emplace_back("running_mean", c.base("running_mean"));
  if (var.defined()) results.emplace_back("running_var", c.base("running_var"));
  return results;
}

LossReduction reduction(const Case& c) {
  return static_cast<LossReduction>(c.integer("reduction", 0));  // mean, sum, none
}

/// Steps with the gradients g0, g1 and g2, as far as there are any.
Results optimize(Optimizer& optimizer, const Case& c) {
  Tensor parameter = c.base("p");
  for (const char* const name : {"g0", "g1", "g2"}) {
    if (!c.tensor(name).defined()) break;
    parameter.set_grad(c.tensor(name));
    optimizer.step();
  }
  parameter.zero_grad();
  return {{"p", parameter.detach()}};
}

Results sgd_case(const Case& c) {
  Sgd optimizer({{"p", c.base("p")}}, {.lr = c.number("lr", 0.1),
                                       .momentum = c.number("momentum", 0),
                                       .dampening = c.number("dampening", 0),
                                       .weight_decay = c.number("weight_decay", 0),
                                       .nesterov = c.flag("nesterov")});
  return optimize(optimizer, c);
}

Results adamw_case(const Case& c) {
  AdamW optimizer({{"p", c.base("p")}}, {.lr = c.number("lr", 0.1),
                                         .beta1 = c.number("beta1", 0.9),
                                         .beta2 = c.number("beta2", 0.999),
                                         .eps = c.number("eps", 1e-8),
                                         .weight_decay = c.number("weight_decay", 0)});
  return optimize(optimizer, c);
}

void add_elementwise(Table& table) {
  table["neg"] = unary(neg);
  table["abs"] = unary(abs);
  table["exp"] = unary(exp);
  table["log"] = unary(log);
  table["sqrt"] = unary(sqrt);
  table["rsqrt"] = unary(rsqrt);
  table["reciprocal"] = unary(reciprocal);
  table["square"] = unary(square);
  table["relu"] = unary(relu);
  table["sigmoid"] = unary(sigmoid);
  table["tanh"] = unary(tanh);
  table["gelu"] = unary(gelu);
  table["add_number"] = with_number(add);
  table["sub_number"] = with_number(sub);
  table["mul_number"] = with_number(mul);
  table["div_number"] = with_number(div);
  table["pow"] = with_number(pow);
  table["add"] = binary(add);
  table["sub"] = binary(sub);
  table["mul"] = binary(mul);
  table["div"] = binary(div);
  table["maximum"] = binary(maximum);
  table["minimum"] = binary(minimum);
  table["equal"] = binary(equal);
  table["greater"] = binary(greater);
  table["greater_equal"] = binary(greater_equal);
  table["less"] = binary(less);
  table["where"] = [](const Case& c) {
    return Results{{"y", where(c.tensor("condition"), c.tensor("a"), c.tensor("b"))}};
  };
}

void add_reductions(Table& table) {
  table["sum"] = over_dims(sum);
  table["mean"] = over_dims(mean);
  table["amax"] = over_dims(amax);
  table["amin"] = over_dims(amin);
  table["argmax"] = [](const Case& c) { return Results{{"y", argmax(c.tensor("x"))}}; };
  table["softmax"] = [](const Case& c) { return Results{{"y", softmax(c.tensor("x"))}}; };
  table["log_softmax"] = [](const Case& c) { return Results{{"y", log_softmax(c.tensor("x"))}}; };
  table["cross_entropy"] = [](const Case& c) {
    return Results{
        {"y", cross_entropy(c.tensor("x"), c.tensor("target"), reduction(c), c.maybe_integer("ignore"))}};
  };
  table["mse_loss"] = [](const Case& c) {
    return Results{{"y", mse_loss(c.tensor("a"), c.tensor("b"), reduction(c))}};
  };
}

void add_windows(Table& table) {
  table["matmul"] = binary(matmul);
  table["linear"] = [](const Case& c) {
    return Results{{"y", linear(c.tensor("x"), c.tensor("weight"), c.tensor("bias"), activation(c))}};
  };
  table["conv2d"] = [](const Case& c) {
    return Results{
        {"y", conv2d(c.tensor("x"), c.tensor("weight"), c.tensor("bias"), conv_geometry(c), activation(c))}};
  };
  table["pool2d"] = [](const Case& c) { return Results{{"y", pool2d(c.tensor("x"), pool_geometry(c))}}; };
  table["conv2d_relu_pool2d"] = [](const Case& c) {
    return Results{{"y", conv2d_relu_pool2d(c.tensor("x"), c.tensor("weight"), c.tensor("bias"),
                                            conv_geometry(c), pool_geometry(c))}};
  };
  table["adaptive_avg_pool2d"] = [](const Case& c) {
    const Dims size = c.dims("size");
    return Results{{"y", adaptive_avg_pool2d(c.tensor("x"), size[0], size[1])}};
  };
  table["batch_norm"] = batch_norm_case;
}

Table make_table() {
  Table table;
  add_elementwise(table);
  add_reductions(table);
  add_windows(table);
  // What the views of an argument show, and in other orders.
  table["copy"] = [](const Case& c) { return Results{{"y", c.tensor("x").clone()}}; };
  table["channels_last"] = [](const Case& c) {
    return Results{{"y", c.tensor("x").contiguous(MemoryFormat::channels_last)}};
  };
  table["index_select"] = [](const Case& c) {
    return Results{
        {"y", c.tensor("x").index_select(static_cast<int>(c.integer("dim", 0)), c.tensor("index"))}};
  };
  table["sgd"] = sgd_case;
  table["adamw"] = adamw_case;
  add_more(table);
  return table;
}

}  // namespace

const Table& operations() {
  static const Table kTable = make_table();
  return kTable;
}

}  // namespace dtrain::differential
