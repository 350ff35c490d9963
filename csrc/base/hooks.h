/* How work on any floor asks its caller whether to go on. */
#ifndef HZB_BASE_HOOKS_H
#define HZB_BASE_HOOKS_H

#include "base/status.h"

/* How core asks the binding whether the call has to end, for an exception that it has raised;
   called without any interpreter lock held. NULL `interrupted`: never. */
struct hzb_hooks {
    bool (*interrupted)(void *data);
    void *data;
};

/* Ask; HZB_INTERRUPTED when the work is to end. Some times a second, for it may have to wait for
   the interpreter lock. */
static inline enum hzb_status hzb_look(const struct hzb_hooks *hooks, struct hzb_error *err)
{
    if (hooks->interrupted && hooks->interrupted(hooks->data))
        return hzb_fail(err, HZB_INTERRUPTED, "interrupted");
    return HZB_OK;
}

#endif
