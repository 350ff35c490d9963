/* The counters behind planted faults; what a failure looks like is up to each choke point. */
#include "base/fault.h"

#include <stdatomic.h>

static struct {
    atomic_long armed; /* the call that fails; 0: none */
    atomic_long calls;
} faults[HZB_FAULT_KINDS];

void hzb_fault_arm(enum hzb_fault kind, long nth)
{
    /* Disarmed while the count restarts: calls of other threads must not meet the old number. */
    atomic_store(&faults[kind].armed, 0);
    atomic_store(&faults[kind].calls, 0);
    atomic_store(&faults[kind].armed, nth);
}

long hzb_fault_calls(enum hzb_fault kind) { return atomic_load(&faults[kind].calls); }

bool hzb_fault_due(enum hzb_fault kind)
{
    return atomic_fetch_add(&faults[kind].calls, 1) + 1 == atomic_load(&faults[kind].armed);
}
