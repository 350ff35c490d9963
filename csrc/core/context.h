/* A context: one device with its lock, its kept submissions and its state (closed, lost). */
#ifndef HZB_CORE_CONTEXT_H
#define HZB_CORE_CONTEXT_H

#include "base/threads.h"
#include "core/devices.h"
#include "vulkan/memory.h"

#include <sys/types.h>

/* How core asks the binding whether a signal handler raised; called without any interpreter lock
   held. NULL `interrupted`: never. */
struct hzb_hooks {
    bool (*interrupted)(void *data);
    void *data;
};

struct hzb_plans;

struct hzb_context {
    atomic_long references;
    pid_t owner;
    struct hzb_lock lock;
    struct hzb_device *device;
    struct hzb_plans *plans;
    /* Facts about the device, there without the lock and also once it is closed. */
    VkPhysicalDevice physical;
    struct hzb_device_info info;
    struct hzb_limits limits;
    uint32_t heap[HZB_MEMORY_USES]; /* by enum hzb_memory_use */
    uint64_t heap_bytes[HZB_MEMORY_USES];
    struct hzb_context *next_shared;
    struct hzb_context *next_open; /* of all contexts in the process */
    atomic_bool closed;
    atomic_bool lost;
    char notice[512]; /* a line for the log, until the binding has taken it; empty: none */
};

/* Once a process, before anything else here; false when the system has no resources for it. */
bool hzb_contexts_setup(void);

/* Open a context of its own on the device of a spec (core/devices.h). */
enum hzb_status hzb_context_create(const char *spec, struct hzb_context **context,
                                   struct hzb_error *err);

/* A new reference to the process's shared context for a spec, made at its first use; NULL is the
   default device. Made anew after a fork, a lost device or a close. Interruptible while another
   thread makes one. */
enum hzb_status hzb_context_shared(const char *spec, const struct hzb_hooks *hooks,
                                   struct hzb_context **context, struct hzb_error *err);

void hzb_context_retain(struct hzb_context *context);
/* Dropping the last reference closes; NULL is allowed. May wait for the device: call it without the
   interpreter lock. */
void hzb_context_release(struct hzb_context *context);

/* Take the context's lock for work, failing when it is closed, lost, of another process (forked),
   or held by this very thread. */
enum hzb_status hzb_context_enter(struct hzb_context *context, const struct hzb_hooks *hooks,
                                  struct hzb_error *err);
void hzb_context_leave(struct hzb_context *context);

/* Wait for the work in flight and free the device; later uses fail. Idempotent. */
enum hzb_status hzb_context_close(struct hzb_context *context, const struct hzb_hooks *hooks,
                                  struct hzb_error *err);

/* Close every context and destroy the instance; for the exit hook, which must not wait for
   ever: a context that stays busy for a second is left to the system. */
void hzb_contexts_shutdown(void);

#endif
