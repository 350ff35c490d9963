/* The plan of one build: level sizes, dispatches, offsets, bytes. Pure functions of options, shape
   and limits; core sees it through the operation's table. */
#ifndef HZB_OPS_HZB_PLAN_H
#define HZB_OPS_HZB_PLAN_H

#include "core/op.h"
#include "ops/hzb/options.h"

enum hzb_kernel_id {
    HZB_KERNEL_PER_LEVEL,
    HZB_KERNEL_BATCHED,
    HZB_KERNEL_TILES,       /* large tiles: those over the frame, or all that follow */
    HZB_KERNEL_SINGLE_PASS, /* both */
    HZB_KERNELS,
};
enum hzb_source {
    HZB_SOURCE_IMAGE, /* the frame, gathered from an image */
    HZB_SOURCE_INPUT, /* the frame, as float32 words */
    HZB_SOURCE_LEVEL, /* the level before the dispatch's first */
};

/* The most levels that the push constants of large tiles hold. */
#define HZB_TILE_LEVELS 24

/* The algorithm that a kernel is named by. */
const char *hzb_kernel_name(int kernel);

struct hzb_dispatch {
    int32_t kernel, source; /* the enums above */
    int32_t first, count;   /* levels written */
    uint32_t tile_shift; /* a workgroup covers 2^tile_shift texels a row of the first level, 64 in
                            all */
    uint32_t tiles_x;    /* tiles side by side over the first level; of large ones: over level 0 */
    uint32_t tiles;      /* tiles a frame, less those below */
    uint32_t blocks; /* of 4x4 pixels along a side that an invocation takes of a large tile over the
                        frame: 1, or 2 in tiles of 128x128; 0: no such tile */
    uint32_t run;    /* such tiles of padding that a further workgroup fills; 0: there are none */
    uint32_t groups[2]; /* x and y of the dispatch; frames are z */
};

struct hzb_level_size {
    uint32_t width, height;
};

struct hzb_plan {
    struct hzb_options options;
    uint32_t x, y, width, height; /* the rectangle of the frame that is reduced */
    uint32_t pitch;               /* words from row to row of the uploaded frame */
    int32_t levels, chains;
    struct hzb_level_size size[HZB_MAX_LEVELS];
    uint32_t texel_bytes; /* of a level on the device: 2, or 4 where halves are kept in words */
    uint32_t result_texel_bytes; /* of a level in the caller's array */
    uint32_t subgroup_size;      /* that pipelines require; 0: none */
    int32_t storage16, unified;  /* the device's */
    int32_t dispatch_count;
    uint32_t group_frames; /* of a submission, which takes no more memory than it must */
    uint32_t most_frames;  /* that one could take */
    struct hzb_dispatch dispatches[HZB_MAX_LEVELS];
};

/* Fill a plan for frames of this extent on a device with these limits; what a single frame cannot
   have there is HZB_VALUE_ERROR, naming limit, value and device. */
enum hzb_status hzb_plan_make(const struct hzb_options *options, const struct hzb_extent *extent,
                              int64_t frames, const struct hzb_limits *limits,
                              const char *device_name, struct hzb_plan *plan,
                              struct hzb_error *err);

/* Bytes of the frames' words, as they are uploaded. */
uint64_t hzb_plan_frame_bytes(const struct hzb_plan *plan, uint32_t frames);

/* Bytes of level `level` for `frames` frames on the device, and where it lies among the results:
   chain after chain, level after level, each at a multiple of 256. */
uint64_t hzb_plan_level_bytes(const struct hzb_plan *plan, uint32_t frames, int level);
uint64_t hzb_plan_level_offset(const struct hzb_plan *plan, uint32_t frames, int chain, int level);

/* Bytes of what large tiles hand on to one another. */
uint64_t hzb_plan_slot_bytes(const struct hzb_plan *plan, uint32_t frames);

/* Of the operation's table: which known case a plan rests on, what falls with it, that case, and
   its frame (ops/hzb/known.c). */
int hzb_known_key(const void *plan);
uint32_t hzb_known_distrust(const void *plan);
void hzb_known_make(const void *plan, struct hzb_known *known);
void hzb_known_fill(const struct hzb_known *known, uint32_t *words);

/* The operation, for core; its outputs are the levels of chain 0, then those of chain 1. */
extern const struct hzb_op hzb_op;

#endif
