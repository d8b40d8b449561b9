#!/usr/bin/env bash
# Gathers what a bare GPU machine lacks for building and testing dtrain (headers, static libraries, the data set, the
# recorded numbers) from this machine's Debian packages into the ignored folder .gpu/, 64 MiB at most, which travels
# beside the sources. run.sh there finds it.
#
# usage: tests/gpu/pack.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
pack=$PWD/.gpu
prefix=$pack/prefix
libraries=/usr/lib/$(gcc -dumpmachine | sed 's/-pc-/-/;s/-unknown-/-/')
rm -rf "$pack"
mkdir -p "$prefix/include" "$prefix/lib/cmake" "$pack/data"

for header in nlohmann fmt gtest gmock zlib.h zconf.h openssl; do
  cp -rL "/usr/include/$header" "$prefix/include/"
done
cp -rL "/usr/include/${libraries##*/}/openssl/." "$prefix/include/openssl/"
[ ! -e "/usr/include/${libraries##*/}/zconf.h" ] || cp -L "/usr/include/${libraries##*/}/zconf.h" "$prefix/include/"
for library in gtest gtest_main gmock z crypto ssl; do
  cp -L "$libraries/lib$library.a" "$prefix/lib/"
done

# config NAME TARGET VERSION BODY: a CMake package of one imported target.
config() {
  mkdir -p "$prefix/lib/cmake/$1"
  {
    echo 'get_filename_component(root "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)'
    echo "$4"
    echo "set($1_FOUND ON)"
  } >"$prefix/lib/cmake/$1/$1Config.cmake"
  printf 'set(PACKAGE_VERSION %s)\nset(PACKAGE_VERSION_COMPATIBLE ON)\n' "$3" >"$prefix/lib/cmake/$1/$1ConfigVersion.cmake"
}
interface() {
  printf 'add_library(%s INTERFACE IMPORTED)\ntarget_include_directories(%s SYSTEM INTERFACE "${root}/include")\n' "$1" "$1"
}
static() {
  printf 'add_library(%s STATIC IMPORTED)\nset_target_properties(%s PROPERTIES IMPORTED_LOCATION "${root}/lib/%s" INTERFACE_INCLUDE_DIRECTORIES "${root}/include")\n' \
    "$1" "$1" "$2"
}
config nlohmann_json nlohmann_json::nlohmann_json 3.11.2 "$(interface nlohmann_json::nlohmann_json)"
config fmt fmt::fmt 9.1.0 "$(interface fmt::fmt)
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY=1)"
config GTest GTest::gtest 1.12.1 "find_package(Threads REQUIRED)
$(static GTest::gtest libgtest.a)
$(static GTest::gmock libgmock.a)
$(static GTest::gtest_main libgtest_main.a)
target_link_libraries(GTest::gtest INTERFACE Threads::Threads)
target_link_libraries(GTest::gmock INTERFACE GTest::gtest)
target_link_libraries(GTest::gtest_main INTERFACE GTest::gtest)"

cp -L /usr/share/datasets/fashion-mnist/*.gz "$pack/data/"
size=$(du -sm "$pack" | cut -f1)
echo "packed into $pack: $size MiB"
[ "$size" -le 60 ] || { echo "pack.sh: expected at most 60 MiB, got $size; leave something out" >&2; exit 1; }
