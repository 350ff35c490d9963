/* All that an operation offers to core: what one submission of it needs, how it is recorded, how
   its results leave, and the same work on the host processor. */
#ifndef HZB_CORE_OP_H
#define HZB_CORE_OP_H

#include "core/frames.h"
#include "vulkan/commands.h"

/* What one submission of `frames` frames needs on a device. */
struct hzb_needs {
    uint64_t upload_bytes; /* float32 words of the frames' rectangles, frame after frame */
    uint64_t device_bytes; /* device memory beside upload and results; 0: none */
    uint64_t result_bytes; /* device memory that holds the results, read back as a whole */
    uint32_t dispatches;
    uint32_t image_width, image_height, image_layers; /* 0: no image */
};

/* The memory of one submission, as an operation's `record` finds it. On unified devices `results`
   is the read-back buffer itself. */
struct hzb_resources {
    struct hzb_buffer upload, device, results, readback;
    struct hzb_image image;
    struct hzb_commands commands;
    struct hzb_block *block; /* kept while a submission writes to it; NULL: none */
};

/* One array of the caller that receives a result: C-contiguous, `frame_bytes` for each frame. */
struct hzb_output {
    void *data;
    uint64_t frame_bytes;
    /* Where the array lies in memory that the device can write; NULL: it is the host's alone. */
    const struct hzb_buffer *buffer;
};

struct hzb_op {
    const char *name;
    size_t
        plan_bytes; /* plans hold no pointers and no uninitialised padding: they compare as bytes */

    /* Frames of one submission at most, the caller's rectangle, and the arrays that results go to.
     */
    uint32_t (*group_frames)(const void *plan);
    struct hzb_rect (*rect)(const void *plan);
    uint32_t (*pitch)(const void *plan); /* words from row to row of an uploaded frame */
    uint32_t (*output_count)(const void *plan);

    void (*needs)(const void *plan, uint32_t frames, struct hzb_needs *needs);
    /* Whether a result has the same bytes on the device as in the caller's array. */
    bool (*stores_results)(const void *plan);

    /* Record the way from `upload` to where the kernels read, barriers included, and then the
       kernels, which leave `results`. */
    void (*record_upload)(const void *plan, uint32_t frames, struct hzb_device *device,
                          struct hzb_resources *resources);
    enum hzb_status (*record_kernels)(const void *plan, uint32_t frames, struct hzb_device *device,
                                      struct hzb_resources *resources, struct hzb_error *err);
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
