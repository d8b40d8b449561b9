#include "runtime/checkpoint/training_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/checkpoint/json/sealed_json.h"

namespace dtrain {
namespace {

nlohmann::ordered_json some_state() {
  CheckpointSeals seals;
  seals["model.safetensors"] = {100, "0123abcd"};
  TrainingState state;
  state.step = 7;
  auto json = nlohmann::ordered_json::parse(format_training_state(state, seals));
  json.erase("crc32");
  return json;
}

TrainingState parse(const nlohmann::ordered_json& json) {
  CheckpointSeals seals;
  return parse_training_state(format_sealed_json(json, "a test"), "state.json", seals);
}

TEST(TrainingState, IsReadAsItWasWritten) { EXPECT_EQ(parse(some_state()).step, 7); }

// JSON's numbers may be fractions, or too large for any integer; neither is rounded.
TEST(TrainingState, RefusesNumbersThatAreNoIntegers) {
  for (const char* where :
       {"/format", "/step", "/epoch", "/position_in_epoch", "/files/model.safetensors/bytes"}) {
    for (const auto& wrong : {nlohmann::ordered_json(1.5), nlohmann::ordered_json(1e43),
                              nlohmann::ordered_json(18446744073709551615ULL), nlohmann::ordered_json("1")}) {
      nlohmann::ordered_json json = some_state();
      json[nlohmann::ordered_json::json_pointer(where)] = wrong;
      try {
        parse(json);
        ADD_FAILURE() << where << " " << wrong << " was taken";
      } catch (const DataError& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("expected an integer, got " + wrong.dump()));
      }
    }
  }
}

TEST(TrainingState, RefusesNegativeCounts) {
  for (const char* where : {"/step", "/epoch", "/position_in_epoch", "/files/model.safetensors/bytes"}) {
    nlohmann::ordered_json json = some_state();
    json[nlohmann::ordered_json::json_pointer(where)] = -4;
    try {
      parse(json);
      ADD_FAILURE() << where << " -4 was taken";
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("expected at least 0, got -4"));
    }
  }
}

}  // namespace
}  // namespace dtrain
