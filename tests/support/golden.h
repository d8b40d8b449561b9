// What was recorded from another program (golden.py writes it): a tree whose long lists of numbers, and
// tables of them, are the tensors of a safetensors file, and whose other values are JSON in its metadata.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/checkpoint/safetensors.h"
#include "runtime/tensor/tensor.h"
#include "tests/support/json.h"

namespace dtrain::test {

template <class T>
inline constexpr bool kIsNumbers = false;
template <class T>
inline constexpr bool kIsNumbers<std::vector<T>> = std::is_arithmetic_v<T> && !std::same_as<T, bool>;

/// A value of the tree, by key or index, as Json has it; a table's numbers are row by row.
///
///     const Golden golden(DTRAIN_GOLDEN);
///     EXPECT_EQ(golden["sampler"][0]["order"].get<std::vector<std::int64_t>>(), order);
class Golden {
 public:
  /// The whole tree. A file without one has tensors alone.
  explicit Golden(const std::filesystem::path& path)
      : file_(std::make_shared<const SafetensorsFile>(SafetensorsFile::open(path))) {
    const auto tree = file_->metadata().find("tree");
    if (tree != file_->metadata().end()) json_ = Json::parse(tree->second);
  }

  Golden operator[](std::string_view key) const { return {file_, json_.at(key), below(key)}; }
  Golden operator[](std::size_t index) const {
    return {file_, json_.at(index), below(std::to_string(index))};
  }
  bool contains(std::string_view key) const { return json_.contains(key); }
  std::size_t size() const { return json_.size(); }
  /// The elements of a list.
  std::vector<Golden> list() const {
    std::vector<Golden> all;
    for (std::size_t i = 0; i < size(); ++i) all.push_back((*this)[i]);
    return all;
  }

  /// A value, or a list or table of numbers.
  template <class T>
  T get() const {
    if constexpr (kIsNumbers<T>) {
      if (file_->find(path_) != nullptr) return numbers<typename T::value_type>(path_);
    }
    return json_.get<T>();
  }
  template <JsonScalar T>
  operator T() const {  // NOLINT: as a value is read
    return get<T>();
  }
  std::string dump() const { return json_.dump(); }
  friend std::ostream& operator<<(std::ostream& out, const Golden& golden) {
    return out << golden.path_ << " " << golden.json_;
  }

  /// All tensors, in the order of the file, and one of them. Throws std::out_of_range where there is none.
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const SafetensorsEntry& entry : file_->entries()) all.push_back(entry.name);
    return all;
  }
  template <class T = double>
  std::vector<T> numbers(const std::string& name) const {
    const SafetensorsEntry* const entry = file_->find(name);
    if (entry == nullptr) throw std::out_of_range(file_->path().string() + " has no " + name);
    static const std::shared_ptr<Device> cpu = make_device("cpu");
    const Tensor tensor = Tensor::empty(entry->shape, cpu, entry->dtype);
    file_->read(*entry, {tensor.view().as<std::byte>(), entry->end - entry->begin});
    return tensor.to_vector<T>();
  }

 private:
  Golden(std::shared_ptr<const SafetensorsFile> file, Json json, std::string path)
      : file_(std::move(file)), json_(std::move(json)), path_(std::move(path)) {}
  std::string below(std::string_view key) const {
    return path_.empty() ? std::string(key) : path_ + "/" + std::string(key);
  }

  std::shared_ptr<const SafetensorsFile> file_;
  Json json_;
  std::string path_;
};

}  // namespace dtrain::test
