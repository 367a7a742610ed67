/* processor_features.h -- instructions that a C compiler may have used, since it was told which processor the program
 * is for (-march): a trainer carries the list of its own, and looks at its start whether this processor has them.
 *
 * A row is the macro by which compilers tell, what the feature is called, and where CPUID has it: leaf and subleaf, the
 * word of the answer (0 to 3: eax, ebx, ecx, edx), the bit; and the bits of XCR0 without which the system does not keep
 * its registers.  On ARM the name is that in /proc/cpuinfo. */
#ifndef MPC_RUNTIME_PROCESSOR_FEATURES_H
#define MPC_RUNTIME_PROCESSOR_FEATURES_H

#include <stdbool.h>

enum { RT_XCR0_AVX = 0x6, RT_XCR0_AVX512 = 0xE6, RT_XCR0_AMX = 0x60000 };

/* clang-format off */
#if defined __x86_64__
#define RT_PROCESSOR_FEATURES(FEATURE)                                                                                 \
    FEATURE(__SSE3__, "sse3", 1, 0, 2, 0, 0)                                                                           \
    FEATURE(__PCLMUL__, "pclmul", 1, 0, 2, 1, 0)                                                                       \
    FEATURE(__SSSE3__, "ssse3", 1, 0, 2, 9, 0)                                                                         \
    FEATURE(__FMA__, "fma", 1, 0, 2, 12, RT_XCR0_AVX)                                                                  \
    FEATURE(__SSE4_1__, "sse4.1", 1, 0, 2, 19, 0)                                                                      \
    FEATURE(__SSE4_2__, "sse4.2", 1, 0, 2, 20, 0)                                                                      \
    FEATURE(__MOVBE__, "movbe", 1, 0, 2, 22, 0)                                                                        \
    FEATURE(__POPCNT__, "popcnt", 1, 0, 2, 23, 0)                                                                      \
    FEATURE(__AES__, "aes", 1, 0, 2, 25, 0)                                                                            \
    FEATURE(__AVX__, "avx", 1, 0, 2, 28, RT_XCR0_AVX)                                                                  \
    FEATURE(__F16C__, "f16c", 1, 0, 2, 29, RT_XCR0_AVX)                                                                \
    FEATURE(__LZCNT__, "lzcnt", 0x80000001, 0, 2, 5, 0)                                                                \
    FEATURE(__SSE4A__, "sse4a", 0x80000001, 0, 2, 6, 0)                                                                \
    FEATURE(__XOP__, "xop", 0x80000001, 0, 2, 11, RT_XCR0_AVX)                                                         \
    FEATURE(__FMA4__, "fma4", 0x80000001, 0, 2, 16, RT_XCR0_AVX)                                                       \
    FEATURE(__TBM__, "tbm", 0x80000001, 0, 2, 21, 0)                                                                   \
    FEATURE(__BMI__, "bmi", 7, 0, 1, 3, 0)                                                                             \
    FEATURE(__AVX2__, "avx2", 7, 0, 1, 5, RT_XCR0_AVX)                                                                 \
    FEATURE(__BMI2__, "bmi2", 7, 0, 1, 8, 0)                                                                           \
    FEATURE(__AVX512F__, "avx512f", 7, 0, 1, 16, RT_XCR0_AVX512)                                                       \
    FEATURE(__AVX512DQ__, "avx512dq", 7, 0, 1, 17, RT_XCR0_AVX512)                                                     \
    FEATURE(__ADX__, "adx", 7, 0, 1, 19, 0)                                                                            \
    FEATURE(__AVX512IFMA__, "avx512ifma", 7, 0, 1, 21, RT_XCR0_AVX512)                                                 \
    FEATURE(__AVX512PF__, "avx512pf", 7, 0, 1, 26, RT_XCR0_AVX512)                                                     \
    FEATURE(__AVX512ER__, "avx512er", 7, 0, 1, 27, RT_XCR0_AVX512)                                                     \
    FEATURE(__AVX512CD__, "avx512cd", 7, 0, 1, 28, RT_XCR0_AVX512)                                                     \
    FEATURE(__SHA__, "sha", 7, 0, 1, 29, 0)                                                                            \
    FEATURE(__AVX512BW__, "avx512bw", 7, 0, 1, 30, RT_XCR0_AVX512)                                                     \
    FEATURE(__AVX512VL__, "avx512vl", 7, 0, 1, 31, RT_XCR0_AVX512)                                                     \
    FEATURE(__AVX512VBMI__, "avx512vbmi", 7, 0, 2, 1, RT_XCR0_AVX512)                                                  \
    FEATURE(__AVX512VBMI2__, "avx512vbmi2", 7, 0, 2, 6, RT_XCR0_AVX512)                                                \
    FEATURE(__GFNI__, "gfni", 7, 0, 2, 8, 0)                                                                           \
    FEATURE(__VAES__, "vaes", 7, 0, 2, 9, RT_XCR0_AVX)                                                                 \
    FEATURE(__VPCLMULQDQ__, "vpclmulqdq", 7, 0, 2, 10, RT_XCR0_AVX)                                                    \
    FEATURE(__AVX512VNNI__, "avx512vnni", 7, 0, 2, 11, RT_XCR0_AVX512)                                                 \
    FEATURE(__AVX512BITALG__, "avx512bitalg", 7, 0, 2, 12, RT_XCR0_AVX512)                                             \
    FEATURE(__AVX512VPOPCNTDQ__, "avx512vpopcntdq", 7, 0, 2, 14, RT_XCR0_AVX512)                                       \
    FEATURE(__AVX5124VNNIW__, "avx5124vnniw", 7, 0, 3, 2, RT_XCR0_AVX512)                                              \
    FEATURE(__AVX5124FMAPS__, "avx5124fmaps", 7, 0, 3, 3, RT_XCR0_AVX512)                                              \
    FEATURE(__AVX512VP2INTERSECT__, "avx512vp2intersect", 7, 0, 3, 8, RT_XCR0_AVX512)                                  \
    FEATURE(__AMX_BF16__, "amx-bf16", 7, 0, 3, 22, RT_XCR0_AMX)                                                        \
    FEATURE(__AVX512FP16__, "avx512fp16", 7, 0, 3, 23, RT_XCR0_AVX512)                                                 \
    FEATURE(__AMX_TILE__, "amx-tile", 7, 0, 3, 24, RT_XCR0_AMX)                                                        \
    FEATURE(__AMX_INT8__, "amx-int8", 7, 0, 3, 25, RT_XCR0_AMX)                                                        \
    FEATURE(__AVXVNNI__, "avxvnni", 7, 1, 0, 4, RT_XCR0_AVX)                                                           \
    FEATURE(__AVX512BF16__, "avx512bf16", 7, 1, 0, 5, RT_XCR0_AVX512)                                                  \
    FEATURE(__AMX_FP16__, "amx-fp16", 7, 1, 0, 21, RT_XCR0_AMX)                                                        \
    FEATURE(__AVXIFMA__, "avxifma", 7, 1, 0, 23, RT_XCR0_AVX)                                                          \
    FEATURE(__AVXVNNIINT8__, "avxvnniint8", 7, 1, 3, 4, RT_XCR0_AVX)                                                   \
    FEATURE(__AVXNECONVERT__, "avxneconvert", 7, 1, 3, 5, RT_XCR0_AVX)
#elif defined __aarch64__
#define RT_PROCESSOR_FEATURES(FEATURE)                                                                                 \
    FEATURE(__ARM_FEATURE_ATOMICS, "atomics", 0, 0, 0, 0, 0)                                                           \
    FEATURE(__ARM_FEATURE_CRC32, "crc32", 0, 0, 0, 0, 0)                                                               \
    FEATURE(__ARM_FEATURE_AES, "aes", 0, 0, 0, 0, 0)                                                                   \
    FEATURE(__ARM_FEATURE_SHA2, "sha2", 0, 0, 0, 0, 0)                                                                 \
    FEATURE(__ARM_FEATURE_QRDMX, "asimdrdm", 0, 0, 0, 0, 0)                                                            \
    FEATURE(__ARM_FEATURE_COMPLEX, "fcma", 0, 0, 0, 0, 0)                                                              \
    FEATURE(__ARM_FEATURE_JCVT, "jscvt", 0, 0, 0, 0, 0)                                                                \
    FEATURE(__ARM_FEATURE_FRINT, "frint", 0, 0, 0, 0, 0)                                                               \
    FEATURE(__ARM_FEATURE_DOTPROD, "asimddp", 0, 0, 0, 0, 0)                                                           \
    FEATURE(__ARM_FEATURE_FP16_SCALAR_ARITHMETIC, "fphp", 0, 0, 0, 0, 0)                                               \
    FEATURE(__ARM_FEATURE_FP16_VECTOR_ARITHMETIC, "asimdhp", 0, 0, 0, 0, 0)                                            \
    FEATURE(__ARM_FEATURE_FP16_FML, "asimdfhm", 0, 0, 0, 0, 0)                                                         \
    FEATURE(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC, "bf16", 0, 0, 0, 0, 0)                                               \
    FEATURE(__ARM_FEATURE_MATMUL_INT8, "i8mm", 0, 0, 0, 0, 0)                                                          \
    FEATURE(__ARM_FEATURE_SVE, "sve", 0, 0, 0, 0, 0)                                                                   \
    FEATURE(__ARM_FEATURE_SVE2, "sve2", 0, 0, 0, 0, 0)
#else
#define RT_PROCESSOR_FEATURES(FEATURE)
#endif
/* clang-format on */

/* 1 of a macro that is defined as 1, 0 of one that is not defined: the latter pastes a name that is no macro, which is
 * one argument with the 1; the former two. */
#define RT_COMMA_1 0,
#define RT_SECOND(first, second, ...) second
#define RT_SECOND_OF(arguments) RT_SECOND(arguments 1, 0, 0)
#define RT_PASTE(value) RT_SECOND_OF(RT_COMMA_##value)
#define RT_IS_ONE(macro) RT_PASTE(macro)

/* Of each row, whether whoever includes this is compiled with the feature; and one more, since there may be no row. */
#define RT_NEEDED(macro, name, leaf, subleaf, word, bit, state) RT_IS_ONE(macro),
static const bool rt_needed[] = { RT_PROCESSOR_FEATURES(RT_NEEDED) false };

#endif
