/* How work on any floor asks its caller whether to go on. */
#ifndef HZB_BASE_HOOKS_H
#define HZB_BASE_HOOKS_H

#include "base/status.h"

/* How core asks the binding whether a signal handler raised; called without any interpreter lock
   held. NULL `interrupted`: never. */
struct hzb_hooks {
    bool (*interrupted)(void *data);
    void *data;
};

/* Ask; HZB_INTERRUPTED when the work is to end. */
static inline enum hzb_status hzb_look(const struct hzb_hooks *hooks, struct hzb_error *err)
{
    if (hooks->interrupted && hooks->interrupted(hooks->data))
        return hzb_fail(err, HZB_INTERRUPTED, "interrupted");
    return HZB_OK;
}

#endif
