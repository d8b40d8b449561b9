// Picking, adding up and ordering elements beside PyTorch's (indexing.py), and what takes int64.
#include <gtest/gtest.h>

#include "tests/parity/operations/parity_table.h"

namespace dtrain {
namespace {

using test::Inputs;
using test::Outputs;

Outputs both(const Sorted& sorted) { return {sorted.values, sorted.indices}; }

test::Family operations() {
  const auto product = [](const Inputs& in) { return matmul(in[0], in[1]); };
  return {
      {"gather dim 1", [](const Inputs& in) { return gather(in[0], 1, in[1]); }},
      {"gather dim -1", [](const Inputs& in) { return gather(in[0], -1, in[1]); }},
      {"scatter_add dim 1", [](const Inputs& in) { return scatter_add(in[0], 1, in[2], in[1]); }},
      {"cumsum dim 1", [](const Inputs& in) { return cumsum(in[0], 1); }},
      {"cumsum dim 0", [](const Inputs& in) { return cumsum(in[0], 0); }},
      {"sort", [](const Inputs& in) { return both(sort(in[0])); }},
      {"sort dim 0 descending", [](const Inputs& in) { return both(sort(in[0], 0, true)); }},
      {"topk 3", [](const Inputs& in) { return both(topk(in[0], 3)); }},
      {"topk 2 smallest dim 0", [](const Inputs& in) { return both(topk(in[0], 2, 0, false)); }},
      {"pad",
       [](const Inputs& in) {
         return pad(in[0], {1, 2, 0, 1}, 0.5);
       }},
      {"pad cuts off",
       [](const Inputs& in) {
         return pad(in[0], {-1, 2, 1, -2});
       }},
      {"matmul int64", product},
      {"matmul int64 wraps", product},
      {"sort int64", [](const Inputs& in) { return both(sort(in[0])); }},
      {"cumsum int64", [](const Inputs& in) { return cumsum(in[0], 0); }},
      {"clamp int64", [](const Inputs& in) { return clamp(in[0], -1, 2); }},
  };
}

TEST(OperationParity, Indexing) { test::expect_parity("indexing", operations()); }

}  // namespace
}  // namespace dtrain
