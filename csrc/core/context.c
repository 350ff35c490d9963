/* Contexts: made alone or shared by spec, entered for work, closed. */
#include "core/context.h"

#include "base/alloc.h"
#include "base/workers.h"
#include "core/blocks.h"
#include "core/plans.h"
#include "vulkan/memory.h"

#include <string.h>

/* How long a lock is awaited before a look at the hooks. */
enum { SLICE_MS = 50 };
/* How long the exit hook waits for a context in use. */
enum { SHUTDOWN_MS = 1000 };
/* How many looks at the hooks a wait for a device may take before it is left to the system; there
   are twenty a second. */
enum { GIVE_UP_LOOKS = 200 };

static enum hzb_status lock_wait(struct hzb_lock *lock, const struct hzb_hooks *hooks,
                                 struct hzb_error *err)
{
    for (;;) {
        switch (hzb_lock_take(lock, SLICE_MS)) {
        case HZB_LOCK_TAKEN:
            return HZB_OK;
        case HZB_LOCK_OWN:
            return hzb_fail(err, HZB_FAILED,
                            "the context is busy in this thread: a signal handler or finaliser "
                            "cannot use the context whose call it interrupted");
        case HZB_LOCK_TIMEOUT:
            break;
        }
        enum hzb_status status = hzb_look(hooks, err);
        if (status)
            return status;
    }
}

static bool inherited(const struct hzb_context *context) { return context->owner != hzb_process(); }

struct hzb_limits hzb_context_limits(const struct hzb_context *context)
{
    struct hzb_limits limits = context->limits;
    limits.distrusted = context->distrusted;
    return limits;
}

/* All contexts of the process, which the exit hook closes before it destroys the instance. */
static struct {
    struct hzb_mutex lock;
    struct hzb_context *first;
    atomic_bool left; /* a device was left to the system */
    bool inherited;   /* a parent had a device open at the fork that does not survive one */
} open_contexts = {.lock = HZB_MUTEX_INIT};

/* The shared contexts, one a device, and which of them is the default. The lock is held while any
   context is made, so that the exit hook can tell that none is. */
static struct {
    struct hzb_lock lock;
    struct hzb_context *first;
    struct hzb_context *standard;
    atomic_bool ended; /* no context is made any more */
} shared;

static void add_open(struct hzb_context *context)
{
    hzb_mutex_take(&open_contexts.lock);
    context->next_open = open_contexts.first;
    open_contexts.first = context;
    hzb_mutex_drop(&open_contexts.lock);
}

/* Drop a reference; whether it was the last, and nobody can find the context any more. */
static bool drop_reference(struct hzb_context *context)
{
    hzb_mutex_take(&open_contexts.lock);
    bool last = --context->references == 0;
    struct hzb_context **link = &open_contexts.first;
    while (last && *link && *link != context)
        link = &(*link)->next_open;
    if (last && *link)
        *link = context->next_open;
    hzb_mutex_drop(&open_contexts.lock);
    return last;
}

/* Take one from the list, with a reference. */
static struct hzb_context *take_open(void)
{
    hzb_mutex_take(&open_contexts.lock);
    struct hzb_context *context = open_contexts.first;
    if (context) {
        open_contexts.first = context->next_open;
        hzb_context_retain(context);
    }
    hzb_mutex_drop(&open_contexts.lock);
    return context;
}

static enum hzb_status fail_inherited(const struct hzb_device_info *info, struct hzb_error *err)
{
    if (info->kind != HZB_KIND_NATIVE && hzb_check_fork(err))
        return err->status;
    if (!info->survives_fork)
        return hzb_fail(
            err, HZB_FAILED,
            "this process was forked while its parent had %s open, whose driver cannot "
            "be used in such a child: use the spawn or forkserver start method, or make "
            "the first hzb call after the fork",
            info->name);
    return hzb_fail(
        err, HZB_FAILED,
        "the context on %s belongs to the process this one was forked from: make "
        "another with hzb.Context(device=…), or use the spawn or forkserver start method",
        info->name);
}

static bool is_over(void *looks) { return --*(int *)looks < 0; }

/* Free the device. In a forked child its objects are the parent's and are left alone, and so is a
   device that does not come to an end. */
static void free_device(struct hzb_context *context)
{
    int looks = GIVE_UP_LOOKS;
    const struct hzb_hooks bounded = {.interrupted = is_over, .data = &looks};
    struct hzb_error ignored;
    if (inherited(context) || context->left)
        return;
    if (context->plans && hzb_plans_settle_locked(context, &bounded, &ignored) == HZB_INTERRUPTED) {
        context->left = true;
        open_contexts.left = true;
        return;
    }
    hzb_device_wait_idle(context->device); /* where waiting for what was in flight failed */
    hzb_plans_destroy(context->device, context->plans);
    hzb_device_destroy(context->device);
    context->plans = NULL;
    context->device = NULL;
    hzb_blocks_trim();
}

static enum hzb_status open_device(struct hzb_context *context, const struct hzb_choice *choice,
                                   struct hzb_error *err)
{
    enum hzb_status status =
        hzb_device_create(choice->physical, choice->info, &context->device, err);
    if (!status)
        status = hzb_plans_create(&context->plans, err);
    if (status)
        return status;
    context->physical = choice->physical;
    context->info = *choice->info;
    context->limits = context->device->limits;
    for (int use = 0; use < HZB_MEMORY_USES; use++) {
        context->heap[use] = hzb_memory_heap(context->device, (enum hzb_memory_use)use);
        context->heap_bytes[use] = context->device->memory.memoryHeaps[context->heap[use]].size;
    }
    return HZB_OK;
}

static enum hzb_status create(const struct hzb_choice *choice, struct hzb_context **made,
                              struct hzb_error *err)
{
    if (choice->physical && open_contexts.inherited && !choice->info->survives_fork)
        return fail_inherited(choice->info, err);
    struct hzb_context *context = hzb_calloc(1, sizeof *context);
    if (!context)
        return hzb_fail_no_memory(err, sizeof *context);
    if (!hzb_lock_init(&context->lock)) {
        hzb_free(context);
        return hzb_fail(err, HZB_FAILED, "the system has no resources for another lock");
    }
    context->references = 1;
    context->owner = hzb_process();
    enum hzb_status status = HZB_OK;
    if (choice->physical)
        status = open_device(context, choice, err);
    else
        hzb_devices_native(&context->info);
    if (status) {
        hzb_context_release(context);
        return status;
    }
    add_open(context);
    *made = context;
    return HZB_OK;
}

/* Take the right to make contexts. */
static enum hzb_status enter_making(const struct hzb_hooks *hooks, struct hzb_error *err)
{
    enum hzb_status status = lock_wait(&shared.lock, hooks, err);
    if (!status && shared.ended) {
        hzb_lock_drop(&shared.lock);
        return hzb_fail_ended(err);
    }
    return status;
}

static void leave_making(void) { hzb_lock_drop(&shared.lock); }

enum hzb_status hzb_context_create(const char *spec, const struct hzb_hooks *hooks,
                                   struct hzb_context **context, struct hzb_notice *notice,
                                   struct hzb_error *err)
{
    struct hzb_choice choice;
    enum hzb_status status = enter_making(hooks, err);
    if (status)
        return status;
    status = hzb_devices_choose(spec, &choice, notice, err);
    if (!status) {
        status = create(&choice, context, err);
        if (status && hzb_devices_fall_back(&choice, notice, err))
            status = create(&choice, context, err);
    }
    leave_making();
    return status;
}

void hzb_context_retain(struct hzb_context *context) { context->references++; }

bool hzb_context_release_shared(struct hzb_context *context)
{
    long references = context->references;
    while (references > 1)
        if (atomic_compare_exchange_weak(&context->references, &references, references - 1))
            return true;
    return false;
}

void hzb_context_release(struct hzb_context *context)
{
    if (!context || !drop_reference(context))
        return;
    free_device(context);
    if (!inherited(context))
        hzb_lock_destroy(&context->lock);
    hzb_free(context);
}

static enum hzb_status check_usable(const struct hzb_context *context, struct hzb_error *err)
{
    if (context->closed)
        return hzb_fail(err, HZB_FAILED,
                        "the context on %s is closed: make another with hzb.Context(device=…)",
                        context->info.name);
    if (context->lost)
        return hzb_fail(err, HZB_DEVICE_LOST,
                        "the context on %s has lost its device: make another with "
                        "hzb.Context(device=…)",
                        context->info.name);
    return HZB_OK;
}

enum hzb_status hzb_context_enter(struct hzb_context *context, const struct hzb_hooks *hooks,
                                  struct hzb_error *err)
{
    if (inherited(context))
        return fail_inherited(&context->info, err);
    enum hzb_status status = check_usable(context, err);
    if (!status)
        status = lock_wait(&context->lock, hooks, err);
    if (status)
        return status;
    /* It may have been closed or lost during the wait. */
    status = check_usable(context, err);
    if (status)
        hzb_lock_drop(&context->lock);
    return status;
}

void hzb_context_leave(struct hzb_context *context) { hzb_lock_drop(&context->lock); }

enum hzb_status hzb_context_enter_device(struct hzb_context *context, const struct hzb_hooks *hooks,
                                         struct hzb_error *err)
{
    if (hzb_context_is_native(context))
        return hzb_fail(err, HZB_VALUE_ERROR,
                        "device: \"cpu\" builds without Vulkan; pass a Vulkan device");
    return hzb_context_enter(context, hooks, err);
}

enum hzb_status hzb_context_close(struct hzb_context *context, const struct hzb_hooks *hooks,
                                  struct hzb_error *err)
{
    if (inherited(context) || context->closed) {
        context->closed = true;
        return HZB_OK;
    }
    enum hzb_status status = lock_wait(&context->lock, hooks, err);
    if (status)
        return status;
    if (context->plans)
        status = hzb_plans_settle_locked(context, hooks, err);
    if (status != HZB_INTERRUPTED) {
        status = HZB_OK;
        context->closed = true;
        free_device(context);
    }
    hzb_lock_drop(&context->lock);
    return status;
}

/* In a forked child the parent's contexts are not its own, and a thread that is not there any more
   may have held the lock. */
static void forget_contexts(void)
{
    for (struct hzb_context *context = open_contexts.first; context; context = context->next_open)
        open_contexts.inherited |= context->device && !context->info.survives_fork;
    open_contexts.first = NULL;
    open_contexts.left = false;
    open_contexts.lock = (struct hzb_mutex)HZB_MUTEX_INIT;
    shared.first = NULL;
    shared.standard = NULL;
    hzb_lock_init(&shared.lock);
}

bool hzb_contexts_setup(void)
{
    return hzb_lock_init(&shared.lock) && hzb_instance_setup() &&
           hzb_at_fork_in_child(forget_contexts);
}

static void remove_lost(void)
{
    struct hzb_context **link = &shared.first;
    while (*link) {
        struct hzb_context *context = *link;
        if (!context->lost) {
            link = &context->next_shared;
            continue;
        }
        *link = context->next_shared;
        if (shared.standard == context)
            shared.standard = NULL;
        hzb_context_release(context);
    }
}

/* The shared context of the device that was chosen, made if there is none. */
static enum hzb_status share(const struct hzb_choice *choice, struct hzb_context **found,
                             struct hzb_error *err)
{
    struct hzb_context *context = shared.first;
    while (context && context->physical != choice->physical)
        context = context->next_shared;
    if (!context) {
        enum hzb_status status = create(choice, &context, err);
        if (status)
            return status;
        context->next_shared = shared.first;
        shared.first = context;
    }
    *found = context;
    return HZB_OK;
}

static enum hzb_status find_or_create(const char *spec, struct hzb_context **found,
                                      struct hzb_notice *notice, struct hzb_error *err)
{
    remove_lost();
    notice->text[0] = '\0';
    if (!spec && shared.standard) {
        *found = shared.standard;
        return HZB_OK;
    }
    struct hzb_choice choice;
    enum hzb_status status = hzb_devices_choose(spec, &choice, notice, err);
    if (status)
        return status;
    status = share(&choice, found, err);
    if (status && hzb_devices_fall_back(&choice, notice, err))
        status = share(&choice, found, err);
    if (!status && !spec)
        shared.standard = *found;
    return status;
}

enum hzb_status hzb_context_shared(const char *spec, const struct hzb_hooks *hooks,
                                   struct hzb_context **context, struct hzb_notice *notice,
                                   struct hzb_error *err)
{
    enum hzb_status status = enter_making(hooks, err);
    if (status)
        return status;
    status = find_or_create(spec, context, notice, err);
    if (!status)
        hzb_context_retain(*context);
    leave_making();
    return status;
}

void hzb_contexts_shutdown(void)
{
    bool making = hzb_lock_take(&shared.lock, SHUTDOWN_MS) != HZB_LOCK_TAKEN;
    shared.ended = true;
    struct hzb_context *context;
    while ((context = take_open())) {
        if (hzb_lock_take(&context->lock, SHUTDOWN_MS) == HZB_LOCK_TAKEN) {
            context->closed = true;
            free_device(context);
            hzb_lock_drop(&context->lock);
        } else {
            context->left = true;
            open_contexts.left = true;
        }
        hzb_context_release(context);
    }
    hzb_workers_shutdown();
    bool blocks = !hzb_blocks_shutdown();
    hzb_instance_end(making || open_contexts.left || blocks);
    if (!making)
        leave_making();
}
