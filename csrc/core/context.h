/* A context: one device, or the processor, with its lock, its kept submissions and its state
   (closed, lost). */
#ifndef HZB_CORE_CONTEXT_H
#define HZB_CORE_CONTEXT_H

#include "base/hooks.h"
#include "base/threads.h"
#include "core/devices.h"
#include "core/op.h"
#include "vulkan/memory.h"

#include <sys/types.h>

struct hzb_plans;

struct hzb_context {
    atomic_long references;
    pid_t owner;
    struct hzb_lock lock;
    struct hzb_device *device; /* NULL: the processor, or closed */
    struct hzb_plans *plans;
    /* Facts about the device, there without the lock and also once it is closed. Of the processor
       there are no more than its record. */
    VkPhysicalDevice physical;
    struct hzb_device_info info;
    struct hzb_limits limits;
    /* Known cases that came out right, under the lock, and what other cases made distrusted. */
    uint32_t known_right[HZB_KNOWN_CASES / 32];
    atomic_uint distrusted;
    atomic_uint untold;             /* of those, what the user has not been told of */
    uint32_t heap[HZB_MEMORY_USES]; /* by enum hzb_memory_use */
    uint64_t heap_bytes[HZB_MEMORY_USES];
    struct hzb_context *next_shared;
    struct hzb_context *next_open; /* of all contexts in the process */
    atomic_bool closed;
    atomic_bool lost;
    atomic_bool left; /* the device is left to the system, which frees it with the process */
};

/* Once a process, before anything else here; false when the system has no resources for it. */
bool hzb_contexts_setup(void);

static inline bool hzb_context_is_native(const struct hzb_context *context)
{
    return context->info.kind == HZB_KIND_NATIVE;
}

/* What plans depend on, less what the driver was found to get wrong. */
struct hzb_limits hzb_context_limits(const struct hzb_context *context);

/* Open a context of its own on the device of a spec (core/devices.h, also for `notice`).
   Interruptible while another thread makes one, as is the next. */
enum hzb_status hzb_context_create(const char *spec, const struct hzb_hooks *hooks,
                                   struct hzb_context **context, struct hzb_notice *notice,
                                   struct hzb_error *err);

/* A new reference to the process's shared context for a spec, made at its first use; NULL is the
   default device. Made anew after a fork or a lost device. */
enum hzb_status hzb_context_shared(const char *spec, const struct hzb_hooks *hooks,
                                   struct hzb_context **context, struct hzb_notice *notice,
                                   struct hzb_error *err);

void hzb_context_retain(struct hzb_context *context);
/* Drop a reference that is not the last, without a wait; false, and nothing is done, where it is.
 */
bool hzb_context_release_shared(struct hzb_context *context);
/* Dropping the last reference closes; NULL is allowed. May wait for the device: call it without the
   interpreter lock. */
void hzb_context_release(struct hzb_context *context);

/* Take the context's lock for work, failing when it is closed, lost, of another process (forked),
   or held by this very thread. */
enum hzb_status hzb_context_enter(struct hzb_context *context, const struct hzb_hooks *hooks,
                                  struct hzb_error *err);
void hzb_context_leave(struct hzb_context *context);

/* The same for what only a Vulkan device can do. */
enum hzb_status hzb_context_enter_device(struct hzb_context *context, const struct hzb_hooks *hooks,
                                         struct hzb_error *err);

/* Wait for the work in flight and free the device; later uses fail. Idempotent; still open when the
   wait was interrupted. */
enum hzb_status hzb_context_close(struct hzb_context *context, const struct hzb_hooks *hooks,
                                  struct hzb_error *err);

/* Close every context, end the worker threads and the instance, so that nobody can use a driver any
   more; for the exit hook, which must not wait for ever: a context that stays busy for a second is
   left to the system, and so is a device that does not end its work within ten. */
void hzb_contexts_shutdown(void);

#endif
