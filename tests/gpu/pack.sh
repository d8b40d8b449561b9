#!/usr/bin/env bash
# Gathers what a bare GPU machine lacks for building and testing dtrain (headers, static libraries, the data set) from this
# machine's Debian packages into the ignored folder .gpu/, 64 MiB at most with the sources, which travels beside them. run.sh
# there finds it.
#
# usage: tests/gpu/pack.sh [--built BUILD_DIR]
#   --built   what is built in BUILD_DIR (--preset ci) instead of what building needs: minutes less on the GPU machine, whose
#             libc and libstdc++ must be no older than this one's
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
pack=$PWD/.gpu
built=
case ${1:-} in
  --built) built=$(cd "${2:?"--built: expected the folder of a build"}" && pwd) ;;
  ?*) echo "pack.sh: unknown argument '$1'" >&2; exit 2 ;;
esac
rm -rf "$pack"
mkdir -p "$pack/data"
cp -L /usr/share/datasets/fashion-mnist/*.gz "$pack/data/"

# fits: what was packed is small enough to travel.
fits() {
  local size sources
  size=$(du -sm "$pack" | cut -f1)
  sources=$(git ls-files -z | du --files0-from=- -cm --apparent-size | tail -n 1 | cut -f1)
  echo "packed into $pack: $size MiB, beside $sources MiB of sources"
  [ $((size + sources)) -le 64 ] || { echo "pack.sh: expected at most 64 MiB together; leave something out" >&2; exit 1; }
}

if [ -n "$built" ]; then
  staged=$(mktemp -d)
  trap 'rm -rf "$staged"' EXIT
  mkdir "$staged"/{bin,lib,tests,libs}
  programs=("$built/bin/dtrain" "$built/bin/dtrain-launch" "$built/tests/gpu_kernels")
  cp "${programs[@]:0:2}" "$staged/bin/"
  cp "${programs[2]}" "$staged/tests/"
  cp "$built"/lib/libdtrain_cuda{,_emulated}.so "$staged/lib/"
  g++ -O2 -shared -fPIC -I/usr/local/cuda/include -o "$staged/lib/libtrace_kernels.so" tests/gpu/trace_kernels.cc -L/usr/local/cuda/lib64 -lcupti
  # The shared libraries of Debian's that the programs want, and not the compiler's own.
  ldd "${programs[@]}" | awk '$3 ~ /^\// { print $3 }' | sort -u | grep -vE '/(libc|libm|libstdc\+\+|libgcc_s)\.so' | xargs cp -Lt "$staged/libs"
  strip "$staged"/*/*
  tar -C "$staged" -c . | xz -9e >"$pack/built.tar.xz"
  fits
  exit
fi

prefix=$pack/prefix
libraries=/usr/lib/$(gcc -dumpmachine | sed 's/-pc-/-/;s/-unknown-/-/')
mkdir -p "$prefix/include" "$prefix/lib/cmake"

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

fits
