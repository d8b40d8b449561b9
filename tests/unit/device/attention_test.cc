// Attention and its gradients against a float64 reference that keeps all scores: who sees whom, shared keys,
// dropout, every dtype, and the same bits for any number of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/device/cpu/workers/workers.h"
#include "tests/unit/device/array.h"

namespace dtrain {
namespace {

using test::Array;

struct Shape {
  std::int64_t batch, groups, shared, queries, keys, width, value_width;

  Dims query() const { return {batch, groups, shared, queries, width}; }
  Dims key() const { return {batch, groups, keys, width}; }
  Dims value() const { return {batch, groups, keys, value_width}; }
  Dims output() const { return {batch, groups, shared, queries, value_width}; }
};

/// What a test asks for, with memory of its own.
struct Case {
  Shape shape;
  AttentionRule rule = {};
  std::optional<Array> bias = std::nullopt;
  std::vector<std::int64_t> lengths = {};
  std::vector<std::int32_t> segments = {};
  double keep_share = 1;
  std::vector<std::int64_t> step = {3};
  std::vector<std::int64_t> rows = {};

  AttentionMasks masks() {
    AttentionMasks masks;
    if (bias) masks.bias = *bias;
    if (!lengths.empty()) masks.lengths = {lengths.data(), DType::i64, {shape.batch}, {1}};
    if (!segments.empty()) {
      masks.segments = {segments.data(), DType::i32, {shape.batch, shape.keys}, {shape.keys, 1}};
    }
    masks.keep_share = keep_share;
    masks.numbers.seed = 7;
    masks.numbers.layer = 2;
    masks.numbers.step = {step.data(), DType::i64, {1}, {1}};
    if (!rows.empty()) masks.numbers.rows = {rows.data(), DType::i64, {shape.batch}, {1}};
    return masks;
  }
};

/// The arrays of a call, in one dtype.
struct Arrays {
  Array query, key, value, grad, output, log_sums, grad_query, grad_key, grad_value;

  Arrays(const Shape& s, DType dtype, Generator& generator)
      : query(Array::random(s.query(), generator, dtype)),
        key(Array::random(s.key(), generator, dtype)),
        value(Array::random(s.value(), generator, dtype)),
        grad(Array::random(s.output(), generator, dtype)),
        output(s.output(), dtype),
        log_sums({s.batch, s.groups, s.shared, s.queries}, dtype == DType::f64 ? dtype : DType::f32),
        grad_query(s.query(), dtype),
        grad_key(s.key(), dtype),
        grad_value(s.value(), dtype) {}

  void run(Kernels& kernels, Case& c) {
    const AttentionMasks masks = c.masks();
    kernels.attention(c.rule, masks, query, key, value, output, log_sums);
    kernels.attention_backward(c.rule, masks, query, key, value, output, log_sums, grad, grad_query, grad_key,
                               grad_value);
  }
  std::vector<const Array*> results() const {
    return {&output, &log_sums, &grad_query, &grad_key, &grad_value};
  }
};

struct Expected {
  std::vector<double> output, log_sums, grad_query, grad_key, grad_value;
};

/// All scores of one head at a time.
class Reference {
 public:
  Reference(Case& c, const Arrays& arrays, Device& device)
      : c_(c),
        s_(c.shape),
        q_(arrays.query.values()),
        k_(arrays.key.values()),
        v_(arrays.value.values()),
        grad_(arrays.grad.values()) {
    if (c.bias) bias_ = c.bias->values();
    const std::int64_t pitch = (s_.keys + 3) / 4 * 4;
    Array mask({s_.batch, s_.groups, s_.shared, s_.queries, pitch}, DType::f64);
    device.kernels().dropout_mask(c.masks().numbers, c.keep_share, mask);
    mask_ = mask.values();
    found_.output.resize(count(s_.output()));
    found_.log_sums.resize(found_.output.size() / static_cast<std::size_t>(s_.value_width));
    found_.grad_query.resize(q_.size());
    found_.grad_key.resize(k_.size());
    found_.grad_value.resize(v_.size());
    for (std::int64_t head = 0; head < s_.batch * s_.groups * s_.shared; ++head) {
      for (std::int64_t i = 0; i < s_.queries; ++i) query(head, i);
    }
  }
  const Expected& found() const { return found_; }

 private:
  static std::size_t count(const Dims& dims) { return static_cast<std::size_t>(dims.product()); }
  static std::size_t at(std::int64_t row, std::int64_t columns, std::int64_t column) {
    return static_cast<std::size_t>(row * columns + column);
  }
  bool sees(std::int64_t entry, std::int64_t i, std::int64_t j) const {
    const std::int64_t place = c_.rule.first_query + i;
    if (c_.rule.causal && j > place) return false;
    if (!c_.lengths.empty() && j >= c_.lengths[static_cast<std::size_t>(entry)]) return false;
    return c_.segments.empty() ||
           c_.segments[at(entry, s_.keys, place)] == c_.segments[at(entry, s_.keys, j)];
  }

  void query(std::int64_t head, std::int64_t i) {
    const std::int64_t entry = head / (s_.groups * s_.shared), row = head * s_.queries + i;
    const std::int64_t first_key = head / s_.shared * s_.keys, pitch = (s_.keys + 3) / 4 * 4;
    std::vector<double> p(static_cast<std::size_t>(s_.keys), 0), through = p;
    double largest = -std::numeric_limits<double>::infinity(), sum = 0, delta = 0;
    for (std::int64_t j = 0; j < s_.keys; ++j) {
      double score = 0;
      for (std::int64_t e = 0; e < s_.width; ++e)
        score += q_[at(row, s_.width, e)] * k_[at(first_key + j, s_.width, e)];
      score *= c_.rule.scale;
      if (c_.bias) score += bias_[at(row, s_.keys, j)];
      p[static_cast<std::size_t>(j)] = sees(entry, i, j) ? score : -std::numeric_limits<double>::infinity();
      largest = std::max(largest, p[static_cast<std::size_t>(j)]);
    }
    const bool any = largest > -std::numeric_limits<double>::infinity();
    for (double& x : p) sum += x = any ? std::exp(x - largest) : 0;
    found_.log_sums[static_cast<std::size_t>(row)] =
        any ? largest + std::log(sum) : std::numeric_limits<double>::infinity();
    for (double& x : p) x /= any ? sum : 1;
    for (std::int64_t j = 0; j < s_.keys; ++j) {
      const double kept = mask_[at(row, pitch, j)], weight = p[static_cast<std::size_t>(j)];
      for (std::int64_t f = 0; f < s_.value_width; ++f) {
        const double value = v_[at(first_key + j, s_.value_width, f)],
                     grad = grad_[at(row, s_.value_width, f)];
        found_.output[at(row, s_.value_width, f)] += weight * kept * value;
        found_.grad_value[at(first_key + j, s_.value_width, f)] += weight * kept * grad;
        through[static_cast<std::size_t>(j)] += kept * value * grad;
      }
      delta += weight * through[static_cast<std::size_t>(j)];
    }
    for (std::int64_t j = 0; j < s_.keys; ++j) {
      const double slope =
          p[static_cast<std::size_t>(j)] * (through[static_cast<std::size_t>(j)] - delta) * c_.rule.scale;
      for (std::int64_t e = 0; e < s_.width; ++e) {
        found_.grad_query[at(row, s_.width, e)] += slope * k_[at(first_key + j, s_.width, e)];
        found_.grad_key[at(first_key + j, s_.width, e)] += slope * q_[at(row, s_.width, e)];
      }
    }
  }

  Case& c_;
  Shape s_;
  std::vector<double> q_, k_, v_, grad_, bias_, mask_;
  Expected found_;
};

class Attention : public testing::Test {
 protected:
  /// Sums of some hundred terms of size 1, in another order and with roundings of the dtype.
  void expect_agrees(const std::string& what, Case c) {
    for (const auto& [dtype, tolerance] :
         {std::pair(DType::f64, 1e-12), {DType::f32, 2e-5}, {DType::bf16, 0.05}}) {
      Generator generator(5);
      Arrays arrays(c.shape, dtype, generator);
      Case own = c;
      if (own.bias) own.bias = own.bias->as(dtype == DType::f64 ? DType::f64 : DType::f32);
      arrays.run(device_->kernels(), own);
      const Reference reference(own, arrays, *device_);
      const Expected& expected = reference.found();
      const std::vector<double>* wanted[] = {&expected.output, &expected.log_sums, &expected.grad_query,
                                             &expected.grad_key, &expected.grad_value};
      for (std::size_t i = 0; i < 5; ++i) {
        const auto got = arrays.results()[i]->values();
        ASSERT_EQ(got.size(), wanted[i]->size());
        double furthest = 0;
        for (std::size_t e = 0; e < got.size(); ++e) {
          if (got[e] == (*wanted[i])[e]) continue;  // infinite, too
          const double error = std::abs(got[e] - (*wanted[i])[e]) / std::max(1.0, std::abs((*wanted[i])[e]));
          if (!(error <= furthest)) furthest = error;
        }
        EXPECT_LE(furthest, tolerance) << what << ", " << name_of(dtype) << ", result " << i;
      }
    }
  }
  std::shared_ptr<Device> device_ = make_device("cpu");
};

TEST_F(Attention, FollowsItsFormulaInAllShapes) {
  for (const Shape& shape : {Shape{2, 2, 1, 37, 37, 16, 16},
                             {1, 1, 1, 1, 1, 1, 1},
                             {1, 2, 3, 33, 150, 20, 48},
                             {1, 1, 2, 300, 129, 64, 5},
                             {2, 1, 1, 64, 7, 33, 128}}) {
    for (const bool causal : {false, true}) {
      expect_agrees("queries " + std::to_string(shape.queries), {shape, {.scale = 0.3, .causal = causal}});
    }
  }
}

TEST_F(Attention, SeesWhatMasksAllow) {
  const Shape shape{3, 1, 2, 150, 150, 16, 16};
  for (const bool causal : {false, true}) {
    Case lengths{shape, {.scale = 0.25, .causal = causal}};
    lengths.lengths = {150, 70, 0};  // the last sees nothing
    expect_agrees("lengths", lengths);
    Case documents{shape, {.scale = 0.25, .causal = causal}};
    for (std::int32_t i = 0; i < 450; ++i)
      documents.segments.push_back(i < 150 ? i / 40 : i < 300 ? 9 : i % 3);
    expect_agrees("documents", documents);
    documents.lengths = {130, 150, 1};
    expect_agrees("documents and lengths", documents);
  }
  Case later{{1, 2, 1, 20, 170, 16, 16}, {.scale = 0.25, .causal = true, .first_query = 150}};
  expect_agrees("queries behind a cache", later);
  for (std::int32_t i = 0; i < 170; ++i) later.segments.push_back(i / 60);
  expect_agrees("documents behind a cache", later);
}

TEST_F(Attention, AddsABias) {
  Generator generator(3);
  const Shape shape{2, 2, 2, 40, 140, 16, 16};
  Case c{shape, {.scale = 0.25}};
  c.bias = Array::random({2, 2, 2, 40, 140}, generator);
  std::vector<double> values = c.bias->values();
  for (std::size_t i = 0; i < values.size(); i += 3) values[i] = -std::numeric_limits<double>::infinity();
  c.bias->set(values);
  expect_agrees("a bias", c);
  // The first query of a head sees its first key alone: where that is hidden the result is NaN, as in
  // PyTorch.
  c.rule.causal = true;
  Arrays arrays(shape, DType::f32, generator);
  for (const bool hidden : {false, true}) {
    values[0] = hidden ? -std::numeric_limits<double>::infinity() : 0;
    c.bias->set(values);
    arrays.run(device_->kernels(), c);
    EXPECT_EQ(std::isnan(arrays.output.values()[0]), hidden);
  }
}

TEST_F(Attention, DropsWhatTheMaskOfTheKeyDrops) {
  for (const std::int64_t keys : {64, 130}) {
    Case c{{2, 2, 2, 45, keys, 16, 16}, {.scale = 0.25, .causal = keys == 130, .first_query = keys - 45}};
    c.keep_share = 0.7;
    expect_agrees("dropout", c);
    c.rows = {12, 5};
    expect_agrees("dropout of named samples", c);
  }
}

TEST_F(Attention, GivesTheSameBitsForAnyNumberOfThreads) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Case c{{1, 1, 2, 520, 2100, 32, 32}, {.scale = 0.2, .causal = true, .first_query = 1580}};
    c.keep_share = 0.9;
    const int before = cpu::worker_count();
    std::vector<std::vector<std::byte>> first;
    for (const int threads : {1, 2, 3, 4, 8}) {
      cpu::set_worker_count(threads);
      Generator generator(5);
      Arrays arrays(c.shape, dtype, generator);
      arrays.run(device_->kernels(), c);
      for (std::size_t i = 0; i < 5; ++i) {
        const View& view = *arrays.results()[i];
        const auto* const bytes = static_cast<const std::byte*>(view.data);
        const std::vector<std::byte> copy(
            bytes, bytes + static_cast<std::size_t>(view.numel()) * size_of(view.dtype));
        if (threads == 1) first.push_back(copy);
        EXPECT_EQ(first[i], copy) << threads << " threads, result " << i;
      }
    }
    cpu::set_worker_count(before);
  }
}

TEST_F(Attention, WritesOnlyTheGradientsThatAreWantedWhereTheyLie) {
  Generator generator(5);
  const Shape shape{2, 3, 2, 34, 34, 16, 16};
  Case c{shape, {.scale = 0.25, .causal = true}};
  Arrays dense(shape, DType::f32, generator);
  dense.run(device_->kernels(), c);
  // All of a row's queries, keys and values side by side: [B, L, G, R + 2, E].
  Array packed({2, 34, 3, 4, 16}), gradient({2, 34, 3, 4, 16});
  const auto part = [](const Array& of, std::int64_t first) {
    View view = of;
    view.data = view.as<float>() + first * 16;
    const Dims s = view.strides;
    if (first == 0) return View{view.data, DType::f32, {2, 3, 2, 34, 16}, {s[0], s[2], s[3], s[1], 1}};
    return View{view.data, DType::f32, {2, 3, 34, 16}, {s[0], s[2], s[1], 1}};
  };
  Kernels& kernels = device_->kernels();
  kernels.copy(dense.query, part(packed, 0));
  kernels.copy(dense.key, part(packed, 2));
  kernels.copy(dense.value, part(packed, 3));
  const AttentionMasks masks = c.masks();
  kernels.attention(c.rule, masks, part(packed, 0), part(packed, 2), part(packed, 3), dense.output,
                    dense.log_sums);
  kernels.fill(gradient, 17);
  kernels.attention_backward(c.rule, masks, part(packed, 0), part(packed, 2), part(packed, 3), dense.output,
                             dense.log_sums, dense.grad, part(gradient, 0), {}, part(gradient, 3));
  Array again(shape.query()), value(shape.value()), untouched(shape.key());
  kernels.copy(part(gradient, 0), again);
  kernels.copy(part(gradient, 3), value);
  kernels.copy(part(gradient, 2), untouched);
  EXPECT_EQ(again.values(), dense.grad_query.values());
  EXPECT_EQ(value.values(), dense.grad_value.values());
  EXPECT_EQ(untouched.values(), std::vector<double>(untouched.values().size(), 17));
}

TEST_F(Attention, RefusesWhatItCannotRead) {
  Generator generator(5);
  Case c{{2, 1, 1, 8, 8, 129, 16}, {}};
  Arrays wide(c.shape, DType::f32, generator);
  EXPECT_THROW(wide.run(device_->kernels(), c), UsageError);
  Case short_of_keys{{1, 1, 1, 8, 4, 16, 16}, {}};
  short_of_keys.segments = {0, 0, 0, 0};
  Arrays few(short_of_keys.shape, DType::f32, generator);
  EXPECT_THROW(few.run(device_->kernels(), short_of_keys), UsageError);
  Case half{{1, 1, 1, 8, 8, 16, 16}, {}};
  Arrays halves(half.shape, DType::f16, generator);
  EXPECT_THROW(halves.run(device_->kernels(), half), UsageError);
}

}  // namespace
}  // namespace dtrain
