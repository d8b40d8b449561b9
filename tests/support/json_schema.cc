// One function a keyword.
#include "tests/support/json_schema.h"

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <stdexcept>

#include "tests/support/temp_dir.h"

namespace dtrain::test {
namespace {

using Node = nlohmann::json;

bool is_of_type(const Node& value, const std::string& type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  throw std::runtime_error("JSON schema: unknown type " + type);
}

class Check {
 public:
  explicit Check(const Node& root) : root_(root) {}

  std::string of(const Node& value, const Node& schema, const std::string& at) const {
    if (schema.is_boolean()) return schema.get<bool>() ? "" : at + ": is not expected here";
    for (const auto& [keyword, operand] : schema.items()) {
      const std::string complaint = keyword_of(keyword, value, operand, schema, at);
      if (!complaint.empty()) return complaint;
    }
    return "";
  }

 private:
  std::string keyword_of(const std::string& keyword, const Node& value, const Node& operand,
                         const Node& schema, const std::string& at) const {
    for (const char* silent : {"$schema", "$defs", "title", "description"}) {
      if (keyword == silent) return "";
    }
    const auto wrong = [&] {
      return at + ": expected " + keyword + " " + operand.dump() + ", got " + value.dump();
    };
    const auto right_if = [&](bool right) { return right ? std::string() : wrong(); };
    if (keyword == "type") return right_if(has_type(value, operand));
    if (keyword == "const") return right_if(value == operand);
    if (keyword == "enum") return right_if(std::find(operand.begin(), operand.end(), value) != operand.end());
    if (keyword == "minimum") return right_if(!value.is_number() || value >= operand);
    if (keyword == "maximum") return right_if(!value.is_number() || value <= operand);
    if (keyword == "minItems") return right_if(!value.is_array() || value.size() >= operand);
    if (keyword == "pattern")
      return right_if(!value.is_string() ||
                      std::regex_search(value.get<std::string>(), std::regex(operand.get<std::string>())));
    if (keyword == "required") return required(value, operand, at);
    if (keyword == "properties") return properties(value, operand, at);
    if (keyword == "additionalProperties") return additional(value, operand, schema, at);
    if (keyword == "items") return items(value, operand, at);
    if (keyword == "oneOf") return one_of(value, operand, at);
    if (keyword == "$ref")
      return of(value, root_.at(Node::json_pointer(operand.get<std::string>().substr(1))), at);
    throw std::runtime_error("JSON schema: the keyword " + keyword + " is not checked");
  }

  static bool has_type(const Node& value, const Node& types) {
    if (types.is_string()) return is_of_type(value, types.get<std::string>());
    return std::any_of(types.begin(), types.end(),
                       [&](const Node& type) { return is_of_type(value, type.get<std::string>()); });
  }

  static std::string required(const Node& value, const Node& names, const std::string& at) {
    if (!value.is_object()) return "";
    for (const Node& name : names) {
      if (!value.contains(name.get<std::string>()))
        return at + ": expected " + name.dump() + ", which is not there: " + value.dump();
    }
    return "";
  }

  std::string properties(const Node& value, const Node& schemas, const std::string& at) const {
    if (!value.is_object()) return "";
    for (const auto& [name, schema] : schemas.items()) {
      if (!value.contains(name)) continue;
      const std::string complaint = of(value[name], schema, at + "/" + name);
      if (!complaint.empty()) return complaint;
    }
    return "";
  }

  std::string additional(const Node& value, const Node& operand, const Node& schema,
                         const std::string& at) const {
    if (!value.is_object()) return "";
    for (const auto& [name, member] : value.items()) {
      if (schema.contains("properties") && schema["properties"].contains(name)) continue;
      const std::string complaint = of(member, operand, at + "/" + name);
      if (!complaint.empty()) return complaint;
    }
    return "";
  }

  std::string items(const Node& value, const Node& schema, const std::string& at) const {
    if (!value.is_array()) return "";
    for (std::size_t i = 0; i < value.size(); ++i) {
      const std::string complaint = of(value[i], schema, at + "/" + std::to_string(i));
      if (!complaint.empty()) return complaint;
    }
    return "";
  }

  std::string one_of(const Node& value, const Node& schemas, const std::string& at) const {
    std::string complaints;
    int fit = 0;
    for (const Node& schema : schemas) {
      const std::string complaint = of(value, schema, at);
      if (complaint.empty()) ++fit;
      complaints += "\n  " + complaint;
    }
    if (fit == 1) return "";
    return at + ": fits " + std::to_string(fit) + " of oneOf's schemas, expected 1:" + complaints;
  }

  const Node& root_;
};

}  // namespace

struct JsonSchema::Schema {
  Node root;
};

JsonSchema::JsonSchema(const std::filesystem::path& file)
    : schema_(std::make_unique<Schema>(Schema{Node::parse(read_file(file))})) {}

JsonSchema::~JsonSchema() = default;

std::string JsonSchema::complaint(std::string_view json) const {
  const Node value = Node::parse(json, nullptr, false);
  if (value.is_discarded()) return "no JSON: " + std::string(json);
  return Check(schema_->root).of(value, schema_->root, "");
}

}  // namespace dtrain::test
