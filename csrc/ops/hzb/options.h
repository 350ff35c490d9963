/* What can be asked of an HZB, by name, and every check on it that needs no device. */
#ifndef HZB_OPS_HZB_OPTIONS_H
#define HZB_OPS_HZB_OPTIONS_H

#include "base/status.h"

#include <stdint.h>

enum hzb_bounds { HZB_BOUNDS_FURTHEST, HZB_BOUNDS_CLOSEST, HZB_BOUNDS_BOTH };
enum hzb_sizing { HZB_SIZING_POW2, HZB_SIZING_FLOOR, HZB_SIZING_CEIL };
enum hzb_rounding { HZB_ROUNDING_CONSERVATIVE, HZB_ROUNDING_NEAREST, HZB_ROUNDING_UNREAL };
enum hzb_nan { HZB_NAN_PROPAGATE, HZB_NAN_IGNORE };
enum hzb_dtype { HZB_DTYPE_FLOAT16, HZB_DTYPE_FLOAT32 };
enum hzb_algorithm {
    HZB_ALGORITHM_AUTO,
    HZB_ALGORITHM_PER_LEVEL,
    HZB_ALGORITHM_BATCHED,
    HZB_ALGORITHM_TWO_PASS,
    HZB_ALGORITHM_SINGLE_PASS,
};

/* Plain integers throughout: options are part of a plan, and plans compare as bytes. */
struct hzb_options {
    int32_t bounds, sizing, rounding, nan, dtype, algorithm; /* the enums above */
    int32_t reversed_z;
    int32_t has_view_rect, has_levels;
    int32_t lane_table;   /* for tests: kernels store lane numbers instead of depth */
    int64_t view_rect[4]; /* x0, y0, x1, y1 */
    int64_t levels;
    int64_t tile_blocks; /* for known cases and tests: struct hzb_dispatch.blocks; 0: as planned */
};

/* The documented defaults. */
void hzb_options_default(struct hzb_options *options);

/* Set bounds, sizing, rounding, nan or algorithm from its word; `argument` is its name. An unknown
   word is HZB_VALUE_ERROR and lists the known ones. */
enum hzb_status hzb_options_set(struct hzb_options *options, const char *argument,
                                const char *value, struct hzb_error *err);

/* The word that an option was set from. */
const char *hzb_options_word(const struct hzb_options *options, const char *argument);

/* The rectangle that is reduced and the number of levels, from options and the frame's size; checks
   combinations, the rectangle, zero sides, the texel limit and `levels`. */
struct hzb_extent {
    int64_t x, y, width, height;
    int levels;
};
enum hzb_status hzb_options_check(const struct hzb_options *options, int64_t width, int64_t height,
                                  struct hzb_extent *extent, struct hzb_error *err);

/* One build, as it is asked for: checked options and what they mean for the caller's frames. */
struct hzb_request {
    struct hzb_options options;
    struct hzb_extent extent;
};

/* 2^31 texels a frame at most; this many levels at most under every sizing. */
#define HZB_MAX_TEXELS (INT64_C(1) << 31)
#define HZB_MAX_LEVELS 32

/* The sides of level 0 … levels - 1 of a source side, and the number of levels of a whole chain. */
int64_t hzb_level_side(enum hzb_sizing sizing, int64_t source, int level);
int hzb_level_count(enum hzb_sizing sizing, int64_t width, int64_t height);
/* The part of a side at a level that stands for real pixels. */
int64_t hzb_covered_side(enum hzb_sizing sizing, int64_t source, int level);

/* Whether each chain (0, and 1 of "both") takes the maximum. */
bool hzb_chain_is_max(const struct hzb_options *options, int chain);
int hzb_chain_count(const struct hzb_options *options);

#endif
