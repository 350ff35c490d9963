/* Reading the caller's frames. Conversions use integers, or floating point only where it is exact
   and clear of subnormals: neither the rounding mode nor a flush-to-zero mode that somebody set
   matters. The loops over a row are plain, so that the compiler vectorises them. */
#include "core/frames.h"

#include <stdlib.h>
#include <string.h>

enum {
    F32_INFINITY = 0x7f800000,
    F32_LARGEST = 0x7f7fffff,
    F32_NAN = 0x7fc00000,
};

static inline uint32_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* `a` or `b`, both computed: the compiler keeps floating-point work in a branch of its own
   otherwise, and a loop with branches is not vectorised. */
static inline uint32_t either(bool condition, uint32_t a, uint32_t b)
{
    uint32_t mask = -(uint32_t)condition;
    return (a & mask) | (b & ~mask);
}

/* ---- numbers to float32 patterns, exactly ---------------------------------------------------- */

static inline uint32_t word_of_f32(uint32_t bits) { return bits; }

static inline uint32_t word_of_f16(uint16_t half)
{
    uint32_t magnitude = half & 0x7fffu;
    /* The exponents differ in bias; that of infinity and NaN by as much again. */
    uint32_t word = (magnitude << 13) + (magnitude < 0x7c00 ? 0x38000000 : 0x70000000);
    uint32_t subnormal = bits_of_float((float)(int32_t)magnitude * 0x1p-24f);
    return (half & 0x8000u) << 16 | either(magnitude < 0x0400, subnormal, word);
}

static inline uint32_t word_of_i32_exact(int32_t value) { return bits_of_float((float)value); }

static inline uint32_t word_of_i8(uint8_t bits) { return word_of_i32_exact((int8_t)bits); }
static inline uint32_t word_of_u8(uint8_t bits) { return word_of_i32_exact(bits); }
static inline uint32_t word_of_i16(uint16_t bits) { return word_of_i32_exact((int16_t)bits); }
static inline uint32_t word_of_u16(uint16_t bits) { return word_of_i32_exact(bits); }

/* ---- numbers to float32 patterns, rounded to odd --------------------------------------------- */

/* For doubles that are 0 or of a magnitude in float32's normal range. */
static inline uint32_t odd_of_normal(uint64_t bits)
{
    uint32_t high = (uint32_t)(bits >> 32), low = (uint32_t)bits;
    /* The exponents have their first and their last seven bits in common: the biases differ by
       7 * 128. */
    uint32_t word = ((high << 3 | low >> 29) & 0x3fffffff) | ((low & 0x1fffffff) != 0);
    return (high & 0xc0000000) | word;
}

static inline bool is_tiny(uint64_t bits)
{
    uint32_t high = (uint32_t)(bits >> 32) & 0x7fffffff;
    return high < 0x38100000 && (high | (uint32_t)bits);
}

/* For doubles that are 0 or at least 2^-126, whose last place does not depend on their size. */
static inline uint32_t word_of_f64_not_tiny(uint64_t bits)
{
    uint32_t high = (uint32_t)(bits >> 32) & 0x7fffffff;
    uint32_t special = high == 0x7ff00000 && !(uint32_t)bits ? F32_INFINITY : F32_NAN;
    uint32_t huge = high < 0x7ff00000 ? F32_LARGEST : special;
    return (uint32_t)(bits >> 32 & 0x80000000) | (high < 0x47f00000 ? odd_of_normal(bits) : huge);
}

static uint32_t word_of_f64(uint64_t bits)
{
    if (!is_tiny(bits))
        return word_of_f64_not_tiny(bits);
    /* The result counts multiples of 2^-149. */
    uint32_t sign = (uint32_t)(bits >> 32 & 0x80000000);
    uint64_t exponent = bits >> 52 & 0x7ff;
    uint64_t significand = (bits & 0xfffffffffffff) | 1ull << 52;
    if (exponent < 1023 - 149)
        return sign | 1;
    uint64_t shift = 1023 - 149 + 52 - exponent;
    uint64_t units = significand >> shift;
    return sign | (uint32_t)units | (units << shift != significand);
}

static inline uint32_t odd_of_double(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return odd_of_normal(bits);
}

static inline uint32_t word_of_i32(uint32_t bits) { return odd_of_double((int32_t)bits); }
static inline uint32_t word_of_u32(uint32_t bits) { return odd_of_double(bits); }

/* The low half of a 64-bit integer beyond 2^53: what a double cannot hold goes to its last bit. */
static inline uint32_t squeezed(uint32_t low)
{
    return (low & ~0x7ffu) | ((low & 0x7ff) != 0) << 11;
}

static inline uint32_t word_of_i64(uint64_t bits)
{
    int32_t high = (int32_t)(bits >> 32);
    uint32_t low = (uint32_t)bits;
    low = high >= 1 << 21 || high < -(1 << 21) ? squeezed(low) : low;
    return odd_of_double(high * 0x1p32 + low);
}

static inline uint32_t word_of_u64(uint64_t bits)
{
    uint32_t high = (uint32_t)(bits >> 32), low = (uint32_t)bits;
    low = high >= 1 << 21 ? squeezed(low) : low;
    return odd_of_double(high * 0x1p32 + low);
}

/* ---- rows ------------------------------------------------------------------------------------ */

typedef void row_reader(const char *restrict source, int64_t stride, int64_t count,
                        uint32_t *restrict words);

/* A reader of numbers kept as `type`, in the machine's byte order once `swap` has been applied.
   Loads go through memcpy since the source may be unaligned. A row with numbers that `convert`
   cannot do is done again by `convert_rare`. Packed rows have their own copy of the loop, which can
   load vectors. */
#define DEFINE_READER(name, type, swap, convert, is_rare, convert_rare)                            \
    static inline void name##_strided(const char *restrict source, int64_t stride, int64_t count,  \
                                      uint32_t *restrict words)                                    \
    {                                                                                              \
        type bits;                                                                                 \
        uint32_t rare = 0;                                                                         \
        for (int64_t i = 0; i < count; i++) {                                                      \
            memcpy(&bits, source + i * stride, sizeof(type));                                      \
            words[i] = convert(swap(bits));                                                        \
            rare |= is_rare(swap(bits));                                                           \
        }                                                                                          \
        for (int64_t i = 0; rare && i < count; i++) {                                              \
            memcpy(&bits, source + i * stride, sizeof(type));                                      \
            words[i] = convert_rare(swap(bits));                                                   \
        }                                                                                          \
    }                                                                                              \
    static void name(const char *restrict source, int64_t stride, int64_t count,                   \
                     uint32_t *restrict words)                                                     \
    {                                                                                              \
        if (stride == sizeof(type)) {                                                              \
            name##_strided(source, sizeof(type), count, words);                                    \
        } else {                                                                                   \
            name##_strided(source, stride, count, words);                                          \
        }                                                                                          \
    }

#define NEVER(bits) 0

#define DEFINE_READERS(scalar, type, swap)                                                         \
    DEFINE_READER(read_##scalar, type, , word_of_##scalar, NEVER, word_of_##scalar)                \
    DEFINE_READER(read_##scalar##_swapped, type, swap, word_of_##scalar, NEVER, word_of_##scalar)

DEFINE_READERS(f16, uint16_t, __builtin_bswap16)
DEFINE_READERS(f32, uint32_t, __builtin_bswap32)
DEFINE_READER(read_f64, uint64_t, , word_of_f64_not_tiny, is_tiny, word_of_f64)
DEFINE_READER(read_f64_swapped, uint64_t, __builtin_bswap64, word_of_f64_not_tiny, is_tiny,
              word_of_f64)
DEFINE_READER(read_i8, uint8_t, , word_of_i8, NEVER, word_of_i8)
DEFINE_READER(read_u8, uint8_t, , word_of_u8, NEVER, word_of_u8)
DEFINE_READERS(i16, uint16_t, __builtin_bswap16)
DEFINE_READERS(u16, uint16_t, __builtin_bswap16)
DEFINE_READERS(i32, uint32_t, __builtin_bswap32)
DEFINE_READERS(u32, uint32_t, __builtin_bswap32)
DEFINE_READERS(i64, uint64_t, __builtin_bswap64)
DEFINE_READERS(u64, uint64_t, __builtin_bswap64)

/* By scalar and `swapped`. */
static row_reader *const readers[][2] = {
    [HZB_SCALAR_F16] = {read_f16, read_f16_swapped},
    [HZB_SCALAR_F32] = {read_f32, read_f32_swapped},
    [HZB_SCALAR_F64] = {read_f64, read_f64_swapped},
    [HZB_SCALAR_I8] = {read_i8, read_i8},
    [HZB_SCALAR_U8] = {read_u8, read_u8},
    [HZB_SCALAR_I16] = {read_i16, read_i16_swapped},
    [HZB_SCALAR_U16] = {read_u16, read_u16_swapped},
    [HZB_SCALAR_I32] = {read_i32, read_i32_swapped},
    [HZB_SCALAR_U32] = {read_u32, read_u32_swapped},
    [HZB_SCALAR_I64] = {read_i64, read_i64_swapped},
    [HZB_SCALAR_U64] = {read_u64, read_u64_swapped},
};

/* ---- frames ---------------------------------------------------------------------------------- */

const char *hzb_frames_at(const struct hzb_frames *frames, int64_t frame)
{
    const char *data = frames->data;
    for (int axis = frames->leading_axes - 1; axis >= 0; axis--) {
        data += frame % frames->leading_shape[axis] * frames->leading_strides[axis];
        frame /= frames->leading_shape[axis];
    }
    return data;
}

static int64_t minimum(int64_t a, int64_t b) { return a < b ? a : b; }

void hzb_frames_read(const struct hzb_frames *frames, int64_t frame, struct hzb_rect rect,
                     uint32_t pitch, uint32_t *words)
{
    row_reader *read = readers[frames->scalar][frames->swapped];
    const int64_t row_stride = frames->row_stride, column_stride = frames->column_stride;
    const int64_t width = rect.width, height = rect.height;
    const char *origin =
        hzb_frames_at(frames, frame) + rect.y * row_stride + rect.x * column_stride;

    /* Where columns are the longer stride, neighbours in memory belong to different rows: tiles let
       each cache line that was fetched be used up while it is there. */
    bool tiled = llabs(column_stride) > llabs(row_stride);
    const int64_t tile_width = tiled ? 32 : width, tile_height = tiled ? 64 : height;
    for (int64_t top = 0; top < height; top += tile_height) {
        int64_t bottom = minimum(top + tile_height, height);
        for (int64_t left = 0; left < width; left += tile_width) {
            int64_t count = minimum(tile_width, width - left);
            for (int64_t y = top; y < bottom; y++) {
                read(origin + y * row_stride + left * column_stride, column_stride, count,
                     words + y * pitch + left);
            }
        }
    }
}

void hzb_frames_read_row(const struct hzb_frames *frames, int64_t frame, int64_t y, int64_t x,
                         int64_t count, uint32_t *words)
{
    readers[frames->scalar][frames->swapped](hzb_frames_at(frames, frame) + y * frames->row_stride +
                                                 x * frames->column_stride,
                                             frames->column_stride, count, words);
}
