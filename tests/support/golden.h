// Numbers that were recorded from another program, by name: the tensors of a safetensors file. Texts and
// options that go with them are its metadata.
#pragma once

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/checkpoint/safetensors.h"
#include "runtime/tensor/tensor.h"

namespace dtrain::test {

/// An open file of recorded numbers.
///
///     const Golden golden(DTRAIN_GOLDEN);
///     EXPECT_EQ(golden.numbers("sampler/epoch 0"), order);
class Golden {
 public:
  explicit Golden(const std::filesystem::path& path) : file_(SafetensorsFile::open(path)) {}

  bool contains(const std::string& name) const { return file_.find(name) != nullptr; }
  /// All names, in the order of the file.
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const SafetensorsEntry& entry : file_.entries()) all.push_back(entry.name);
    return all;
  }
  /// Throws std::out_of_range where there is no such tensor.
  Tensor tensor(const std::string& name) const {
    const SafetensorsEntry* const entry = file_.find(name);
    if (entry == nullptr) throw std::out_of_range(file_.path().string() + " has no " + name);
    static const std::shared_ptr<Device> cpu = make_device("cpu");
    Tensor result = Tensor::empty(entry->shape, cpu, entry->dtype);
    file_.read(*entry, {result.view().as<std::byte>(), entry->end - entry->begin});
    return result;
  }
  template <class T = double>
  std::vector<T> numbers(const std::string& name) const {
    return tensor(name).to_vector<T>();
  }
  std::string text(const std::string& key) const { return file_.metadata().at(key); }

 private:
  SafetensorsFile file_;
};

}  // namespace dtrain::test
