/* Memory of the C part, counted and open to planted faults. */
#include "base/alloc.h"

#include "base/fault.h"

#include <stdatomic.h>
#include <stdlib.h>

static atomic_long live;

void *hzb_calloc(size_t count, size_t size) {
    if (hzb_fault_due(HZB_FAULT_ALLOC)) {
        return NULL;
    }
    /* Never of no bytes: NULL would then not mean failure. */
    void *memory = count && size ? calloc(count, size) : calloc(1, 1);
    if (memory) {
        atomic_fetch_add(&live, 1);
    }
    return memory;
}

void *hzb_realloc(void *old, size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || hzb_fault_due(HZB_FAULT_ALLOC)) {
        return NULL;
    }
    void *memory = realloc(old, bytes ? bytes : 1);
    if (memory && !old) {
        atomic_fetch_add(&live, 1);
    }
    return memory;
}

void hzb_free(void *memory) {
    if (memory) {
        atomic_fetch_sub(&live, 1);
        free(memory);
    }
}

long hzb_live_allocations(void) {
    return atomic_load(&live);
}
