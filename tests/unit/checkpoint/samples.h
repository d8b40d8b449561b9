// Small tensors and snapshots for the checkpoint tests.
#pragma once

#include <cstring>
#include <deque>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/checkpoint/checkpoint_store.h"

namespace dtrain::test {

/// Owns arrays and hands out NamedViews of them.
class Tensors {
 public:
  template <class T>
  NamedView add(const std::string& name, Dims shape, std::vector<T> values) {
    auto& memory = memory_.emplace_back(values.size() * sizeof(T) + 1);
    if (!values.empty()) std::memcpy(memory.data(), values.data(), values.size() * sizeof(T));
    return {name, View{memory.data(), dtype_of<T>, shape, contiguous_strides(shape)}};
  }

 private:
  std::deque<std::vector<std::byte>> memory_;
};

/// The values of a saved tensor, in row-major order.
template <class T>
std::vector<T> values(const TensorFiles& files, const std::string& name) {
  const SavedTensor* tensor = files.find(name);
  if (tensor == nullptr) throw UsageError("no tensor " + name);
  std::vector<T> result(static_cast<std::size_t>(tensor->shape.product()));
  files.read(name, View{result.data(), dtype_of<T>, tensor->shape, contiguous_strides(tensor->shape)});
  return result;
}

/// A snapshot whose every value depends on `step`, about 200 bytes of tensors.
class SampleSnapshot {
 public:
  explicit SampleSnapshot(std::int64_t step, std::size_t elems = 12) {
    const auto value = static_cast<float>(step);
    std::vector<float> weight(elems);
    std::iota(weight.begin(), weight.end(), value);
    snapshot_.model = {tensors_.add<float>("conv1.weight", {static_cast<std::int64_t>(elems)}, weight),
                       tensors_.add<float>("fc2.bias", {2}, {value, -value})};
    snapshot_.optimizer = {
        tensors_.add<float>("momentum.conv1.weight", {static_cast<std::int64_t>(elems)}, weight),
        tensors_.add<std::int64_t>("step", {}, {step})};
    snapshot_.state.step = step;
    snapshot_.state.epoch = step / 10;
    snapshot_.state.position_in_epoch = step % 10;
    snapshot_.state.generators = {{"cpu", "1 2 3"}};
    snapshot_.state.schedule = {{"base_lr", 0.1}};
    snapshot_.state.config_hash = "abc";
    snapshot_.state.program_version = "0.1.0";
  }
  const Snapshot& get() const noexcept { return snapshot_; }
  Snapshot& get() noexcept { return snapshot_; }

 private:
  Tensors tensors_;
  Snapshot snapshot_;
};

/// Keeps what was logged.
class MemoryLog final : public Log {
 public:
  void write(LogLevel level, std::string_view message) noexcept override {
    const std::lock_guard lock(mutex_);
    if (level >= LogLevel::warning) text_ += std::string(message) + "\n";
  }
  std::string warnings() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

}  // namespace dtrain::test
