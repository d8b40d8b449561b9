// Round trips, and everything a hostile or damaged file can try.
#include "runtime/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "runtime/base/error.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/checkpoint/samples.h"

namespace dtrain {
namespace {

using test::TempDir;
using test::Tensors;
using test::values;
using testing::HasSubstr;

// A file made of a header as text and `data_bytes` zero bytes.
std::filesystem::path raw_file(const TempDir& folder, const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string content(8, '\0');
  std::memcpy(content.data(), &length, 8);
  const auto path = folder / "raw.safetensors";
  test::write_file(path, content + header + std::string(data_bytes, '\0'));
  return path;
}

std::string refusal(const std::filesystem::path& path, Verify verify = Verify::when_present) {
  try {
    TensorFiles::open(path, verify).check_values();
  } catch (const DataError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Safetensors, EveryDtypeAndShapeComesBack) {
  const TempDir folder;
  Tensors tensors;
  const std::vector<NamedView> saved = {
      tensors.add<std::uint8_t>("bytes", {3}, {1, 2, 255}),
      tensors.add<float>("conv1.weight", {2, 3}, {1.5F, -2.0F, 3.0F, 0.1F, -0.0F, 1e-40F}),
      tensors.add<double>("double", {1}, {0.1}),
      tensors.add<BFloat16>("half", {2}, {BFloat16(1.0F), BFloat16(-3.0F)}),
      tensors.add<std::int64_t>("scalar", {}, {std::numeric_limits<std::int64_t>::min()}),
      tensors.add<std::int32_t>("ints", {1, 2}, {7, -7}),
      tensors.add<Float16>("binary16", {2}, {Float16(1.0F), Float16(-0.1F)}),
      tensors.add<std::int16_t>("shorts", {1}, {-300}),
      tensors.add<std::int8_t>("signed bytes", {2}, {-128, 127}),
      tensors.add<Bool>("truths", {3}, {Bool(true), Bool(false), Bool(true)}),
      tensors.add<float>("empty", {0, 4}, {}),
      tensors.add<float>("naïve \"name\"\n", {1}, {4.0F}),
  };
  const auto path = folder / "x.safetensors";
  const auto seal = write_safetensors(path, saved, {{"format", "pt"}});
  EXPECT_EQ(seal.bytes, std::filesystem::file_size(path));
  EXPECT_EQ(safetensors_bytes(saved, {{"format", "pt"}}), seal.bytes);

  const auto header = SafetensorsFile::open(path, Verify::required);
  EXPECT_EQ(header.seal(), seal);
  EXPECT_EQ(header.metadata(), (SafetensorsMetadata{{"format", "pt"}}));
  for (const auto& entry : header.entries()) {
    EXPECT_EQ((header.values_at() + entry.begin) % size_of(entry.dtype), 0U) << entry.name;
  }
  const auto file = TensorFiles::open(path, Verify::required);
  file.check_values();
  ASSERT_EQ(file.tensors().size(), saved.size());
  for (const auto& tensor : saved) {
    const SavedTensor* loaded = file.find(tensor.name);
    ASSERT_NE(loaded, nullptr) << tensor.name;
    EXPECT_EQ(loaded->dtype, tensor.view.dtype);
    EXPECT_EQ(loaded->shape, tensor.view.shape);
    std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.view.numel()) * size_of(tensor.view.dtype));
    View target = tensor.view;
    target.data = bytes.data();
    file.read(tensor.name, target);
    EXPECT_EQ(bytes.empty() ? 0 : std::memcmp(bytes.data(), tensor.view.data, bytes.size()), 0)
        << tensor.name;
  }
  EXPECT_EQ(file.find("absent"), nullptr);
}

TEST(TensorFiles, RefusesTargetsThatDoNotFit) {
  const TempDir folder;
  Tensors tensors;
  write_safetensors(folder / "x", std::vector{tensors.add<float>("w", {2, 3}, {1, 2, 3, 4, 5, 6})});
  const auto file = TensorFiles::open(folder / "x");
  float memory[6];
  const auto view = [&](const Dims& shape, DType dtype = DType::f32) {
    return View{memory, dtype, shape, contiguous_strides(shape)};
  };
  View turned = view({2, 3});
  turned.strides = {1, 2};
  EXPECT_THROW(file.read("v", view({2, 3})), UsageError);
  EXPECT_THROW(file.read("w", view({3, 2})), UsageError);
  EXPECT_THROW(file.read("w", view({2, 3}, DType::i32)), UsageError);
  EXPECT_THROW(file.read("w", turned), UsageError);
  EXPECT_THROW(file.read("w", TensorShard::elements({6}, 0, 2), view({2})), UsageError);
  EXPECT_THROW(file.read("w", TensorShard::elements({2, 3}, 0, 2), view({3})), UsageError);
  file.read("w", TensorShard::elements({2, 3}, 2, 3), view({3}));
  EXPECT_EQ(std::vector<float>(memory, memory + 3), (std::vector<float>{3, 4, 5}));
  file.read("w", TensorShard::slice({2, 3}, 1, 1, 3), view({2, 2}));
  EXPECT_EQ(std::vector<float>(memory, memory + 4), (std::vector<float>{2, 3, 5, 6}));
}

// Through a mapping this was a SIGBUS, as a bad sector was.
TEST(TensorFiles, AFileThatIsCutWhileItIsReadIsAnError) {
  const TempDir folder;
  Tensors tensors;
  const auto path = folder / "x";
  write_safetensors(path, std::vector{tensors.add<float>("w", {4096}, std::vector<float>(4096, 1.0F))});
  const auto file = TensorFiles::open(path);
  std::filesystem::resize_file(path, 4096);
  try {
    values<float>(file, "w");
    FAIL() << "read what is not there";
  } catch (const DataError& error) {
    EXPECT_EQ(error.offset_bytes(), 4096);
    EXPECT_THAT(error.what(), HasSubstr("the end of the file"));
  }
}

TEST(Safetensors, NoTensorsAtAll) {
  const TempDir folder;
  write_safetensors(folder / "none", {});
  EXPECT_TRUE(TensorFiles::open(folder / "none", Verify::required).tensors().empty());
}

TEST(Safetensors, RefusesToWriteWhatCannotBeRead) {
  const TempDir folder;
  Tensors tensors;
  const NamedView good = tensors.add<float>("a", {2, 2}, {1, 2, 3, 4});
  NamedView turned = good;
  turned.view.strides = {1, 2};
  NamedView nowhere = good;
  nowhere.view.data = nullptr;
  const auto write = [&](const std::vector<NamedView>& list, const SafetensorsMetadata& metadata = {}) {
    write_safetensors(folder / "bad", list, metadata);
  };
  EXPECT_THROW(write({good, good}), UsageError);
  EXPECT_THROW(write({turned}), UsageError);
  EXPECT_THROW(write({nowhere}), UsageError);
  EXPECT_THROW(write({{"", good.view}}), UsageError);
  EXPECT_THROW(write({{"__metadata__", good.view}}), UsageError);
  EXPECT_THROW(write({{"\xff", good.view}}), UsageError);
  EXPECT_THROW(write({good}, {{"dtrain.header_crc32", "x"}}), UsageError);
  EXPECT_THROW(write({good}, {{"k", std::string(kMaxSafetensorsHeaderBytes, 'x')}}), UsageError);
  EXPECT_FALSE(std::filesystem::exists(folder / "bad"));
  test::write_file(folder / "taken", "x");
  EXPECT_THROW(write_safetensors(folder / "taken", {}), SystemError);
}

TEST(Safetensors, ReadsForeignFilesWithoutChecksums) {
  const TempDir folder;
  const auto path = raw_file(
      folder,
      R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})",
      9);
  EXPECT_EQ(values<float>(TensorFiles::open(path), "w"), (std::vector<float>{0, 0}));
  EXPECT_THAT(refusal(path, Verify::required), HasSubstr("dtrain.header_crc32"));
}

TEST(Safetensors, RefusesHeadersThatLie) {
  struct Case {
    const char* header;
    std::size_t data_bytes;
    const char* says;
  };
  const Case cases[] = {
      {"", 0, "begins with '{'"},
      {"[1]", 0, "begins with '{'"},
      {"{", 0, "JSON"},
      {"{} x", 0, "JSON"},
      {R"({"a":1})", 0, "with dtype, shape and data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, "'a' twice"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4, "'dtype' twice"},
      {R"({"a":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}})", 4, "with dtype F32"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "of 8 bytes"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "unsigned"},
      {R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4, "unsigned"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "[begin, end]"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}})", 4, "[begin, end]"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551619]}})", 4, "unsigned"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4]}})", 4, "2^63"},
      {R"({"a":{"dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}})", 0, "2^63"},
      {R"({"a":{"dtype":"U8","shape":[4611686018427387904,2,0],"data_offsets":[0,0]}})", 0, "2^63"},
      {R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1, "8 dimensions"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "to begin at 0"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, "to begin at 4"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3, "4 bytes of values"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5, "4 bytes of values"},
      {R"({"__metadata__":{"k":1}})", 0, "metadata 'k' to be a string"},
      {R"({"__metadata__":{"dtrain.crc32.gone":"00000000"}})", 0, "without its tensor"},
      {R"({"a":{"dtype":"F32","shape":[[[[1]]]],"data_offsets":[0,4]}})", 4, "deep"},
  };
  for (const auto& [header, data_bytes, says] : cases) {
    const TempDir folder;
    EXPECT_THAT(refusal(raw_file(folder, header, data_bytes)), HasSubstr(says)) << header;
  }
}

// JSON parsers that take a NUL for the end would not see what is behind it.
TEST(Safetensors, RefusesBytesBehindANul) {
  for (const std::string& behind :
       {std::string("\0", 1), std::string("\0,\"hidden\":1}", 13), std::string(" \0 ", 3)}) {
    const TempDir folder;
    EXPECT_THAT(refusal(raw_file(folder, "{}" + behind, 0)), HasSubstr("NUL byte")) << behind.size();
  }
}

TEST(Safetensors, RefusesLengthsOutsideTheFile) {
  const TempDir folder;
  for (const std::string& content :
       {std::string(), std::string("1234567"), std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}"),
        std::string("\x03\0\0\0\0\0\0\0{}", 10)}) {
    test::write_file(folder / "f", content);
    EXPECT_THAT(refusal(folder / "f"), HasSubstr("header length"));
  }
  EXPECT_THAT(refusal(folder.path()), HasSubstr("regular file"));
  EXPECT_THAT(refusal(folder / "absent"), HasSubstr("No such file"));
}

TEST(Safetensors, FilesOfTorchSaveAreNamed) {
  const TempDir folder;
  const auto path = folder / "model.pt";
  test::write_file(path, "PK\x03\x04" + std::string(60, '\0'));
  EXPECT_THAT(refusal(path), testing::AllOf(HasSubstr("as torch.save writes"), HasSubstr("save_file")));
  test::write_file(path, "\x80\x02" + std::string(60, 'x'));
  EXPECT_THAT(refusal(path), HasSubstr("a Python pickle"));
}

TEST(Safetensors, DamageIsNamed) {
  const TempDir folder;
  Tensors tensors;
  const auto path = folder / "x";
  write_safetensors(path, std::vector{tensors.add<float>("fc2.bias", {2}, {1, 2})});
  std::string content = test::read_file(path);
  const std::size_t offset = content.size() - 8;
  content.back() ^= 1;
  test::write_file(path, content);
  try {
    TensorFiles::open(path).check_values();
    FAIL() << "accepted";
  } catch (const DataError& error) {
    EXPECT_EQ(error.path(), path.string());
    EXPECT_EQ(error.offset_bytes(), static_cast<std::int64_t>(offset));
    EXPECT_THAT(error.what(), HasSubstr("'fc2.bias'"));
    EXPECT_THAT(error.what(), HasSubstr("expected crc32"));
  }
}

TEST(Safetensors, PyTorchReadsIt) {
  const char* python = std::getenv("DTRAIN_PEER_PYTHON");
  if (python == nullptr) GTEST_SKIP() << "set DTRAIN_PEER_PYTHON to a python that has torch and safetensors";
  const TempDir folder;
  Tensors tensors;
  const std::vector<NamedView> saved = {
      tensors.add<std::uint8_t>("bytes", {3}, {1, 2, 255}),
      tensors.add<float>("conv1.weight", {2, 3}, {1.5F, -2, 3, 0.25F, 5, 6}),
      tensors.add<BFloat16>("half", {2}, {BFloat16(1.0F), BFloat16(-3.0F)}),
      tensors.add<std::int64_t>("scalar", {}, {-5}),
      tensors.add<double>("double", {1}, {0.1}),
      tensors.add<std::int32_t>("ints", {1, 2}, {7, -7}),
      tensors.add<Float16>("binary16", {2}, {Float16(1.0F), Float16(-0.25F)}),
      tensors.add<std::int16_t>("shorts", {1}, {-300}),
      tensors.add<std::int8_t>("signed bytes", {2}, {-128, 127}),
      tensors.add<Bool>("truths", {2}, {Bool(true), Bool(false)}),
      tensors.add<float>("empty", {0, 4}, {}),
  };
  const auto ours = folder / "ours.safetensors";
  const auto theirs = folder / "theirs.safetensors";
  write_safetensors(ours, saved, {{"format", "pt"}});
  const std::string script = R"(
import sys, torch
from safetensors.torch import load_file, save_file
t = load_file(sys.argv[1])
assert t["conv1.weight"].tolist() == [[1.5, -2, 3], [0.25, 5, 6]] and t["conv1.weight"].dtype == torch.float32
assert t["bytes"].tolist() == [1, 2, 255] and t["half"].tolist() == [1, -3] and t["half"].dtype == torch.bfloat16
assert t["scalar"].item() == -5 and t["scalar"].shape == () and t["double"].tolist() == [0.1]
assert t["ints"].tolist() == [[7, -7]] and t["empty"].shape == (0, 4) and len(t) == 11
assert t["binary16"].tolist() == [1, -0.25] and t["binary16"].dtype == torch.float16
assert t["shorts"].tolist() == [-300] and t["shorts"].dtype == torch.int16
assert t["signed bytes"].tolist() == [-128, 127] and t["signed bytes"].dtype == torch.int8
assert t["truths"].tolist() == [True, False] and t["truths"].dtype == torch.bool
save_file(t, sys.argv[2], {"format": "pt"})
)";
  const auto result = test::run({python, "-c", script, ours, theirs});
  ASSERT_EQ(result.exit_code, 0) << result.err;

  const auto file = TensorFiles::open(theirs);
  ASSERT_EQ(file.tensors().size(), saved.size());
  EXPECT_EQ(values<float>(file, "conv1.weight"), (std::vector<float>{1.5F, -2, 3, 0.25F, 5, 6}));
  EXPECT_EQ(values<std::int64_t>(file, "scalar"), (std::vector<std::int64_t>{-5}));
}

}  // namespace
}  // namespace dtrain
