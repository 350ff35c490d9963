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

/* Call a function, the pass being its last argument, so that every pass is a loop of its own. */
#define IN_PASS(pass, function, ...)                                                               \
    ((pass) == HZB_CPU_ONLY    ? function(__VA_ARGS__, HZB_CPU_ONLY)                               \
     : (pass) == HZB_CPU_FIRST ? function(__VA_ARGS__, HZB_CPU_FIRST)                              \
     : (pass) == HZB_CPU_LAST  ? function(__VA_ARGS__, HZB_CPU_LAST)                               \
                               : function(__VA_ARGS__, HZB_CPU_MIDDLE))

/* `nans_up` is whether `better` finds a NaN that wins at the top. */
#define DEFINE_REDUCE(name, bits, better, nans_up, infinity)                                       \
    ALWAYS_INLINE void name##_as(                                                                  \
        const uint##bits##_t *restrict row, const uint##bits##_t *restrict other, int64_t count,   \
        bool nan_wins, uint##bits##_t *restrict best, enum hzb_cpu_pass pass)                      \
    {                                                                                              \
        const uint##bits##_t nans = INT##bits##_MAX - infinity;                                    \
        const uint##bits##_t turn = (uint##bits##_t)(nan_wins == nans_up ? -nans : nans);          \
        const uint##bits##_t back = (uint##bits##_t) - turn;                                       \
        for (int64_t i = 0; i < count; i++) {                                                      \
            int##bits##_t key =                                                                    \
                better(better(key##bits(row[2 * i], turn), key##bits(row[2 * i + 1], turn)),       \
                       better(key##bits(other[2 * i], turn), key##bits(other[2 * i + 1], turn)));  \
            key = pass & HZB_CPU_FIRST ? key : better(key, (int##bits##_t)best[i]);                \
            best[i] = (uint##bits##_t)(                                                            \
                pass & HZB_CPU_LAST ? mirrored##bits(turned##bits(key, back)) : key);              \
        }                                                                                          \
    }                                                                                              \
    static void name(const void *row, const void *other, int64_t count, bool nan_wins,             \
                     enum hzb_cpu_pass pass, void *best)                                           \
    {                                                                                              \
        IN_PASS(pass, name##_as, row, other, count, nan_wins, best);                               \
    }

DEFINE_REDUCE(min_of_halves, 16, min16, false, F16_INFINITY)
DEFINE_REDUCE(max_of_halves, 16, max16, true, F16_INFINITY)
DEFINE_REDUCE(min_of_words, 32, min32, false, F32_INFINITY)
DEFINE_REDUCE(max_of_words, 32, max32, true, F32_INFINITY)

/* Both bounds of words, mirrored once for the two of them. */
ALWAYS_INLINE void both_of_words_as(const uint32_t *restrict row, const uint32_t *restrict other,
                                    int64_t count, bool nan_wins, uint32_t *restrict low,
                                    uint32_t *restrict high, enum hzb_cpu_pass pass)
{
    const uint32_t nans = INT32_MAX - F32_INFINITY;
    const uint32_t up = nan_wins ? nans : -nans, down = -up;
    for (int64_t i = 0; i < count; i++) {
        const int32_t a = mirrored32((int32_t)row[2 * i]);
        const int32_t b = mirrored32((int32_t)row[2 * i + 1]);
        const int32_t c = mirrored32((int32_t)other[2 * i]);
        const int32_t d = mirrored32((int32_t)other[2 * i + 1]);
        int32_t least =
            min32(min32(turned32(a, up), turned32(b, up)), min32(turned32(c, up), turned32(d, up)));
        int32_t most = max32(max32(turned32(a, down), turned32(b, down)),
                             max32(turned32(c, down), turned32(d, down)));
        least = pass & HZB_CPU_FIRST ? least : min32(least, (int32_t)low[i]);
        most = pass & HZB_CPU_FIRST ? most : max32(most, (int32_t)high[i]);
        low[i] = (uint32_t)(pass & HZB_CPU_LAST ? mirrored32(turned32(least, down)) : least);
        high[i] = (uint32_t)(pass & HZB_CPU_LAST ? mirrored32(turned32(most, up)) : most);
    }
}

static void both_of_words(const void *row, const void *other, int64_t count, bool nan_wins,
                          enum hzb_cpu_pass pass, void *low, void *high)
{
    IN_PASS(pass, both_of_words_as, row, other, count, nan_wins, low, high);
}

/* ---- storing --------------------------------------------------------------------------------- */

ALWAYS_INLINE float float_of_bits(int32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

enum {
    F16_NORMAL = 0x38800000,
    F16_NORMAL_END = 0x47800000,
    F16_BIAS = 0x38000000,
    F16_VANISHES = 0x32800000, /* 2^-26 */
};

/* A magnitude up to where the normal range begins. Below 2^-26 nothing depends on how small it is,
   and processors compute with subnormals slowly. */
ALWAYS_INLINE float small_part(int32_t magnitude)
{
    return float_of_bits(max32(min32(magnitude, F16_NORMAL), F16_VANISHES));
}

/* What is beyond that. */
ALWAYS_INLINE int32_t normal_part(int32_t magnitude)
{
    return magnitude - min32(magnitude, F16_NORMAL);
}

/* The float16 pattern of a magnitude, toward zero, finite unless it is infinite. In the normal
   range patterns differ by the bias of the exponent; below it float16 counts multiples of 2^-24. */
ALWAYS_INLINE int32_t half_toward_zero(int32_t magnitude)
{
    const int32_t beyond = (F32_INFINITY - F16_BIAS) / (1 << 13) - F16_INFINITY;
    int32_t half = (int32_t)(small_part(magnitude) * 0x1p24f) + (normal_part(magnitude) >> 13);
    return min32(half, max32(F16_LARGEST, half - beyond));
}

/* The same to nearest, ties to even. With 13 more bits, the last of which is set too where more
   than that is lost, a pattern rounds as an integer. */
ALWAYS_INLINE int32_t half_to_nearest(int32_t magnitude)
{
    float small = small_part(magnitude);
    int32_t count = (int32_t)(small * 0x1p37f);
    int32_t lost = (float)count * 0x1p-37f != small;
    int32_t fine = (count | lost) + normal_part(magnitude);
    return min32((fine + 0x0fff + ((fine >> 13) & 1)) >> 13, F16_INFINITY);
}

ALWAYS_INLINE uint16_t half_of(int32_t bits, enum hzb_cpu_rounding rounding)
{
    const int32_t magnitude = bits & F32_MAGNITUDE;
    const bool negative = bits < 0;
    int32_t half;
    if (rounding == HZB_CPU_NEAREST) {
        half = half_to_nearest(magnitude);
    } else if (rounding == HZB_CPU_DOWN || rounding == HZB_CPU_UP) {
        /* Away from zero is the pattern after that of the next smaller number. */
        int32_t away = rounding == HZB_CPU_UP ? bits > 0 : (uint32_t)bits > (uint32_t)INT32_MIN;
        half = half_toward_zero(magnitude - away) + away;
    } else {
        half = half_toward_zero(magnitude);
        if (rounding == HZB_CPU_UNREAL_UP)
            half = min32(half + (!negative || !magnitude), F16_INFINITY);
    }
    /* Of zero no more than "unreal" makes a number, which is positive. */
    bool signs = half && (rounding != HZB_CPU_UNREAL_UP || magnitude);
    half |= signs ? (bits >> 16) & 0x8000 : 0;
    return (uint16_t)(magnitude > F32_INFINITY ? F16_NAN : half);
}

ALWAYS_INLINE void round_as(const uint32_t *restrict words, int64_t count,
                            enum hzb_cpu_rounding rounding, uint16_t *restrict halves)
{
    for (int64_t i = 0; i < count; i++)
        halves[i] = half_of((int32_t)words[i], rounding);
}

/* A loop of its own for every case. */
static void round_words(const uint32_t *words, int64_t count, enum hzb_cpu_rounding rounding,
                        uint16_t *halves)
{
#define ROUND_CASE(way)                                                                            \
    case way:                                                                                      \
        round_as(words, count, way, halves);                                                       \
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

/* ---- easy numbers ---------------------------------------------------------------------------- */

/* How an easy number is rounded: `bias` is added to the bits that are cut off and, in order to
   round to even, the last bit that stays where `even` is 1. */
struct rounding {
    int32_t bias, even;
};

static struct rounding rounding_of(enum hzb_cpu_rounding rounding)
{
    static const struct rounding of[] = {
        [HZB_CPU_DOWN] = {0, 0},           [HZB_CPU_UP] = {0x1fff, 0},
        [HZB_CPU_NEAREST] = {0x0fff, 1},   [HZB_CPU_TO_ZERO] = {0, 0},
        [HZB_CPU_UNREAL_UP] = {0x2000, 0},
    };
    return of[rounding];
}

ALWAYS_INLINE uint16_t half_of_easy(int32_t number, struct rounding rounding)
{
    int32_t fine = max32(number, F16_BIAS) - F16_BIAS;
    return (uint16_t)((fine + rounding.bias + ((fine >> 13) & rounding.even)) >> 13);
}

/* Negative where a result is, or where it lies between 0 and the range that is normal in float16.
 */
ALWAYS_INLINE int32_t unease(int32_t number)
{
    return number | (int32_t)(((uint32_t)number - F16_NORMAL) & -(uint32_t)number);
}

/* What shows that numbers are not easy: their signs, and the greatest of them. A bound that is made
   has either of them already. */
ALWAYS_INLINE bool easy_as(const int32_t *restrict row, const int32_t *restrict other,
                           int64_t count, bool low, bool high, int32_t *restrict least,
                           int32_t *restrict most, struct rounding down, struct rounding up,
                           uint16_t *restrict lows, uint16_t *restrict highs,
                           enum hzb_cpu_pass pass)
{
    int32_t greatest = 0, signs = 0;
    for (int64_t i = 0; i < count; i++) {
        const int32_t a = row[2 * i], b = row[2 * i + 1], c = other[2 * i], d = other[2 * i + 1];
        if (low) {
            int32_t number = min32(min32(a, b), min32(c, d));
            number = pass & HZB_CPU_FIRST ? number : min32(number, least[i]);
            if (pass & HZB_CPU_LAST) {
                signs |= unease(number);
                lows[i] = half_of_easy(number, down);
            } else {
                least[i] = number;
            }
        } else {
            signs |= a | b | c | d;
        }
        int32_t number = max32(max32(a, b), max32(c, d));
        greatest = max32(greatest, number);
        if (high) {
            number = pass & HZB_CPU_FIRST ? number : max32(number, most[i]);
            if (pass & HZB_CPU_LAST) {
                signs |= unease(number);
                highs[i] = half_of_easy(number, up);
            } else {
                most[i] = number;
            }
        }
    }
    return signs >= 0 && greatest < F16_NORMAL_END;
}

/* A loop of its own for every case. */
#define DEFINE_EASY(name, low, high)                                                               \
    static bool name(const void *row, const void *other, int64_t count, enum hzb_cpu_pass pass,    \
                     const struct hzb_cpu_bound bounds[2])                                         \
    {                                                                                              \
        const struct rounding down = rounding_of(bounds[0].rounding);                              \
        const struct rounding up = rounding_of(bounds[1].rounding);                                \
        return IN_PASS(pass, easy_as, row, other, count, low, high, (int32_t *)bounds[0].best,     \
                       (int32_t *)bounds[1].best, down, up, bounds[0].halves, bounds[1].halves);   \
    }
DEFINE_EASY(easy_minima, true, false)
DEFINE_EASY(easy_maxima, false, true)
DEFINE_EASY(easy_both, true, true)

/* ---- stored texels --------------------------------------------------------------------------- */

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
    .reduce_both = both_of_words,
    .easy = {easy_minima, easy_maxima, easy_both},
    .round = round_words,
    .tidy = tidy_words,
    .raise = raise_halves,
};
