/* The caller's arrays: depth frames as they lie in memory, any strides, type and byte order, their
   conversion to float32 bit patterns, and what results go to. Only this knows how a number becomes
   a depth word. */
#ifndef HZB_CORE_FRAMES_H
#define HZB_CORE_FRAMES_H

#include <stdbool.h>
#include <stdint.h>

enum hzb_scalar {
    HZB_SCALAR_F16,
    HZB_SCALAR_F32,
    HZB_SCALAR_F64,
    HZB_SCALAR_I8,
    HZB_SCALAR_U8,
    HZB_SCALAR_I16,
    HZB_SCALAR_U16,
    HZB_SCALAR_I32,
    HZB_SCALAR_U32,
    HZB_SCALAR_I64,
    HZB_SCALAR_U64,
};

#define HZB_MAX_LEADING_AXES 62

struct hzb_frames {
    const char *data; /* texel (0, 0) of frame 0 */
    enum hzb_scalar scalar;
    bool swapped; /* not the machine's byte order */
    int leading_axes;
    int64_t leading_shape[HZB_MAX_LEADING_AXES];
    int64_t leading_strides[HZB_MAX_LEADING_AXES]; /* bytes, as all strides here */
    int64_t count;                                 /* frames: the product of leading_shape */
    int64_t height, width;
    int64_t row_stride, column_stride;
};

struct hzb_buffer;

/* One array that receives a result: C-contiguous, `frame_bytes` for each frame. */
struct hzb_output {
    void *data;
    uint64_t frame_bytes;
    /* Where the array lies in memory that the device can write; NULL: it is the host's alone. */
    const struct hzb_buffer *buffer;
};

struct hzb_rect {
    uint32_t x, y, width, height;
};

/* Texel (0, 0) of one frame, frames counted in C order of the leading axes. */
const char *hzb_frames_at(const struct hzb_frames *frames, int64_t frame);

/* Write the rectangle of one frame as float32 bit patterns, `pitch` words from row to row: exact
   for float32, float16 and 8- and 16-bit integers, rounded to odd for the wider types. */
void hzb_frames_read(const struct hzb_frames *frames, int64_t frame, struct hzb_rect rect,
                     uint32_t pitch, uint32_t *words);

/* Write texels [x, x + count) of row y of one frame, as hzb_frames_read does. */
void hzb_frames_read_row(const struct hzb_frames *frames, int64_t frame, int64_t y, int64_t x,
                         int64_t count, uint32_t *words);

#endif
