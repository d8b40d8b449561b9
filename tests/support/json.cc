#include "tests/support/json.h"

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace dtrain::test {
namespace {

const nlohmann::json& node(const void* value) {
  static const nlohmann::json null;
  return value == nullptr ? null : *static_cast<const nlohmann::json*>(value);
}

[[noreturn]] void wrong_kind(const void* value, const char* expected) {
  throw std::runtime_error(std::string("JSON: expected ") + expected + ", got " + node(value).dump());
}

}  // namespace

struct Json::Node {
  nlohmann::json json;
};

Json Json::parse_or_null(std::string_view text) {
  auto root = std::make_shared<const Node>(Node{nlohmann::json::parse(text, nullptr, false)});
  if (root->json.is_discarded()) return {};
  const void* const value = &root->json;
  return {std::move(root), value};
}

Json Json::parse(std::string_view text) {
  Json parsed = parse_or_null(text);
  if (parsed.value_ == nullptr) throw std::runtime_error("no JSON: " + std::string(text.substr(0, 500)));
  return parsed;
}

Json Json::read(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) throw std::runtime_error("cannot read " + file.string());
  return parse(std::string(std::istreambuf_iterator<char>(in), {}));
}

bool Json::is_null() const { return node(value_).is_null(); }
bool Json::is_object() const { return node(value_).is_object(); }
bool Json::is_integer() const { return node(value_).is_number_integer(); }
bool Json::contains(std::string_view key) const { return node(value_).contains(std::string(key)); }
std::size_t Json::size() const { return node(value_).size(); }

Json Json::at(std::string_view key) const {
  const auto& object = node(value_);
  const auto found = object.find(std::string(key));
  if (!object.is_object() || found == object.end())
    throw std::out_of_range("JSON: no " + std::string(key) + " in " + object.dump().substr(0, 500));
  return {root_, &*found};
}

Json Json::at(std::size_t index) const {
  const auto& array = node(value_);
  if (!array.is_array() || index >= array.size())
    throw std::out_of_range("JSON: no element " + std::to_string(index) + " in " +
                            array.dump().substr(0, 500));
  return {root_, &array[index]};
}

std::vector<std::pair<std::string, Json>> Json::items() const {
  std::vector<std::pair<std::string, Json>> entries;
  for (const auto& [key, value] : node(value_).items()) entries.emplace_back(key, Json(root_, &value));
  return entries;
}

bool Json::boolean() const {
  if (!node(value_).is_boolean()) wrong_kind(value_, "true or false");
  return node(value_).get<bool>();
}

double Json::number() const {
  if (!node(value_).is_number()) wrong_kind(value_, "a number");
  return node(value_).get<double>();
}

std::int64_t Json::integer() const {
  if (!node(value_).is_number_integer()) wrong_kind(value_, "a whole number");
  return node(value_).get<std::int64_t>();
}

std::string Json::text() const {
  if (!node(value_).is_string()) wrong_kind(value_, "a text");
  return node(value_).get<std::string>();
}

std::string Json::dump() const { return node(value_).dump(); }

}  // namespace dtrain::test
