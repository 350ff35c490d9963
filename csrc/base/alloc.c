/* Memory of the C part, counted and open to planted faults. */
#include "base/alloc.h"

#include "base/fault.h"

#include <stdatomic.h>
#include <stdlib.h>

static atomic_long live;

/* Whether `count` objects of `size` bytes can be asked for; never of no bytes, for which NULL would
   not mean failure. */
static bool byte_count(size_t count, size_t size, size_t *bytes)
{
    bool overflow = __builtin_mul_overflow(count, size, bytes);
    *bytes += !*bytes;
    return !overflow && !hzb_fault_due(HZB_FAULT_ALLOC);
}

void *hzb_calloc(size_t count, size_t size)
{
    size_t bytes;
    void *memory = byte_count(count, size, &bytes) ? calloc(1, bytes) : NULL;
    if (memory)
        atomic_fetch_add(&live, 1);
    return memory;
}

void *hzb_realloc(void *old, size_t count, size_t size)
{
    size_t bytes;
    void *memory = byte_count(count, size, &bytes) ? realloc(old, bytes) : NULL;
    if (memory && !old)
        atomic_fetch_add(&live, 1);
    return memory;
}

void hzb_free(void *memory)
{
    if (memory) {
        atomic_fetch_sub(&live, 1);
        free(memory);
    }
}

long hzb_live_allocations(void) { return atomic_load(&live); }
