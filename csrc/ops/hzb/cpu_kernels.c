/* Plain loops for the compiler to vectorise, compiled once for each instruction set: HZB_ISA is its
   name. Numbers are handled as integer bit patterns; floating point is used only where it is exact
   and clear of subnormals, so that rounding and flush-to-zero modes do not matter. */
#include "ops/hzb/cpu_kernels.h"

#include <string.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum {
    F16_INFINITY = 0x7c00,
    F16_LARGEST = 0x7bff,
    F16_NAN = 0x7e00,
    F32_INFINITY = 0x7f800000,
    F32_NAN = 0x7fc00000,
    F32_MAGNITUDE = 0x7fffffff,
};

/* ---- minima and maxima ----------------------------------------------------------------------- */

/* Keys are signed integers that order as the numbers do. Negative patterns are mirrored; NaN, which
   then lies at both ends, is brought to one end by a turn round the circle of integers: by the
   number of its positive patterns, up to have all NaN at the bottom, down to have it at the top. */
#define DEFINE_KEYS(bits)                                                                          \
    ALWAYS_INLINE int##bits##_t mirrored##bits(int##bits##_t number)                               \
    {                                                                                              \
        return (int##bits##_t)(number ^ ((number >> (bits - 1)) & INT##bits##_MAX));               \
    }                                                                                              \
    ALWAYS_INLINE int##bits##_t turned##bits(int##bits##_t number, uint##bits##_t turn)            \
    {                                                                                              \
        return (int##bits##_t)(uint##bits##_t)((uint##bits##_t)number + turn);                     \
    }                                                                                              \
    ALWAYS_INLINE int##bits##_t key##bits(uint##bits##_t pattern, uint##bits##_t turn)             \
    {                                                                                              \
        return turned##bits(mirrored##bits((int##bits##_t)pattern), turn);                         \
    }                                                                                              \
    ALWAYS_INLINE int##bits##_t min##bits(int##bits##_t a, int##bits##_t b)                        \
    {                                                                                              \
        return a < b ? a : b;                                                                      \
    }                                                                                              \
    ALWAYS_INLINE int##bits##_t max##bits(int##bits##_t a, int##bits##_t b)                        \
    {                                                                                              \
        return a > b ? a : b;                                                                      \
    }

DEFINE_KEYS(16)
DEFINE_KEYS(32)

/* `nans_up` is whether `better` finds a NaN that wins at the top. */
#define DEFINE_REDUCE(name, bits, better, nans_up, infinity)                                       \
    ALWAYS_INLINE void name##_as(const uint##bits##_t *restrict row, int64_t count, bool nan_wins, \
                                 enum hzb_cpu_pass pass, uint##bits##_t *restrict best)            \
    {                                                                                              \
        const uint##bits##_t nans = INT##bits##_MAX - infinity;                                    \
        const uint##bits##_t turn = (uint##bits##_t)(nan_wins == nans_up ? -nans : nans);          \
        const uint##bits##_t back = (uint##bits##_t) - turn;                                       \
        for (int64_t i = 0; i < count; i++) {                                                      \
            int##bits##_t even = key##bits(row[2 * i], turn);                                      \
            int##bits##_t key = better(even, key##bits(row[2 * i + 1], turn));                     \
            key = pass == HZB_CPU_FIRST ? key : better(key, (int##bits##_t)best[i]);               \
            best[i] = (uint##bits##_t)(                                                            \
                pass == HZB_CPU_LAST ? mirrored##bits(turned##bits(key, back)) : key);             \
        }                                                                                          \
    }                                                                                              \
    static void name(const void *row, int64_t count, bool nan_wins, enum hzb_cpu_pass pass,        \
                     void *best)                                                                   \
    {                                                                                              \
        if (pass == HZB_CPU_FIRST) {                                                               \
            name##_as(row, count, nan_wins, HZB_CPU_FIRST, best);                                  \
        } else if (pass == HZB_CPU_LAST) {                                                         \
            name##_as(row, count, nan_wins, HZB_CPU_LAST, best);                                   \
        } else {                                                                                   \
            name##_as(row, count, nan_wins, HZB_CPU_MIDDLE, best);                                 \
        }                                                                                          \
    }

DEFINE_REDUCE(min_of_halves, 16, min16, false, F16_INFINITY)
DEFINE_REDUCE(max_of_halves, 16, max16, true, F16_INFINITY)
DEFINE_REDUCE(min_of_words, 32, min32, false, F32_INFINITY)
DEFINE_REDUCE(max_of_words, 32, max32, true, F32_INFINITY)

ALWAYS_INLINE bool reduce_plain_as(const int32_t *restrict row, int64_t count, bool more,
                                   int32_t *restrict low, int32_t *restrict high)
{
    int32_t least = 0, most = 0;
    for (int64_t i = 0; i < count; i++) {
        int32_t lowest = min32(row[2 * i], row[2 * i + 1]);
        int32_t highest = max32(row[2 * i], row[2 * i + 1]);
        least = min32(least, lowest);
        most = max32(most, highest);
        low[i] = more ? min32(low[i], lowest) : lowest;
        high[i] = more ? max32(high[i], highest) : highest;
    }
    return least >= 0 && most <= F32_INFINITY;
}

static bool reduce_plain(const uint32_t *row, int64_t count, bool more, uint32_t *low,
                         uint32_t *high)
{
    const int32_t *numbers = (const int32_t *)row;
    int32_t *lows = (int32_t *)low, *highs = (int32_t *)high;
    return more ? reduce_plain_as(numbers, count, true, lows, highs)
                : reduce_plain_as(numbers, count, false, lows, highs);
}

/* ---- storing --------------------------------------------------------------------------------- */

ALWAYS_INLINE int32_t bits_of_float(float value)
{
    int32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

ALWAYS_INLINE float float_of_bits(int32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* What is known of the numbers of a row: the more, the less there is to do. */
enum range {
    ANY,
    PLAIN,
    EASY, /* plain, and zero or in the range that is normal in float16, its end rounded up */
};

enum { F16_NORMAL = 0x38800000, F16_NORMAL_END = 0x47800000, F16_BIAS = 0x38000000 };

/* The float16 pattern of a magnitude with 13 more bits, the last of which is set too where more
   than that is lost: so it rounds as an integer. In the normal range patterns differ by the bias of
   the exponent. Below it, where float16 has steps of 2^-24, this counts multiples of 2^-37. */
ALWAYS_INLINE int32_t fine_half(int32_t magnitude, enum range range)
{
    if (range == EASY)
        return max32(magnitude, F16_BIAS) - F16_BIAS;
    int32_t small = min32(magnitude, F16_NORMAL);
    int32_t count = (int32_t)(float_of_bits(small) * 0x1p37f);
    int32_t lost = bits_of_float((float)count * 0x1p-37f) != small;
    return (count | lost) + (magnitude - small);
}

ALWAYS_INLINE uint16_t half_of(int32_t bits, enum hzb_cpu_rounding rounding, enum range range)
{
    int32_t magnitude = bits & F32_MAGNITUDE;
    bool negative = range == ANY && bits < 0;
    bool outward = rounding == HZB_CPU_NEAREST || (rounding == HZB_CPU_DOWN && negative) ||
                   (rounding == HZB_CPU_UP && !negative);

    int32_t fine = fine_half(magnitude, range);
    int32_t bias = rounding == HZB_CPU_NEAREST ? 0x0fff + ((fine >> 13) & 1) : outward ? 0x1fff : 0;
    bool infinite = range != EASY && magnitude == F32_INFINITY;
    int32_t half = min32((fine + bias) >> 13, outward || infinite ? F16_INFINITY : F16_LARGEST);
    if (rounding == HZB_CPU_UNREAL_UP)
        half = min32(half + (!negative || !magnitude), F16_INFINITY);
    if (range == ANY) {
        half |= half && magnitude ? (bits >> 16) & 0x8000 : 0;
        half = magnitude > F32_INFINITY ? F16_NAN : half;
    }
    return (uint16_t)half;
}

ALWAYS_INLINE void round_as(const uint32_t *restrict words, int64_t count,
                            enum hzb_cpu_rounding rounding, enum range range,
                            uint16_t *restrict halves)
{
    for (int64_t i = 0; i < count; i++)
        halves[i] = half_of((int32_t)words[i], rounding, range);
}

static enum range range_of_plain(const uint32_t *words, int64_t count)
{
    int32_t least = F16_NORMAL, most = 0;
    for (int64_t i = 0; i < count; i++) {
        int32_t number = (int32_t)words[i];
        least = min32(least, number ? number : F16_NORMAL);
        most = max32(most, number);
    }
    return least >= F16_NORMAL && most < F16_NORMAL_END ? EASY : PLAIN;
}

/* A loop of its own for every case. */
static void round_words(const uint32_t *words, int64_t count, enum hzb_cpu_rounding rounding,
                        bool plain, uint16_t *halves)
{
    const enum range range = plain ? range_of_plain(words, count) : ANY;
#define ROUND_CASE(way)                                                                            \
    case way:                                                                                      \
        if (range == EASY) {                                                                       \
            round_as(words, count, way, EASY, halves);                                             \
        } else if (range == PLAIN) {                                                               \
            round_as(words, count, way, PLAIN, halves);                                            \
        } else {                                                                                   \
            round_as(words, count, way, ANY, halves);                                              \
        }                                                                                          \
        break
    switch (rounding) {
        ROUND_CASE(HZB_CPU_DOWN);
        ROUND_CASE(HZB_CPU_UP);
        ROUND_CASE(HZB_CPU_NEAREST);
        ROUND_CASE(HZB_CPU_TO_ZERO);
        ROUND_CASE(HZB_CPU_UNREAL_UP);
    }
#undef ROUND_CASE
}

static void tidy_words(uint32_t *words, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        int32_t magnitude = (int32_t)words[i] & F32_MAGNITUDE;
        words[i] = magnitude > F32_INFINITY ? F32_NAN : magnitude ? words[i] : 0;
    }
}

static void raise_halves(uint16_t *halves, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        halves[i] = (uint16_t)(halves[i] + (halves[i] < F16_INFINITY));
}

/* ---- the table ------------------------------------------------------------------------------- */

#define JOIN(a, b) a##b
#define TABLE(isa) JOIN(hzb_cpu_kernels_, isa)

const struct hzb_cpu_kernels TABLE(HZB_ISA) = {
    .reduce = {{min_of_halves, max_of_halves}, {min_of_words, max_of_words}},
    .reduce_plain = reduce_plain,
    .round = round_words,
    .tidy = tidy_words,
    .raise = raise_halves,
};
