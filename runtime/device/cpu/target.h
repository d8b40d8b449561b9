// For a stretch of a file that is compiled for instructions which not every machine has. The headers of
// others come before it: an inline function of theirs must not be built for such a machine and then be linked
// for all.
#pragma once

#define DTRAIN_PRAGMA(...) _Pragma(#__VA_ARGS__)
#if defined(__clang__)
#define DTRAIN_TARGET_BEGIN(features) \
  DTRAIN_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define DTRAIN_TARGET_END DTRAIN_PRAGMA(clang attribute pop)
#else
#define DTRAIN_TARGET_BEGIN(features) DTRAIN_PRAGMA(GCC push_options) DTRAIN_PRAGMA(GCC target(features))
#define DTRAIN_TARGET_END DTRAIN_PRAGMA(GCC pop_options)
#endif

#define DTRAIN_AVX2 "avx2,fma"
#define DTRAIN_AVX2_F16C "avx2,fma,f16c"
#define DTRAIN_AVX512 "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl"
