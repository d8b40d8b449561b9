# Helpers that make a target the house way: warnings, include root, alias, install.

# dtrain_compile_by_folder(target): with CMAKE_UNITY_BUILD the compiler reads all sources of a folder at once, and the headers
# that they share once: half the time; see docs/decisions/057. CUDA's sources and those with compile options of their own
# are compiled one by one. Done when all folders have added their files to the target.
function(dtrain_compile_by_folder target)
  cmake_language(EVAL CODE
    "cmake_language(DEFER DIRECTORY [[${PROJECT_SOURCE_DIR}]] CALL dtrain_group_by_folder ${target})")
endfunction()
function(dtrain_group_by_folder target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  get_target_property(base ${target} SOURCE_DIR)
  foreach(source IN LISTS sources)
    if(NOT source MATCHES "[$]<|[.]cu$")
      cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${base}" NORMALIZE)
      cmake_path(GET source PARENT_PATH folder)
      cmake_path(RELATIVE_PATH folder BASE_DIRECTORY "${PROJECT_SOURCE_DIR}")
      string(REPLACE / _ folder "${folder}")
      set_property(SOURCE "${source}" TARGET_DIRECTORY ${target} PROPERTY UNITY_GROUP "${folder}")
    endif()
  endforeach()
endfunction()

# dtrain_add_library(name [INTERNAL] [ONE_BY_ONE] [SOURCES …] [PUBLIC_LINK …] [PRIVATE_LINK …]): target dtrain_<name>, alias
# dtrain::<name>. Sub-folders add their files with target_sources(dtrain_<name> PRIVATE …). It is installed as a component
# of the package; INTERNAL: only our own programs use it. ONE_BY_ONE: its sources are never compiled together, so that a
# program has those alone that it calls, and loads no library for others: what dtrain-launch is made of, which starts in
# milliseconds.
function(dtrain_add_library name)
  cmake_parse_arguments(arg "INTERNAL;ONE_BY_ONE" "" "SOURCES;PUBLIC_LINK;PRIVATE_LINK" ${ARGN})
  # Libraries of headers alone are in our object files already: nobody has to find them again.
  list(TRANSFORM arg_PRIVATE_LINK REPLACE "^(nlohmann_json::.*)$" "$<BUILD_INTERFACE:\\1>")
  set(target dtrain_${name})
  add_library(${target} STATIC ${arg_SOURCES})
  add_library(dtrain::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PUBLIC ${arg_PUBLIC_LINK} PRIVATE ${arg_PRIVATE_LINK} $<BUILD_INTERFACE:dtrain_compile_settings>)
  if(arg_ONE_BY_ONE)
    set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
  else()
    dtrain_compile_by_folder(${target})
  endif()
  if(NOT arg_INTERNAL)
    set_property(GLOBAL APPEND PROPERTY DTRAIN_LIBRARIES ${target})
  endif()
endfunction()

# dtrain_add_program(name SOURCES … LINK …): an installed program in build/<preset>/bin.
function(dtrain_add_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LINK} dtrain_compile_settings)
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)  # each command has its options and its usage, named alike
  set_property(GLOBAL APPEND PROPERTY DTRAIN_PROGRAMS ${name})
endfunction()

# dtrain_time_limit(variable s): how long a test may take, of which it needs a small part on a machine at rest; programs
# under a sanitizer or an emulator are about ten times as slow.
function(dtrain_time_limit variable seconds)
  if(DTRAIN_SANITIZE OR CMAKE_CROSSCOMPILING)
    math(EXPR seconds "${seconds} * 10")
  endif()
  set(${variable} ${seconds} PARENT_SCOPE)
endfunction()

# dtrain_compile_as_test(target): how a test's own sources are compiled; the libraries it links are optimised as always. They
# read the headers of GoogleTest from dtrain_test_support, which has read them once, and are optimised a little only.
# Together that halves the time they take.
function(dtrain_compile_as_test target)
  # GCC's warnings that follow values through inlined code see errors that are none where it inlines only a part of it.
  set(guesses -Wno-array-bounds -Wno-maybe-uninitialized -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>
    "$<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU>>:${guesses}>")
  # Without -fpch-preprocess and these settings ccache takes nothing that uses a precompiled header.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  if(CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache$")
    set_target_properties(${target} PROPERTIES
      CXX_COMPILER_LAUNCHER "/usr/bin/env;CCACHE_SLOPPINESS=pch_defines,time_macros;${CMAKE_CXX_COMPILER_LAUNCHER}")
  endif()
  if(NOT target STREQUAL dtrain_test_support)
    target_precompile_headers(${target} REUSE_FROM dtrain_test_support)
  endif()
endfunction()

# dtrain_schedule_test(test serial waits): how many tests ctest runs beside this one. tests/run.sh gives ctest three slots
# for each job: one that computes takes all three, one that mostly waits (WAITS: at most a third of a core on average)
# takes one. Those that wait have the largest cost, so that the first run of a clean clone does not end with them.
function(dtrain_schedule_test test serial waits)
  if(waits)
    set_tests_properties(${test} PROPERTIES PROCESSORS 1 COST 100)
  else()
    set_tests_properties(${test} PROPERTIES PROCESSORS 3 RUN_SERIAL ${serial})
  endif()
endfunction()

# How GoogleTest ends where it skipped all tests of a program and none failed; it returns 0 then.
set(DTRAIN_ALL_SKIPPED "  PASSED  . 0 tests\\.\n.  SKIPPED . [0-9]+ tests?, listed below:\n(.  SKIPPED . [^\n]*\n)+$")

# dtrain_add_test(name SOURCES … LINK … [TIMEOUT s] [LABELS …] [RUN_SERIAL | WAITS]): one GoogleTest program, one ctest
# test. RUN_SERIAL: it needs the machine to itself. WAITS: it mostly sleeps, for limits on time and for processes that do.
function(dtrain_add_test name)
  cmake_parse_arguments(arg "RUN_SERIAL;WAITS" "TIMEOUT" "SOURCES;LINK;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  dtrain_time_limit(arg_TIMEOUT ${arg_TIMEOUT})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LINK} dtrain_test_support GTest::gtest GTest::gmock GTest::gtest_main dtrain_compile_settings)
  dtrain_compile_as_test(${name})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}"
                       SKIP_REGULAR_EXPRESSION "${DTRAIN_ALL_SKIPPED}")
  dtrain_schedule_test(${name} ${arg_RUN_SERIAL} ${arg_WAITS})
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "DTRAIN_BIN=${PROJECT_BINARY_DIR}/bin" ${arg_ENVIRONMENT})
endfunction()

# dtrain_add_script_test(name COMMAND … [TIMEOUT s] [LABELS …] [RUN_SERIAL | WAITS]): a script that drives the real programs.
# It finds them in $DTRAIN_BIN; exit code 77 means skipped, and the script prints why.
function(dtrain_add_script_test name)
  cmake_parse_arguments(arg "RUN_SERIAL;WAITS" "TIMEOUT" "COMMAND;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  dtrain_time_limit(arg_TIMEOUT ${arg_TIMEOUT})
  add_test(NAME ${name} COMMAND ${arg_COMMAND} WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}")
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}" SKIP_RETURN_CODE 77)
  dtrain_schedule_test(${name} ${arg_RUN_SERIAL} ${arg_WAITS})
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "DTRAIN_BIN=${PROJECT_BINARY_DIR}/bin" ${arg_ENVIRONMENT})
endfunction()

# dtrain_skip_tests(REASON text LABELS … TESTS name…): tests that this build cannot have, by the names they have elsewhere.
# They are listed as skipped, and say why and what to do.
function(dtrain_skip_tests)
  cmake_parse_arguments(arg "" "REASON" "LABELS;TESTS" ${ARGN})
  foreach(test IN LISTS arg_TESTS)
    dtrain_add_script_test(${test} COMMAND bash ${PROJECT_SOURCE_DIR}/tests/support/skip.sh "${arg_REASON}"
                           LABELS ${arg_LABELS})
  endforeach()
endfunction()

# dtrain_ignore_leaks(test…): AddressSanitizer does not look for leaks there. For tests under mpirun (Open MPI keeps memory
# until the process ends, in libraries it unloads before, so that no suppression could name them) and for tests that
# count processes (the look at a process' end is done by one more).
function(dtrain_ignore_leaks)
  if(DTRAIN_SANITIZE MATCHES "address")
    set_tests_properties(${ARGN} PROPERTIES ENVIRONMENT_MODIFICATION "ASAN_OPTIONS=path_list_append:detect_leaks=0")
  endif()
endfunction()
