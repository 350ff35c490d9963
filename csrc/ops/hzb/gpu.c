/* A plan as recorded commands, and the way of its results to the caller's arrays. */
#include "ops/hzb/cpu.h"
#include "ops/hzb/plan.h"

#include "batched.spv.h"
#include "batched_gather.spv.h"
#include "per_level.spv.h"

#include <string.h>

/* Each kernel with and without 16-bit storage. */
#define KERNEL(name, suffix, with_image)                                                           \
    {#name, hzb_spv_##name##suffix, sizeof hzb_spv_##name##suffix, 3, with_image}

static const struct hzb_kernel per_level[] = {KERNEL(per_level, , false),
                                              KERNEL(per_level, _s16, false)};
static const struct hzb_kernel batched[] = {KERNEL(batched, , false), KERNEL(batched, _s16, false)};
static const struct hzb_kernel batched_gather[] = {KERNEL(batched_gather, , true),
                                                   KERNEL(batched_gather, _s16, true)};

/* The push constants of shaders/lib/levels.glsl. */
struct push {
    uint32_t target_start[4];
    uint32_t source_size[2];
    uint32_t target_size[2];
    uint32_t source_start, source_pitch;
    uint32_t tile_shift, tiles_x, tiles;
};

static const struct hzb_kernel *kernel_of(const struct hzb_plan *plan,
                                          const struct hzb_dispatch *dispatch)
{
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
    /* Only reductions in shared memory have subgroup barriers. */
    uint32_t subgroup_size = dispatch->count > 1 ? plan->subgroup_size : 0;
    /* The specialization constants of shaders/lib/levels.glsl. */
    const uint32_t constants[] = {
        (uint32_t)plan->chains,
        hzb_chain_is_max(options, 0),
        (uint32_t)options->sizing,
        (uint32_t)options->rounding,
        options->nan == HZB_NAN_IGNORE,
        options->dtype == HZB_DTYPE_FLOAT32,
        dispatch->source != HZB_SOURCE_LEVEL,
        (uint32_t)dispatch->count,
        subgroup_size ? subgroup_size : 1,
        (uint32_t)options->lane_table,
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

static enum hzb_status record_dispatch(const struct hzb_plan *plan, uint32_t frames,
                                       const struct hzb_dispatch *dispatch,
                                       struct hzb_device *device, struct hzb_resources *resources,
                                       struct hzb_error *err)
{
    const struct hzb_pipeline *pipeline;
    enum hzb_status status = get_pipeline(plan, dispatch, device, &pipeline, err);
    if (status)
        return status;

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

    /* A second chain that is not there, and the frame beside its image, are never touched:
       something that is there is bound in their place. */
    struct hzb_range ranges[] = {
        {frame_buffer(plan, resources), 0, hzb_plan_frame_bytes(plan, frames)},
        chain_range(plan, frames, resources, 0),
        chain_range(plan, frames, resources, plan->chains - 1),
    };
    if (dispatch->source != HZB_SOURCE_INPUT)
        ranges[0] = ranges[1];
    const uint32_t groups[3] = {dispatch->groups[0], dispatch->groups[1], frames};
    return hzb_commands_dispatch(device, &resources->commands, pipeline, ranges, 3,
                                 dispatch->source == HZB_SOURCE_IMAGE ? &resources->image : NULL,
                                 &push, sizeof push, groups, err);
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
    .plan_bytes = sizeof(struct hzb_plan),
    .plan = make_plan,
    .group_frames = group_frames,
    .rect = rect,
    .pitch = pitch,
    .needs = needs,
    .stores_results = stores_results,
    .record_upload = record_upload,
    .record_kernels = record_kernels,
    .record_readback = record_readback,
    .unpack = unpack,
};
