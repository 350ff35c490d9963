/* All that an operation offers to core. It comes as a request, which says what is to be computed
   and knows no device. A Vulkan device needs a plan of it: what one submission needs, how it is
   recorded and how its results leave. The processor takes the request as it is. */
#ifndef HZB_CORE_OP_H
#define HZB_CORE_OP_H

#include "base/hooks.h"
#include "core/frames.h"
#include "vulkan/commands.h"

/* What one submission of `frames` frames needs on a device. */
struct hzb_needs {
    uint64_t upload_bytes;  /* float32 words of the frames' rectangles, frame after frame */
    uint64_t device_bytes;  /* device memory beside upload and results; 0: none */
    uint64_t scratch_bytes; /* device memory for the kernels alone; 0: none */
    uint64_t result_bytes;  /* device memory that holds the results, read back as a whole */
    uint32_t dispatches;
    uint32_t image_width, image_height, image_layers; /* 0: no image */
};

/* The memory of one submission, as an operation's `record` finds it. On unified devices `results`
   is the read-back buffer itself. */
struct hzb_resources {
    struct hzb_buffer upload, device, scratch, results, readback;
    struct hzb_image image;
    struct hzb_commands commands;
    struct hzb_block *block; /* kept while a submission writes to it; NULL: none */
};

static inline uint64_t hzb_needs_image_bytes(const struct hzb_needs *needs)
{
    return (uint64_t)needs->image_width * needs->image_height * needs->image_layers *
           sizeof(uint32_t);
}

/* Cases of an operation whose answers are known, and the results of one at most. */
enum { HZB_KNOWN_CASES = 512, HZB_KNOWN_OUTPUTS = 64 };

/* What a kernel must get right on a device before anything rests on it. */
struct hzb_known {
    uint32_t frames, width, height;
    int output_count;
    uint64_t output_bytes[HZB_KNOWN_OUTPUTS]; /* a frame */
    void *request;                            /* for plan and run_cpu; of the caller's memory */
};

struct hzb_op {
    /* Do all of it here and now. */
    enum hzb_status (*run_cpu)(const void *request, const struct hzb_frames *frames,
                               const struct hzb_output *outputs, const struct hzb_hooks *hooks,
                               struct hzb_error *err);

    /* Plans hold no pointers and no uninitialised padding: they compare as bytes. */
    size_t plan_bytes;
    /* Fill a plan for so many frames on a device; what a single frame cannot have there is
       HZB_VALUE_ERROR. */
    enum hzb_status (*plan)(const void *request, int64_t frames, const struct hzb_limits *limits,
                            const char *device_name, void *plan, struct hzb_error *err);

    /* Which of its HZB_KNOWN_CASES a plan rests on; -1: none. Then the bit of hzb_limits.distrusted
       that takes the plan's kernel off, the case itself, whose request this fills, and its frame of
       float32 words. */
    int (*known_key)(const void *plan);
    uint32_t (*distrust)(const void *plan);
    size_t request_bytes;
    void (*known)(const void *plan, struct hzb_known *known);
    void (*fill_known)(const struct hzb_known *known, uint32_t *words);

    /* Frames of one submission at most, and the caller's rectangle. */
    uint32_t (*group_frames)(const void *plan);
    struct hzb_rect (*rect)(const void *plan);
    uint32_t (*pitch)(const void *plan); /* words from row to row of an uploaded frame */

    void (*needs)(const void *plan, uint32_t frames, struct hzb_needs *needs);
    /* Whether a result has the same bytes on the device as in the caller's array. */
    bool (*stores_results)(const void *plan);

    /* Record, in this order and barriers included: what `scratch` must be set to before each run;
       the way from `upload` to where the kernels read; the kernels, which leave `results`, with a
       look at the hooks after each: drivers take long to make its pipeline. */
    void (*record_reset)(const void *plan, struct hzb_device *device,
                         struct hzb_resources *resources);
    void (*record_upload)(const void *plan, uint32_t frames, struct hzb_device *device,
                          struct hzb_resources *resources);
    enum hzb_status (*record_kernels)(const void *plan, uint32_t frames, struct hzb_device *device,
                                      struct hzb_resources *resources,
                                      const struct hzb_hooks *hooks, struct hzb_error *err);
    /* Record the way of the results of frames [first, first + frames) to the caller's arrays that
       the device can write, and of all others to the same place in `readback`. Not for unified
       devices. */
    void (*record_readback)(const void *plan, int64_t first, uint32_t frames,
                            const struct hzb_output *outputs, struct hzb_device *device,
                            struct hzb_resources *resources);
    /* Copy them to the caller's arrays that the device cannot write. */
    void (*unpack)(const void *plan, const void *results, int64_t first, uint32_t frames,
                   const struct hzb_output *outputs);
};

#endif
