// Whether JSON is as a schema says: the part of JSON Schema (draft 2020-12) that the documentation's schemas
// use. A keyword that it does not know is an error, so that no schema promises what nobody checks.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace dtrain::test {

///     const JsonSchema schema(source_folder / "docs/events.schema.json");
///     EXPECT_EQ(schema.complaint(line), "");
class JsonSchema {
 public:
  /// Throws std::runtime_error where the file is no JSON.
  explicit JsonSchema(const std::filesystem::path& file);
  ~JsonSchema();
  JsonSchema(const JsonSchema&) = delete;
  JsonSchema& operator=(const JsonSchema&) = delete;

  /// What is wrong with `json`, and where in it; empty: nothing.
  std::string complaint(std::string_view json) const;

 private:
  struct Schema;
  std::unique_ptr<Schema> schema_;
};

}  // namespace dtrain::test
