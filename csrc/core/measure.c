/* Timing an operation's kernels with timestamps, on rotating memory; without what is set before
   them in each submission. */
#include "core/measure.h"

#include "base/alloc.h"
#include "core/resources.h"

#define LONGEST_NS UINT64_C(60000000000)

static const struct hzb_hooks no_hooks = {0};

static enum hzb_status wait(struct hzb_device *device, struct hzb_commands *commands,
                            struct hzb_error *err)
{
    bool done;
    enum hzb_status status = hzb_commands_wait(device, commands, LONGEST_NS, &done, err);
    if (!status && !done)
        status = hzb_fail(err, HZB_FAILED, "a measured submission did not end within a minute");
    return status;
}

/* Fill a set's device memory from the host, as far as the measured part does not. */
static enum hzb_status fill(struct hzb_device *device, const struct hzb_job *job, uint32_t frames,
                            const struct hzb_measure *measure, struct hzb_buffer *host,
                            struct hzb_resources *set, struct hzb_error *err)
{
    struct hzb_resources filling = *set;
    filling.commands = (struct hzb_commands){0};
    enum hzb_status status = hzb_commands_begin(device, 1, &filling.commands, err);
    if (!status) {
        const struct hzb_range all = {host, 0, host->size};
        hzb_commands_copy(device, &filling.commands, &all, &filling.upload, 0);
        hzb_commands_barrier(device, &filling.commands, HZB_BARRIER_COPY_TO_KERNEL);
        if (!measure->upload)
            job->op->record_upload(job->plan, frames, device, &filling);
        status = hzb_commands_end(device, &filling.commands, err);
    }
    if (!status)
        status = hzb_commands_submit(device, &filling.commands, err);
    if (!status)
        status = wait(device, &filling.commands, err);
    if (!filling.commands.submitted)
        hzb_commands_destroy(device, &filling.commands);
    return status;
}

static enum hzb_status prepare(struct hzb_device *device, const struct hzb_job *job,
                               uint32_t frames, const struct hzb_measure *measure,
                               struct hzb_buffer *host, struct hzb_resources *set,
                               struct hzb_error *err)
{
    struct hzb_needs needs;
    job->op->needs(job->plan, frames, &needs);
    enum hzb_status status = hzb_resources_create(device, &needs, HZB_ON_DEVICE, set, err);
    if (!status)
        status = fill(device, job, frames, measure, host, set, err);
    if (status)
        return status;
    hzb_commands_barrier(device, &set->commands, HZB_BARRIER_KERNEL_TO_KERNEL);
    job->op->record_reset(job->plan, device, set);
    hzb_commands_timestamp(device, &set->commands, 0);
    if (measure->upload)
        job->op->record_upload(job->plan, frames, device, set);
    status = job->op->record_kernels(job->plan, frames, device, set, &no_hooks, err);
    if (status)
        return status;
    hzb_commands_timestamp(device, &set->commands, 1);
    return hzb_commands_end(device, &set->commands, err);
}

/* All sets are submitted before the first is awaited, so that the device never idles; each begins
   with a barrier that ends the one before it. */
static enum hzb_status run(struct hzb_device *device, const struct hzb_measure *measure,
                           struct hzb_resources *sets, double *times, struct hzb_error *err)
{
    double heated = 0;
    uint32_t counted = 0;
    if (!device->limits.timestamps)
        return hzb_fail(err, HZB_FAILED, "%s has no timestamps", device->info.name);
    while (counted < measure->repeats) {
        for (uint32_t i = 0; i < measure->sets; i++) {
            enum hzb_status status = hzb_commands_submit(device, &sets[i].commands, err);
            if (status)
                return status;
        }
        bool cold = heated < (double)measure->heat_ns;
        for (uint32_t i = 0; i < measure->sets; i++) {
            enum hzb_status status = wait(device, &sets[i].commands, err);
            if (status)
                return status;
            double elapsed = hzb_commands_elapsed(device, &sets[i].commands);
            if (cold)
                heated += elapsed;
            else if (counted < measure->repeats)
                times[counted++] = elapsed;
        }
    }
    return HZB_OK;
}

enum hzb_status hzb_measure_run(struct hzb_context *context, const struct hzb_job *job,
                                const struct hzb_measure *measure, double *times,
                                struct hzb_error *err)
{
    enum hzb_status status = hzb_context_enter_device(context, &no_hooks, err);
    if (status)
        return status;
    struct hzb_device *device = context->device;
    uint32_t frames = job->op->group_frames(job->plan);
    if (job->frames->count < frames)
        frames = (uint32_t)job->frames->count;
    struct hzb_rect rect = job->op->rect(job->plan);
    uint32_t pitch = job->op->pitch(job->plan);
    uint64_t frame_words = (uint64_t)pitch * rect.height;

    struct hzb_buffer host = {0};
    struct hzb_resources *sets = hzb_calloc(measure->sets, sizeof *sets);
    status = sets ? hzb_buffer_create(device, HZB_MEMORY_UPLOAD,
                                      frames * frame_words * sizeof(uint32_t), &host, err)
                  : hzb_fail_no_memory(err, measure->sets * sizeof *sets);
    if (!status) {
        for (uint32_t i = 0; i < frames; i++)
            hzb_frames_read(job->frames, i, rect, pitch, (uint32_t *)host.mapped + i * frame_words);
        status = hzb_buffer_flush(device, &host, err);
    }
    for (uint32_t i = 0; !status && i < measure->sets; i++)
        status = prepare(device, job, frames, measure, &host, &sets[i], err);
    if (!status)
        status = run(device, measure, sets, times, err);
    if (status == HZB_DEVICE_LOST)
        context->lost = true;
    /* After a failure others may be in flight; one that does not end is left to the system. */
    for (uint32_t i = 0; sets && i < measure->sets; i++) {
        struct hzb_error ignored;
        if (sets[i].commands.submitted)
            wait(device, &sets[i].commands, &ignored);
        if (!sets[i].commands.submitted)
            hzb_resources_destroy(device, &sets[i]);
    }
    hzb_buffer_destroy(device, &host);
    hzb_free(sets);
    hzb_context_leave(context);
    return status;
}
