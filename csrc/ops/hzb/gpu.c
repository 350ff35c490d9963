/* A plan as recorded commands, and the way of its results to the caller's arrays. */
#include "ops/hzb/cpu.h"
#include "ops/hzb/plan.h"

#include "batched.spv.h"
#include "batched_gather.spv.h"
#include "per_level.spv.h"
#include "tiles.spv.h"

#include <string.h>

/* Each kernel with and without 16-bit storage. */
#define KERNEL(name, suffix, buffers, with_image)                                                  \
    {#name, hzb_spv_##name##suffix, sizeof hzb_spv_##name##suffix, buffers, with_image}
#define KERNELS(name, buffers, with_image)                                                         \
    {KERNEL(name, , buffers, with_image), KERNEL(name, _s16, buffers, with_image)}

static const struct hzb_kernel per_level[] = KERNELS(per_level, 3, false);
static const struct hzb_kernel batched[] = KERNELS(batched, 3, false);
static const struct hzb_kernel batched_gather[] = KERNELS(batched_gather, 3, true);
static const struct hzb_kernel tiles[] = KERNELS(tiles, 4, false);

/* The push constants of shaders/lib/levels.glsl. */
struct push {
    uint32_t target_start[4];
    uint32_t source_size[2];
    uint32_t target_size[2];
    uint32_t source_start, source_pitch;
    uint32_t tile_shift, tiles_x, tiles;
};

/* Those of shaders/lib/tiles.glsl. */
struct tiles_push {
    uint32_t source_size[2];
    uint32_t level_size[2];
    uint32_t tiles[2];
    uint32_t levels, run;
    uint32_t start[HZB_TILE_LEVELS];
};

static bool is_large(const struct hzb_dispatch *dispatch)
{
    return dispatch->kernel == HZB_KERNEL_TILES || dispatch->kernel == HZB_KERNEL_SINGLE_PASS;
}

static const struct hzb_kernel *kernel_of(const struct hzb_plan *plan,
                                          const struct hzb_dispatch *dispatch)
{
    if (is_large(dispatch))
        return &tiles[plan->storage16];
    if (dispatch->kernel == HZB_KERNEL_PER_LEVEL)
        return &per_level[plan->storage16];
    return dispatch->source == HZB_SOURCE_IMAGE ? &batched_gather[plan->storage16]
                                                : &batched[plan->storage16];
}

static enum hzb_status get_pipeline(const struct hzb_plan *plan,
                                    const struct hzb_dispatch *dispatch, struct hzb_device *device,
                                    const struct hzb_pipeline **pipeline, struct hzb_error *err)
{
    const struct hzb_options *options = &plan->options;
    bool large = is_large(dispatch);
    /* Only reductions over several lanes use subgroups. */
    uint32_t subgroup_size = large || dispatch->count > 1 ? plan->subgroup_size : 0;
    /* Where large tiles are for "floor", no side is odd, and it is as "ceil". */
    bool floor_as_ceil = large && options->sizing == HZB_SIZING_FLOOR;
    /* The specialization constants of shaders/lib/chains.glsl, then those of hzb/tiles.comp. */
    const uint32_t constants[] = {
        (uint32_t)plan->chains,
        hzb_chain_is_max(options, 0),
        floor_as_ceil ? HZB_SIZING_CEIL : (uint32_t)options->sizing,
        (uint32_t)options->rounding,
        options->nan == HZB_NAN_IGNORE,
        options->dtype == HZB_DTYPE_FLOAT32,
        dispatch->source != HZB_SOURCE_LEVEL,
        large ? 1 : (uint32_t)dispatch->count,
        subgroup_size ? subgroup_size : 1,
        (uint32_t)options->lane_table,
        dispatch->kernel == HZB_KERNEL_SINGLE_PASS,
        dispatch->run != 0,
        dispatch->blocks ? dispatch->blocks : 1,
    };
    return hzb_pipeline_get(device, kernel_of(plan, dispatch), constants,
                            sizeof constants / sizeof constants[0], subgroup_size, pipeline, err);
}

static const struct hzb_buffer *frame_buffer(const struct hzb_plan *plan,
                                             const struct hzb_resources *resources)
{
    return plan->unified ? &resources->upload : &resources->device;
}

static struct hzb_range chain_range(const struct hzb_plan *plan, uint32_t frames,
                                    const struct hzb_resources *resources, int chain)
{
    uint64_t start = hzb_plan_level_offset(plan, frames, chain, 0);
    uint64_t end = hzb_plan_level_offset(plan, frames, chain, plan->levels);
    return (struct hzb_range){&resources->results, start, end - start};
}

/* Texels before a level in the buffer of its chain. */
static uint32_t level_start(const struct hzb_plan *plan, uint32_t frames, int level)
{
    return (uint32_t)(hzb_plan_level_offset(plan, frames, 0, level) / plan->texel_bytes);
}

static struct push small_push(const struct hzb_plan *plan, uint32_t frames,
                              const struct hzb_dispatch *dispatch)
{
    int first = dispatch->first;
    struct push push = {
        .source_size = {plan->width, plan->height},
        .source_pitch = plan->pitch,
        .target_size = {plan->size[first].width, plan->size[first].height},
        .tile_shift = dispatch->tile_shift,
        .tiles_x = dispatch->tiles_x,
        .tiles = dispatch->tiles,
    };
    if (dispatch->source == HZB_SOURCE_LEVEL) {
        push.source_size[0] = push.source_pitch = plan->size[first - 1].width;
        push.source_size[1] = plan->size[first - 1].height;
        push.source_start = level_start(plan, frames, first - 1);
    }
    for (int i = 0; i < dispatch->count; i++)
        push.target_start[i] = level_start(plan, frames, first + i);
    return push;
}

static struct tiles_push large_push(const struct hzb_plan *plan, uint32_t frames,
                                    const struct hzb_dispatch *dispatch)
{
    struct tiles_push push = {
        .source_size = {plan->width, plan->height},
        .level_size = {plan->size[0].width, plan->size[0].height},
        .tiles = {dispatch->tiles_x, dispatch->tiles / dispatch->tiles_x},
        .levels = (uint32_t)plan->levels,
        .run = dispatch->run,
    };
    for (int i = 0; i < plan->levels; i++)
        push.start[i] = level_start(plan, frames, i);
    return push;
}

static enum hzb_status record_dispatch(const struct hzb_plan *plan, uint32_t frames,
                                       const struct hzb_dispatch *dispatch,
                                       struct hzb_device *device, struct hzb_resources *resources,
                                       struct hzb_error *err)
{
    const struct hzb_pipeline *pipeline;
    enum hzb_status status = get_pipeline(plan, dispatch, device, &pipeline, err);
    if (status)
        return status;
    union {
        struct push small;
        struct tiles_push large;
    } push = {0};
    if (is_large(dispatch))
        push.large = large_push(plan, frames, dispatch);
    else
        push.small = small_push(plan, frames, dispatch);

    /* A second chain that is not there, the frame beside its image and slots that nothing is handed
       on in are never touched: something that is there is bound in their place. */
    struct hzb_range ranges[] = {
        {frame_buffer(plan, resources), 0, hzb_plan_frame_bytes(plan, frames)},
        chain_range(plan, frames, resources, 0),
        chain_range(plan, frames, resources, plan->chains - 1),
        {&resources->scratch, 0, resources->scratch.size},
    };
    if (!is_large(dispatch) && dispatch->source != HZB_SOURCE_INPUT)
        ranges[0] = ranges[1];
    if (!resources->scratch.size)
        ranges[3] = ranges[1];
    const struct hzb_kernel *kernel = kernel_of(plan, dispatch);
    const uint32_t groups[3] = {dispatch->groups[0], dispatch->groups[1], frames};
    return hzb_commands_dispatch(device, &resources->commands, pipeline, ranges, kernel->buffers,
                                 kernel->image ? &resources->image : NULL, &push,
                                 is_large(dispatch) ? sizeof push.large : sizeof push.small, groups,
                                 err);
}

/* The last workgroup of a single pass is found by counts that begin at 0, and what it reads is
   there once it is not 0. */
static void record_reset(const void *plan_, struct hzb_device *device,
                         struct hzb_resources *resources)
{
    const struct hzb_plan *plan = plan_;
    if (plan->dispatches[0].kernel != HZB_KERNEL_SINGLE_PASS || !resources->scratch.size)
        return;
    hzb_commands_zero(device, &resources->commands, &resources->scratch);
    hzb_commands_barrier(device, &resources->commands, HZB_BARRIER_COPY_TO_KERNEL);
}

static void record_upload(const void *plan_, uint32_t frames, struct hzb_device *device,
                          struct hzb_resources *resources)
{
    (void)frames;
    const struct hzb_plan *plan = plan_;
    struct hzb_commands *commands = &resources->commands;
    if (plan->dispatches[0].source == HZB_SOURCE_IMAGE) {
        hzb_commands_copy_to_image(device, commands, &resources->upload, plan->pitch,
                                   &resources->image);
    } else if (!plan->unified) {
        const struct hzb_range frame = {&resources->upload, 0, resources->device.size};
        hzb_commands_copy(device, commands, &frame, &resources->device, 0);
        hzb_commands_barrier(device, commands, HZB_BARRIER_COPY_TO_KERNEL);
    }
}

static enum hzb_status record_kernels(const void *plan_, uint32_t frames, struct hzb_device *device,
                                      struct hzb_resources *resources,
                                      const struct hzb_hooks *hooks, struct hzb_error *err)
{
    const struct hzb_plan *plan = plan_;
    for (int i = 0; i < plan->dispatch_count; i++) {
        if (i > 0)
            hzb_commands_barrier(device, &resources->commands, HZB_BARRIER_KERNEL_TO_KERNEL);
        enum hzb_status status =
            record_dispatch(plan, frames, &plan->dispatches[i], device, resources, err);
        if (!status)
            status = hzb_look(hooks, err);
        if (status)
            return status;
    }
    return HZB_OK;
}

static bool stores_results(const void *plan_)
{
    const struct hzb_plan *plan = plan_;
    return plan->texel_bytes == plan->result_texel_bytes;
}

/* The levels from `level` on that lie one after the other in `readback`, too. */
static int count_indirect(const struct hzb_output *outputs, int level, int levels)
{
    int end = level;
    while (end < levels && !outputs[end].buffer)
        end++;
    return end - level;
}

static void record_readback(const void *plan_, int64_t first, uint32_t frames,
                            const struct hzb_output *outputs, struct hzb_device *device,
                            struct hzb_resources *resources)
{
    const struct hzb_plan *plan = plan_;
    struct hzb_commands *commands = &resources->commands;
    hzb_commands_barrier(device, commands, HZB_BARRIER_KERNEL_TO_COPY);
    for (int chain = 0; chain < plan->chains; chain++, outputs += plan->levels) {
        for (int level = 0, count; level < plan->levels; level += count) {
            const struct hzb_output *output = &outputs[level];
            struct hzb_range results = {&resources->results,
                                        hzb_plan_level_offset(plan, frames, chain, level), 0};
            count = count_indirect(outputs, level, plan->levels);
            if (count) {
                results.size =
                    hzb_plan_level_offset(plan, frames, chain, level + count) - results.offset;
                hzb_commands_copy(device, commands, &results, &resources->readback, results.offset);
            } else {
                count = 1;
                results.size = frames * output->frame_bytes;
                hzb_commands_copy(
                    device, commands, &results, output->buffer,
                    (uint64_t)((char *)output->data - (char *)output->buffer->mapped) +
                        (uint64_t)first * output->frame_bytes);
            }
        }
    }
    hzb_commands_barrier(device, commands, HZB_BARRIER_COPY_TO_HOST);
}

static void needs(const void *plan_, uint32_t frames, struct hzb_needs *needs)
{
    const struct hzb_plan *plan = plan_;
    const struct hzb_dispatch *first = &plan->dispatches[0];
    *needs = (struct hzb_needs){
        .upload_bytes = hzb_plan_frame_bytes(plan, frames),
        .result_bytes = hzb_plan_level_offset(plan, frames, plan->chains - 1, plan->levels),
        .scratch_bytes = is_large(first) ? hzb_plan_slot_bytes(plan, frames) : 0,
        .dispatches = (uint32_t)plan->dispatch_count,
    };
    if (first->source == HZB_SOURCE_IMAGE) {
        needs->image_width = plan->width;
        needs->image_height = plan->height;
        needs->image_layers = frames;
    } else if (!plan->unified) {
        needs->device_bytes = needs->upload_bytes;
    }
}

/* Halves kept in 32-bit words, packed. */
static void pack_halves(uint16_t *target, const uint32_t *words, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        target[i] = (uint16_t)words[i];
}

static void unpack(const void *plan_, const void *results, int64_t first, uint32_t frames,
                   const struct hzb_output *outputs)
{
    const struct hzb_plan *plan = plan_;
    for (int chain = 0; chain < plan->chains; chain++) {
        for (int level = 0; level < plan->levels; level++) {
            const struct hzb_output *output = &outputs[chain * plan->levels + level];
            if (output->buffer)
                continue;
            const char *source =
                (const char *)results + hzb_plan_level_offset(plan, frames, chain, level);
            char *target = (char *)output->data + (uint64_t)first * output->frame_bytes;
            uint64_t bytes = frames * output->frame_bytes;
            if (stores_results(plan))
                memcpy(target, source, bytes);
            else
                pack_halves((uint16_t *)(void *)target, (const uint32_t *)(const void *)source,
                            bytes / sizeof(uint16_t));
        }
    }
}

static uint32_t group_frames(const void *plan)
{
    return ((const struct hzb_plan *)plan)->group_frames;
}

static struct hzb_rect rect(const void *plan_)
{
    const struct hzb_plan *plan = plan_;
    return (struct hzb_rect){plan->x, plan->y, plan->width, plan->height};
}

static uint32_t pitch(const void *plan) { return ((const struct hzb_plan *)plan)->pitch; }

static enum hzb_status make_plan(const void *request_, int64_t frames,
                                 const struct hzb_limits *limits, const char *device_name,
                                 void *plan, struct hzb_error *err)
{
    const struct hzb_request *request = request_;
    return hzb_plan_make(&request->options, &request->extent, frames, limits, device_name, plan,
                         err);
}

static enum hzb_status run_cpu(const void *request, const struct hzb_frames *frames,
                               const struct hzb_output *outputs, const struct hzb_hooks *hooks,
                               struct hzb_error *err)
{
    return hzb_cpu_build(request, frames, outputs, hooks, err);
}

const struct hzb_op hzb_op = {
    .run_cpu = run_cpu,
    .request_bytes = sizeof(struct hzb_request),
    .known_key = hzb_known_key,
    .distrust = hzb_known_distrust,
    .known = hzb_known_make,
    .fill_known = hzb_known_fill,
    .plan_bytes = sizeof(struct hzb_plan),
    .plan = make_plan,
    .group_frames = group_frames,
    .rect = rect,
    .pitch = pitch,
    .needs = needs,
    .stores_results = stores_results,
    .record_reset = record_reset,
    .record_upload = record_upload,
    .record_kernels = record_kernels,
    .record_readback = record_readback,
    .unpack = unpack,
};
