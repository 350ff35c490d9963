/* The kept submissions of a context: an array in order of use, the latest first. */
#include "core/plans.h"

#include "base/alloc.h"
#include "core/resources.h"

#include <string.h>

/* A wait is cut into slices of this length, with a look at the hooks between them. */
#define SLICE_NS UINT64_C(50000000)
/* Enough for the shapes that one script alternates between. */
enum { MAX_KEPT = 8 };
/* Kept memory beyond this is given up, but for what was used last. */
#define MAX_KEPT_BYTES (UINT64_C(1) << 30)

struct entry {
    const struct hzb_op *op;
    void *plan; /* the entry's own copy */
    uint32_t frames;
    uint64_t bytes;
    struct hzb_resources resources;
};

struct hzb_plans {
    struct entry *kept[MAX_KEPT];
    int count;
};

enum hzb_status hzb_plans_create(struct hzb_plans **plans, struct hzb_error *err)
{
    *plans = hzb_calloc(1, sizeof **plans);
    return *plans ? HZB_OK : hzb_fail_no_memory(err, sizeof **plans);
}

static void destroy_entry(struct hzb_device *device, struct entry *entry)
{
    if (!entry)
        return;
    hzb_resources_destroy(device, &entry->resources);
    hzb_free(entry->plan);
    hzb_free(entry);
}

void hzb_plans_destroy(struct hzb_device *device, struct hzb_plans *plans)
{
    if (!plans)
        return;
    for (int i = 0; i < plans->count; i++)
        destroy_entry(device, plans->kept[i]);
    hzb_free(plans);
}

static void remove_entry(struct hzb_device *device, struct hzb_plans *plans, int index)
{
    struct entry *entry = plans->kept[index];
    plans->count--;
    memmove(&plans->kept[index], &plans->kept[index + 1],
            (size_t)(plans->count - index) * sizeof plans->kept[0]);
    destroy_entry(device, entry);
}

/* Leave room for one more entry of this size. */
static void make_room(struct hzb_device *device, struct hzb_plans *plans, uint64_t bytes)
{
    uint64_t total = bytes;
    for (int i = 0; i < plans->count; i++)
        total += plans->kept[i]->bytes;
    while (plans->count > 0 && (plans->count == MAX_KEPT || total > MAX_KEPT_BYTES)) {
        total -= plans->kept[plans->count - 1]->bytes;
        remove_entry(device, plans, plans->count - 1);
    }
}

static enum hzb_status record(struct hzb_device *device, struct entry *entry,
                              const struct hzb_needs *needs, const struct hzb_hooks *hooks,
                              struct hzb_error *err)
{
    struct hzb_resources *resources = &entry->resources;
    enum hzb_status status = hzb_resources_create(device, needs, HZB_HOST_TO_HOST, resources, err);
    if (status)
        return status;
    entry->op->record_reset(entry->plan, device, resources);
    entry->op->record_upload(entry->plan, entry->frames, device, resources);
    status = entry->op->record_kernels(entry->plan, entry->frames, device, resources, hooks, err);
    if (status)
        return status;
    if (device->limits.unified)
        hzb_commands_barrier(device, &resources->commands, HZB_BARRIER_KERNEL_TO_HOST);
    return hzb_commands_end(device, &resources->commands, err);
}

static enum hzb_status make_entry(struct hzb_context *context, const struct hzb_op *op,
                                  const void *plan, uint32_t frames, const struct hzb_hooks *hooks,
                                  struct entry **made, struct hzb_error *err)
{
    struct hzb_needs needs;
    op->needs(plan, frames, &needs);
    uint64_t bytes = needs.upload_bytes + needs.device_bytes + needs.scratch_bytes +
                     hzb_needs_image_bytes(&needs) + 2 * needs.result_bytes;
    make_room(context->device, context->plans, bytes);

    struct entry *entry = hzb_calloc(1, sizeof *entry);
    if (entry)
        entry->plan = hzb_calloc(1, op->plan_bytes);
    if (!entry || !entry->plan) {
        hzb_free(entry);
        return hzb_fail_no_memory(err, op->plan_bytes);
    }
    memcpy(entry->plan, plan, op->plan_bytes);
    entry->op = op;
    entry->frames = frames;
    entry->bytes = bytes;
    enum hzb_status status = record(context->device, entry, &needs, hooks, err);
    if (status) {
        destroy_entry(context->device, entry);
        return status;
    }
    *made = entry;
    return HZB_OK;
}

static int find(const struct hzb_plans *plans, const struct hzb_op *op, const void *plan,
                uint32_t frames)
{
    for (int i = 0; i < plans->count; i++) {
        const struct entry *entry = plans->kept[i];
        if (entry->op == op && entry->frames == frames &&
            memcmp(entry->plan, plan, op->plan_bytes) == 0)
            return i;
    }
    return -1;
}

enum hzb_status hzb_plans_get_locked(struct hzb_context *context, const struct hzb_op *op,
                                     const void *plan, uint32_t frames,
                                     const struct hzb_hooks *hooks,
                                     struct hzb_resources **resources, struct hzb_error *err)
{
    struct hzb_plans *plans = context->plans;
    struct entry *entry = NULL;
    int index = find(plans, op, plan, frames);
    if (index >= 0) {
        entry = plans->kept[index];
    } else {
        enum hzb_status status = make_entry(context, op, plan, frames, hooks, &entry, err);
        if (status)
            return status;
        index = plans->count++;
    }
    memmove(&plans->kept[1], &plans->kept[0], (size_t)index * sizeof plans->kept[0]);
    plans->kept[0] = entry;
    *resources = &entry->resources;
    return HZB_OK;
}

void hzb_plans_forget_locked(struct hzb_context *context, const struct hzb_op *op, const void *plan,
                             uint32_t frames)
{
    int index = find(context->plans, op, plan, frames);
    if (index >= 0 && !context->plans->kept[index]->resources.commands.submitted)
        remove_entry(context->device, context->plans, index);
}

void hzb_plans_drop_locked(struct hzb_context *context, struct hzb_resources *resources)
{
    for (int i = 0; i < context->plans->count; i++) {
        if (&context->plans->kept[i]->resources == resources) {
            remove_entry(context->device, context->plans, i);
            return;
        }
    }
}

enum hzb_status hzb_plans_await_locked(struct hzb_context *context, struct hzb_resources *resources,
                                       const struct hzb_hooks *hooks, struct hzb_error *err)
{
    for (;;) {
        bool done;
        enum hzb_status status =
            hzb_commands_wait(context->device, &resources->commands, SLICE_NS, &done, err);
        if (done)
            hzb_resources_hold(resources, NULL);
        if (status || done)
            return status;
        status = hzb_look(hooks, err);
        if (status)
            return status;
    }
}

static struct hzb_resources *find_in_flight(const struct hzb_context *context)
{
    for (int i = 0; i < context->plans->count; i++) {
        if (context->plans->kept[i]->resources.commands.submitted)
            return &context->plans->kept[i]->resources;
    }
    return NULL;
}

enum hzb_status hzb_plans_settle_locked(struct hzb_context *context, const struct hzb_hooks *hooks,
                                        struct hzb_error *err)
{
    struct hzb_resources *in_flight;
    while ((in_flight = find_in_flight(context))) {
        enum hzb_status status = hzb_plans_await_locked(context, in_flight, hooks, err);
        if (status)
            return status;
    }
    return HZB_OK;
}
