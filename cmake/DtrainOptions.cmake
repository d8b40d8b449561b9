# What a user can choose at configure time, and the compiler settings that hold for every target.
include(CMakeDependentOption)
include(GNUInstallDirs)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug or RelWithDebInfo" FORCE)
endif()

option(DTRAIN_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(DTRAIN_BUILD_BENCHMARKS "Build the benchmarks in tests/bench" OFF)
option(DTRAIN_WERROR "Treat compiler warnings as errors" OFF)
option(DTRAIN_PACKAGE_BUILD
       "Build for packages: the same files from any folder, and a bill of materials; see docs/decisions/084" OFF)
set(DTRAIN_SANITIZE "" CACHE STRING "Sanitizers for every target: address,undefined or thread")

foreach(feature CUDA NCCL CUDNN MPI GLOO ONEDNN OPENMP LIBEVENT PCRE2 UTF8PROC JPEG PNG WEBP)
  set(DTRAIN_WITH_${feature} AUTO CACHE STRING "AUTO builds it when found, ON fails when it is missing, OFF leaves it out")
  set_property(CACHE DTRAIN_WITH_${feature} PROPERTY STRINGS AUTO ON OFF)
  if(NOT DTRAIN_WITH_${feature} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "DTRAIN_WITH_${feature}: expected AUTO, ON or OFF, got '${DTRAIN_WITH_${feature}}'")
  endif()
endforeach()

# A part of what is installed that says nothing else belongs to the package dtrain; folders are everybody's to read.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME dtrain)
set(CMAKE_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
    WORLD_EXECUTE)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")

find_program(DTRAIN_CCACHE ccache)
if(DTRAIN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${DTRAIN_CCACHE}")
endif()

# Every dtrain target links this privately; it is never exported.
add_library(dtrain_compile_settings INTERFACE)
# Files that are compiled together (CMAKE_UNITY_BUILD) see each other's names, and hide them without harm: GCC then looks
# at locals alone, and Clang, which has no such warning, at nothing.
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(shadow -Wshadow=local -Wno-subobject-linkage)
elseif(NOT CMAKE_UNITY_BUILD)
  set(shadow -Wshadow)
endif()
target_compile_options(dtrain_compile_settings INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;${shadow};-Wnon-virtual-dtor>"
  $<$<AND:$<BOOL:${DTRAIN_WERROR}>,$<COMPILE_LANGUAGE:CXX>>:-Werror>)
# No file says in which folder it was built. A release has neither debug information nor asserts, which would, and is
# compiled as ever, so that a compiler cache serves all working trees; the emulated machine names lines of kernels.
set(DTRAIN_MAPS_FOLDERS "")
if(DTRAIN_PACKAGE_BUILD)
  set(DTRAIN_MAPS_FOLDERS "-ffile-prefix-map=${PROJECT_BINARY_DIR}=build" "-ffile-prefix-map=${PROJECT_SOURCE_DIR}=dtrain")
  target_compile_options(dtrain_compile_settings INTERFACE
    "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<CONFIG:Release>>>:${DTRAIN_MAPS_FOLDERS}>")
endif()
if(DTRAIN_SANITIZE)
  target_compile_options(dtrain_compile_settings INTERFACE -fsanitize=${DTRAIN_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(dtrain_compile_settings INTERFACE -fsanitize=${DTRAIN_SANITIZE})
  if(DTRAIN_SANITIZE MATCHES "undefined")
    target_compile_options(dtrain_compile_settings INTERFACE -fno-sanitize-recover=all)
  endif()
endif()
