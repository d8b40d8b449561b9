#include "worker/choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

#include "models/text/likelihood.h"
#include "runtime/base/error.h"
#include "runtime/base/options.h"

namespace dtrain {
namespace {

using Json = nlohmann::json;

/// The one of two names that `object` has; null where it has neither.
const Json* either(const Json& object, const char* name, const char* other) {
  if (!object.is_object()) return nullptr;
  const auto found = object.contains(name) ? object.find(name) : object.find(other);
  return found == object.end() ? nullptr : &*found;
}

/// Nothing for an object that is no question.
std::optional<Question> question_of(const Json& object) {
  const Json *const text = either(object, "query", "ctx"),
                    *const choices = either(object, "choices", "endings"),
                    *const right = either(object, "gold", "label");
  if (text == nullptr || choices == nullptr || right == nullptr) return std::nullopt;
  const bool texts = choices->is_array() && choices->size() > 1 &&
                     std::ranges::all_of(*choices, [](const Json& each) { return each.is_string(); });
  // HellaSwag's are in quotes.
  const auto number = right->is_string()           ? parse_integer(right->get<std::string>())
                      : right->is_number_integer() ? std::optional(right->get<std::int64_t>())
                                                   : std::nullopt;
  if (!text->is_string() || !texts || !number || *number < 0 ||
      *number >= static_cast<std::int64_t>(choices->size()))
    return std::nullopt;
  return Question{text->get<std::string>(), choices->get<std::vector<std::string>>(),
                  static_cast<std::size_t>(*number)};
}

/// As lm-evaluation-harness has it: spaces that end the question belong to the answer, and the tokens of the
/// answer are those that the whole has more than the question.
Continuation continuation_of(const std::string& question, const std::string& choice, const Words& words) {
  const std::size_t end = question.find_last_not_of(" \t\r\n") + 1;  // 0: nothing else
  Continuation made{words.encode(question.substr(0, end)), {}};
  const std::vector<std::int32_t> whole = words.encode(question + " " + choice);
  const std::size_t before = std::min(made.context.size(), whole.size() - 1);
  made.text.assign(whole.begin() + static_cast<std::ptrdiff_t>(before), whole.end());
  if (made.context.empty()) {
    if (!words.end()) throw UsageError("--choices: expected questions that are not empty, got one that is");
    made.context = {*words.end()};
  }
  return made;
}

/// Letters as Python counts them: code points.
double letters(const std::string& text) {
  const auto begins = [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; };
  return std::max<double>(1, static_cast<double>(std::ranges::count_if(text, begins)));
}

}  // namespace

std::vector<Question> read_questions(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw DataError(path, -1, "a file of questions", "none that can be read");
  std::vector<Question> questions;
  std::int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const auto question = question_of(Json::parse(line, nullptr, false));
    if (!question) {
      throw DataError(
          path, -1,
          "an object with query, choices (two texts or more) and gold (the number of the right one, "
          "from 0), or ctx, endings and label",
          fmt::format("line {}: {}", number, line.substr(0, 80)));
    }
    questions.push_back(*question);
  }
  if (questions.empty()) throw DataError(path, -1, "at least one question", "none");
  return questions;
}

ChoicesResult answer(const LanguageModel& model, const Words& words, const std::vector<Question>& questions,
                     std::int64_t batch_size, Communicator& communicator, const Deadline& deadline) {
  std::vector<const Question*> own;
  std::vector<Continuation> asked;
  for (auto i = static_cast<std::size_t>(communicator.rank()); i < questions.size();
       i += static_cast<std::size_t>(communicator.size())) {
    own.push_back(&questions[i]);
    for (const std::string& choice : questions[i].choices)
      asked.push_back(continuation_of(questions[i].text, choice, words));
  }
  const std::vector<Likelihood> found = likelihoods(model.transformer(), asked, batch_size);
  std::array<double, 3> right{};
  std::size_t first = 0;
  for (const Question* question : own) {
    std::array<std::vector<double>, 3> scores;
    for (std::size_t i = 0; i < question->choices.size(); ++i) {
      const double log = found[first + i].log;
      scores[0].push_back(log);
      scores[1].push_back(log / letters(question->choices[i]));
      scores[2].push_back(log / static_cast<double>(asked[first + i].text.size()));
    }
    for (std::size_t way = 0; way < 3; ++way) {
      const auto best = std::ranges::max_element(scores[way]) - scores[way].begin();
      if (static_cast<std::size_t>(best) == question->right) ++right[way];
    }
    first += question->choices.size();
  }
  communicator
      .all_reduce({.data = right.data(), .count = right.size(), .dtype = DType::f64}, ReduceOp::sum,
                  "choices")
      ->wait(deadline);
  const auto count = static_cast<double>(questions.size());
  return {right[0] / count, right[1] / count, right[2] / count, static_cast<std::int64_t>(questions.size())};
}

}  // namespace dtrain
