// Several documents in a row: each is seen as if it were alone, forward and backward, by GPT-2's places and
// by LLaMA's angles, recomputed or not, whole or in parts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/tasks/language.h"
#include "models/text/text_model.h"
#include "models/text/transformer.h"
#include "parallel/schedule/stage_module.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using testing::HasSubstr;
using Numbers = std::vector<float>;

constexpr std::int64_t kVocabulary = 24, kContext = 12;
/// Documents of 5, 4, 1 and 2 tokens, and of 12.
const std::vector<std::int32_t> kDocuments = {0, 0, 0, 0, 0, 5, 5, 5, 5, 9, 10, 10,
                                              0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  0};
struct Piece {
  std::int64_t row, first, length;
};
const Piece kPieces[] = {{0, 0, 5}, {0, 5, 4}, {0, 9, 1}, {0, 10, 2}, {1, 0, 12}};

class Documents : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Transformer> network() const {
    TransformerShape shape = text_model(GetParam()).shape;
    shape.vocabulary = kVocabulary;
    shape.context = kContext;
    Generator generator(3);
    return std::make_unique<Transformer>(shape, generator, device_);
  }
  Tensor tokens() const {
    std::vector<std::int32_t> values;
    for (int i = 0; i < 2 * kContext; ++i) values.push_back((7 * i * i + 3 * i + 1) % kVocabulary);
    return Tensor::from_data(values, {2, kContext}, device_);
  }
  Tensor documents() const { return Tensor::from_data(kDocuments, {2, kContext}, device_); }
  Tensor of(const Piece& piece, const Tensor& x) const {
    return x.slice(0, piece.row, piece.row + 1)
        .slice(1, piece.first, piece.first + piece.length)
        .contiguous();
  }
  static Tensor loss(const Tensor& logits) { return sum(square(logits)); }
  static std::map<std::string, Numbers> gradients(Module& network, const Tensor& loss) {
    network.zero_grad();
    loss.backward();
    std::map<std::string, Numbers> found;
    for (const auto& [name, tensor] : network.named_parameters())
      if (tensor.grad().defined()) found[name] = tensor.grad().to_vector<float>();
    return found;
  }
  static void expect_near(const Numbers& a, const Numbers& b, float tolerance, const std::string& what) {
    ASSERT_EQ(a.size(), b.size()) << what;
    float largest = 0;
    for (const float value : b) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance * largest) << what;
  }

  std::shared_ptr<Device> device_ = make_device("cpu");
};

TEST_P(Documents, AreSeenAsIfEachWereAlone) {
  const auto network = this->network();
  const Tensor packed = (*network)(Tensors{tokens(), documents()}).front();
  Tensor apart;
  for (const Piece& piece : kPieces) {
    const Tensor alone = (*network)(of(piece, tokens()));
    expect_near(of(piece, packed).to_vector<float>(), alone.to_vector<float>(), 2e-6F, "logits");
    apart = apart.defined() ? add(apart, loss(alone)) : loss(alone);
  }
  const auto found = gradients(*network, loss(packed)), expected = gradients(*network, apart);
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, values] : expected) expect_near(found.at(name), values, 1e-5F, name);
  const Tensor joined = (*network)(tokens());
  EXPECT_NE(of(kPieces[1], joined).to_vector<float>(), of(kPieces[1], packed).to_vector<float>());
}

TEST_P(Documents, GiveTheSameBitsInPartsAndRecomputed) {
  const auto network = this->network();
  const Tensors inputs{tokens(), documents()};
  const Tensor expected = (*network)(inputs).front();
  const auto slopes = gradients(*network, loss(expected));
  const auto parts = network->chain();
  StageModule stages({{parts.begin(), parts.begin() + 2}, {parts.begin() + 2, parts.end()}});
  const Tensor staged = stages(inputs).front();
  EXPECT_EQ(staged.to_vector<float>(), expected.to_vector<float>());
  EXPECT_EQ(gradients(*network, loss(staged)), slopes);
  EXPECT_EQ(recompute_blocks(*network), 2);
  EXPECT_EQ(gradients(*network, loss((*network)(inputs).front())), slopes);
}

INSTANTIATE_TEST_SUITE_P(Models, Documents, testing::Values("gpt2-tiny", "llama-tiny", "transformer"));

/// A batch of one field each for tokens, documents and what is asked for.
class Asked : public testing::Test {
 protected:
  BatchTensors batch(bool masked) const {
    std::vector<Field> fields(masked ? fields_ : std::vector(fields_.begin(), fields_.begin() + 2));
    std::vector<Tensor> tensors{
        Tensor::from_data(std::vector<std::int32_t>{3, 4, 5, 6, 7, 8}, {2, 3}, device_),
        Tensor::from_data(std::vector<std::int32_t>{0, 0, 2, 0, 0, 0}, {2, 3}, device_)};
    if (masked) tensors.push_back(Tensor::from_data(asked_, {2, 3}, device_));
    return {fields, tensors};
  }
  double units(bool masked, std::vector<std::int32_t> documents = {0, 0, 2, 0, 0, 0}) const {
    std::vector<std::int32_t> tokens(6);
    std::vector<std::uint8_t> asked = asked_;
    std::vector<View> views{{tokens.data(), DType::i32, {2, 3}, {3, 1}},
                            {documents.data(), DType::i32, {2, 3}, {3, 1}},
                            {asked.data(), DType::u8, {2, 3}, {3, 1}}};
    std::vector<Field> fields = fields_;
    if (!masked) {
      fields.pop_back();
      views.pop_back();
    }
    const std::vector<std::int64_t> indices{40, 41};
    Batch batch(std::make_shared<const std::vector<Field>>(fields), views);
    batch.indices = indices;
    return task_.units(batch);
  }

  std::shared_ptr<Device> device_ = make_device("cpu");
  std::vector<std::uint8_t> asked_{0, 1, 1, 1, 0, 1};
  std::vector<Field> fields_{{.name = "tokens", .dtype = DType::i32, .shape = {3}, .values = 9},
                             {.name = "documents", .dtype = DType::i32, .shape = {3}, .values = 3},
                             {.name = "asked", .dtype = DType::u8, .shape = {3}, .values = 2}};
  Language task_{text_model("gpt2-tiny")};
};

TEST_F(Asked, TheLossIsTheMeanOfTokensThatAreAskedFor) {
  EXPECT_TRUE(task_.units_vary(fields_));
  EXPECT_FALSE(task_.units_vary({fields_.data(), 1}));
  Generator generator(1);
  const Tensor logits = Tensor::randn({2, 2, 9}, generator, device_);
  const Tensor losses = cross_entropy(logits.reshape({4, 9}),
                                      Tensor::from_data(std::vector<std::int64_t>{4, 5, 7, 8}, {4}, device_),
                                      LossReduction::none);
  const Numbers each = losses.to_vector<float>();
  EXPECT_EQ(units(false), 3);  // a document begins with token 5
  EXPECT_NEAR(task_.loss({logits}, batch(false)).item(), (each[0] + each[2] + each[3]) / 3, 1e-6);
  EXPECT_EQ(units(true), 2);
  EXPECT_NEAR(task_.loss({logits}, batch(true)).item(), (each[0] + each[3]) / 2, 1e-6);
  double sums[3] = {};
  task_.add_up({logits}, batch(true), 2, sums);
  EXPECT_NEAR(sums[0], each[0] + each[3], 1e-6);
  EXPECT_EQ(sums[2], 2);
}

TEST_F(Asked, DocumentsBeginWhereTheySay) {
  const auto refusal = [&](std::vector<std::int32_t> documents) {
    return test::message_of([&] { units(false, std::move(documents)); });
  };
  EXPECT_THAT(refusal({0, 0, 0, 1, 1, 1}), HasSubstr("sample 41: "));
  EXPECT_THAT(refusal({0, 0, 0, 1, 1, 1}), HasSubstr("so 0 at token 0, got 1"));
  EXPECT_THAT(refusal({0, 2, 2, 0, 0, 0}), HasSubstr("sample 40: "));
  EXPECT_THAT(refusal({0, 1, 0, 0, 0, 0}), HasSubstr("so 1 or 2 at token 2, got 0"));
  EXPECT_THAT(refusal({0, -1, -1, 0, 0, 0}), HasSubstr("so 0 or 1 at token 1, got -1"));
}

TEST_F(Asked, HasTheShapeOfTokens) {
  fields_[1].shape = {2};
  Generator generator(1);
  EXPECT_THAT(test::message_of([&] { task_.build(fields_, generator, device_); }),
              HasSubstr("expected documents to be integers of the shape of tokens"));
}

}  // namespace
}  // namespace dtrain
