/* What a context keeps per plan: memory and recorded commands, a bounded number, the least recently
   used given up first. */
#ifndef HZB_CORE_PLANS_H
#define HZB_CORE_PLANS_H

#include "core/context.h"
#include "core/op.h"

enum hzb_status hzb_plans_create(struct hzb_plans **plans, struct hzb_error *err);
/* Every submission must be done. NULL is allowed. */
void hzb_plans_destroy(struct hzb_device *device, struct hzb_plans *plans);

/* The memory and commands for `frames` frames of a plan, recorded and not in flight, or newly made.
   Valid until the next call; hzb_plans_drop gives them up at once (after an error). */
enum hzb_status hzb_plans_get_locked(struct hzb_context *context, const struct hzb_op *op,
                                     const void *plan, uint32_t frames,
                                     const struct hzb_hooks *hooks,
                                     struct hzb_resources **resources, struct hzb_error *err);
void hzb_plans_drop_locked(struct hzb_context *context, struct hzb_resources *resources);

/* Drop what is kept for a plan, unless it is in flight. */
void hzb_plans_forget_locked(struct hzb_context *context, const struct hzb_op *op, const void *plan,
                             uint32_t frames);

/* Wait until a submission is done, or the hooks end the wait: it then stays in flight. */
enum hzb_status hzb_plans_await_locked(struct hzb_context *context, struct hzb_resources *resources,
                                       const struct hzb_hooks *hooks, struct hzb_error *err);
/* Wait in the same way for what interrupted calls left in flight, which is to come before anything
   else is done with a context. */
enum hzb_status hzb_plans_settle_locked(struct hzb_context *context, const struct hzb_hooks *hooks,
                                        struct hzb_error *err);

#endif
