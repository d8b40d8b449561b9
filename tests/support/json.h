// JSON as tests read it: values by key or index. The parser is compiled once, behind this header; a test that
// includes nlohmann/json.hpp instead compiles three seconds longer.
#pragma once

#include <compare>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace dtrain::test {

template <class T>
concept JsonScalar = std::is_arithmetic_v<T> || std::same_as<T, std::string>;

/// A value of a JSON text, which lives as long as one of its values. Compares with numbers, texts and bools.
///
///     const Json summary = Json::read(run_dir / "summary.json");
///     EXPECT_EQ(summary["status"], "finished");
///     for (const Json& event : trace.at("traceEvents")) names.push_back(event.at("name"));
class Json {
 public:
  /// null
  Json() = default;
  /// Throws std::runtime_error where `text` is no JSON.
  static Json parse(std::string_view text);
  /// The same of a file. Throws std::runtime_error where it cannot be read.
  static Json read(const std::filesystem::path& file);
  /// null where `text` is no JSON: a line that a kill has torn.
  static Json parse_or_null(std::string_view text);

  bool is_null() const;
  bool is_object() const;
  bool is_integer() const;  ///< written as a whole number: 2 is one, 2.0 is not
  bool contains(std::string_view key) const;
  /// Elements of an array, or entries of an object.
  std::size_t size() const;
  bool empty() const { return size() == 0; }

  /// Throw std::out_of_range where there is no such value.
  Json at(std::string_view key) const;
  Json at(std::size_t index) const;
  Json operator[](std::string_view key) const { return at(key); }
  Json operator[](std::size_t index) const { return at(index); }
  /// The entries of an object, sorted by key.
  std::vector<std::pair<std::string, Json>> items() const;

  /// Throw std::runtime_error where the value is of another kind.
  bool boolean() const;
  double number() const;
  std::int64_t integer() const;
  std::string text() const;
  std::string dump() const;

  template <JsonScalar T>
  T get() const {
    if constexpr (std::same_as<T, std::string>) {
      return text();
    } else if constexpr (std::same_as<T, bool>) {
      return boolean();
    } else if constexpr (std::floating_point<T>) {
      return static_cast<T>(number());
    } else {
      return static_cast<T>(integer());
    }
  }
  template <class V>
  requires JsonScalar<typename V::value_type> &&(!std::same_as<V, std::string>)V get() const {
    V values;
    for (std::size_t i = 0; i < size(); ++i) values.push_back(at(i).get<typename V::value_type>());
    return values;
  }
  template <JsonScalar T>
  operator T() const {  // NOLINT: as a value is read
    return get<T>();
  }

  friend bool operator==(const Json& a, const Json& b) { return a.dump() == b.dump(); }
  friend bool operator==(const Json& a, std::string_view b) { return a.text() == b; }
  template <class T>
  requires std::is_arithmetic_v<T>
  friend bool operator==(const Json& a, T b) { return a.get<T>() == b; }
  template <class T>
  friend bool operator==(const Json& a, const std::vector<T>& b) {
    return a.get<std::vector<T>>() == b;
  }
  friend std::partial_ordering operator<=>(const Json& a, const Json& b) { return a.number() <=> b.number(); }
  template <class T>
  requires std::is_arithmetic_v<T>
  friend std::partial_ordering operator<=>(const Json& a, T b) {
    return a.number() <=> static_cast<double>(b);
  }
  friend std::ostream& operator<<(std::ostream& out, const Json& json) { return out << json.dump(); }

  /// Of the elements of an array.
  class Iterator {
   public:
    Iterator(const Json* of, std::size_t at) : of_(of), at_(at) {}
    Json operator*() const { return of_->at(at_); }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return at_ != other.at_; }

   private:
    const Json* of_;
    std::size_t at_;
  };
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size()}; }

 private:
  struct Node;  // of the parser
  Json(std::shared_ptr<const Node> root, const void* value) : root_(std::move(root)), value_(value) {}

  std::shared_ptr<const Node> root_;  ///< keeps value_ alive
  const void* value_ = nullptr;       ///< null: null
};

}  // namespace dtrain::test
