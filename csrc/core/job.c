/* Running an operation on a context's device: submission by submission, or on the processor. */
#include "core/job.h"

#include "base/system.h"
#include "core/plans.h"
#include "core/resources.h"
#include "core/trust.h"

/* Words that are copied between looks at the hooks: some ten milliseconds, so that a look is rare
   beside the work and small builds do without. */
#define WORDS_A_LOOK (UINT64_C(1) << 22)

/* Asking the system what memory is left takes longer than the build of a small frame, which does
   not depend on the answer. */
#define MODEST_BYTES (UINT64_C(16) << 20)

static enum hzb_status fail_memory(struct hzb_error *err, const struct hzb_context *context,
                                   uint64_t bytes, const char *limit, uint64_t value)
{
    return hzb_fail(
        err, HZB_OUT_OF_MEMORY,
        "depth needs %llu bytes (levels, and all that is between them and depth) on %s, "
        "where %s is %llu bytes: use another device, or reduce the frame in parts "
        "(view_rect)",
        (unsigned long long)bytes, context->info.name, limit, (unsigned long long)value);
}

enum hzb_status hzb_job_plan(const struct hzb_context *context, const struct hzb_job *job,
                             struct hzb_error *err)
{
    if (hzb_context_is_native(context))
        return HZB_OK;
    struct hzb_limits limits = hzb_context_limits(context);
    return job->op->plan(job->request, job->frames->count, &limits, context->info.name, job->plan,
                         err);
}

/* Hold a submission against the device's heaps, and add to `host` what of it is the host's. */
static enum hzb_status check_heaps(const struct hzb_context *context, const struct hzb_job *job,
                                   uint64_t *host, struct hzb_error *err)
{
    uint32_t group = job->op->group_frames(job->plan);
    int64_t frames = job->frames->count;
    struct hzb_needs needs;
    job->op->needs(job->plan, frames < group ? (uint32_t)frames : group, &needs);

    bool unified = context->limits.unified;
    uint64_t image_bytes = hzb_needs_image_bytes(&needs);
    const struct {
        enum hzb_memory_use use;
        uint64_t bytes;
    } uses[] = {
        {HZB_MEMORY_UPLOAD, needs.upload_bytes},
        {HZB_MEMORY_READBACK, needs.result_bytes},
        {HZB_MEMORY_DEVICE, needs.device_bytes + needs.scratch_bytes + image_bytes +
                                (unified ? 0 : needs.result_bytes)},
    };
    uint64_t total = 0, by_heap[VK_MAX_MEMORY_HEAPS] = {0};
    for (size_t i = 0; i < sizeof uses / sizeof uses[0]; i++) {
        uint32_t heap = context->heap[uses[i].use];
        by_heap[heap] += uses[i].bytes;
        total += uses[i].bytes;
        if (by_heap[heap] > context->heap_bytes[uses[i].use])
            return fail_memory(err, context, by_heap[heap], "the memory heap",
                               context->heap_bytes[uses[i].use]);
    }
    *host += unified ? total : needs.upload_bytes + needs.result_bytes;
    return HZB_OK;
}

enum hzb_status hzb_job_check_memory(const struct hzb_context *context, const struct hzb_job *job,
                                     uint64_t result_bytes, struct hzb_error *err)
{
    uint64_t host = result_bytes;
    if (!hzb_context_is_native(context)) {
        enum hzb_status status = check_heaps(context, job, &host, err);
        if (status)
            return status;
    }
    if (host < MODEST_BYTES)
        return HZB_OK;
    uint64_t available = hzb_memory_available();
    if (host > available) {
        hzb_blocks_trim();
        available = hzb_memory_available();
    }
    if (host > available)
        return fail_memory(err, context, host, "the memory available to this process", available);
    return HZB_OK;
}

enum hzb_status hzb_job_take_block(struct hzb_context *context, const struct hzb_job *job,
                                   uint64_t bytes, const struct hzb_hooks *hooks,
                                   struct hzb_block **block, struct hzb_error *err)
{
    *block = NULL;
    if (hzb_context_is_native(context) || context->limits.unified ||
        !job->op->stores_results(job->plan))
        return hzb_block_take(NULL, bytes, block, err);
    enum hzb_status status = hzb_context_enter(context, hooks, err);
    if (status)
        return status;
    status = hzb_block_take(context->device, bytes, block, err);
    hzb_context_leave(context);
    return status;
}

/* One call on its way. */
struct run {
    struct hzb_context *context;
    const struct hzb_job *job;
    const struct hzb_hooks *hooks;
    uint64_t copied; /* words since the last look at the hooks */
};

static enum hzb_status upload_rows(struct run *run, int64_t frame, struct hzb_rect rows,
                                   uint32_t pitch, uint32_t *words, struct hzb_error *err)
{
    hzb_frames_read(run->job->frames, frame, rows, pitch, words);
    run->copied += (uint64_t)pitch * rows.height;
    if (run->copied < WORDS_A_LOOK)
        return HZB_OK;
    run->copied = 0;
    return hzb_look(run->hooks, err);
}

static enum hzb_status upload(struct run *run, int64_t first, uint32_t frames, uint32_t *words,
                              struct hzb_error *err)
{
    const struct hzb_rect rect = run->job->op->rect(run->job->plan);
    uint32_t pitch = run->job->op->pitch(run->job->plan);
    uint32_t most = pitch < WORDS_A_LOOK ? (uint32_t)(WORDS_A_LOOK / pitch) : 1;
    for (int64_t frame = first; frame < first + frames; frame++) {
        for (uint32_t done = 0; done < rect.height; done += most) {
            uint32_t left = rect.height - done;
            struct hzb_rect rows = {rect.x, rect.y + done, rect.width, left < most ? left : most};
            enum hzb_status status = upload_rows(run, frame, rows, pitch, words, err);
            if (status)
                return status;
            words += (uint64_t)pitch * rows.height;
        }
    }
    return HZB_OK;
}

/* Record what this submission does with its results, where they leave the device's memory. */
static enum hzb_status record_readback(struct hzb_device *device, const struct hzb_job *job,
                                       int64_t first, uint32_t frames,
                                       struct hzb_resources *resources, struct hzb_error *err)
{
    if (device->limits.unified)
        return HZB_OK;
    enum hzb_status status = hzb_commands_begin_last(device, &resources->commands, err);
    if (status)
        return status;
    job->op->record_readback(job->plan, first, frames, job->outputs, device, resources);
    return hzb_commands_end(device, &resources->commands, err);
}

static enum hzb_status run_group(struct run *run, int64_t first, uint32_t frames,
                                 struct hzb_error *err)
{
    struct hzb_context *context = run->context;
    struct hzb_device *device = context->device;
    const struct hzb_job *job = run->job;
    struct hzb_buffer *block = job->block ? hzb_block_buffer(job->block) : NULL;
    struct hzb_resources *resources;
    enum hzb_status status =
        hzb_plans_get_locked(context, job->op, job->plan, frames, run->hooks, &resources, err);
    if (status)
        return status;
    hzb_resources_hold(resources, job->block);
    status = upload(run, first, frames, resources->upload.mapped, err);
    if (!status)
        status = record_readback(device, job, first, frames, resources, err);
    if (!status)
        status = hzb_buffer_flush(device, &resources->upload, err);
    /* What was written to arrays that lay there before must not come after what the device writes.
     */
    if (!status && block)
        status = hzb_buffer_flush(device, block, err);
    if (!status)
        status = hzb_commands_submit(device, &resources->commands, err);
    if (!status)
        status = hzb_plans_await_locked(context, resources, run->hooks, err);
    if (!status)
        status = hzb_buffer_invalidate(device, &resources->readback, err);
    if (!status && block)
        status = hzb_buffer_invalidate(device, block, err);
    if (status) {
        if (!resources->commands.submitted)
            hzb_plans_drop_locked(context, resources);
        return status;
    }
    job->op->unpack(job->plan, resources->readback.mapped, first, frames, job->outputs);
    return HZB_OK;
}

enum hzb_status hzb_job_run_locked(struct hzb_context *context, const struct hzb_job *job,
                                   const struct hzb_hooks *hooks, struct hzb_error *err)
{
    struct run run = {.context = context, .job = job, .hooks = hooks};
    enum hzb_status status = hzb_plans_settle_locked(context, hooks, err);
    uint32_t group = job->op->group_frames(job->plan);
    for (int64_t first = 0; !status && first < job->frames->count; first += group) {
        int64_t left = job->frames->count - first;
        status = run_group(&run, first, left < group ? (uint32_t)left : group, err);
    }
    if (status == HZB_DEVICE_LOST)
        context->lost = true;
    return status;
}

enum hzb_status hzb_job_run(struct hzb_context *context, const struct hzb_job *job,
                            const struct hzb_hooks *hooks, struct hzb_error *err)
{
    enum hzb_status status = hzb_context_enter(context, hooks, err);
    if (status)
        return status;
    if (hzb_context_is_native(context)) {
        status = job->op->run_cpu(job->request, job->frames, job->outputs, hooks, err);
    } else {
        status = hzb_trust_locked(context, job, hooks, err);
        if (!status)
            status = hzb_job_run_locked(context, job, hooks, err);
    }
    hzb_context_leave(context);
    return status;
}
