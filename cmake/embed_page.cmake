# cmake -DOUTPUT=FILE -DFOLDER=DIR -P embed_page.cmake: the report's page as C++ string constants. A string literal may
# have 64 KiB; each of these files is far below.
set(text "// Made by cmake/embed_page.cmake.\n#include \"runtime/metrics/report/page_parts.h\"\n\nnamespace dtrain::page_parts {\n")
foreach(part "kHtml page.html" "kStyle page.css" "kWordsScript words.js" "kFactsScript facts.js" "kLookScript look.js" "kChartScript chart.js"
        "kSectionsScript sections.js" "kPageScript page.js")
  string(REPLACE " " ";" part "${part}")
  list(GET part 0 name)
  list(GET part 1 file)
  file(READ "${FOLDER}/${file}" content)
  string(FIND "${content}" ")page\"" end)
  if(NOT end EQUAL -1)
    message(FATAL_ERROR "${FOLDER}/${file}: expected no )page\" in it: that ends the C++ string")
  endif()
  string(APPEND text "extern const std::string_view ${name};\nconst std::string_view ${name} = R\"page(${content})page\";\n")
endforeach()
string(APPEND text "}  // namespace dtrain::page_parts\n")
file(WRITE "${OUTPUT}" "${text}")
