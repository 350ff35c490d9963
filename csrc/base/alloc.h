/* The only callers of malloc and free, so that tests can make any allocation fail and count what
   is alive. */
#ifndef HZB_BASE_ALLOC_H
#define HZB_BASE_ALLOC_H

#include <stddef.h>

/* Zeroed memory for `count` objects of `size` bytes; NULL when there is none or on overflow. */
void *hzb_calloc(size_t count, size_t size);
/* `old` grown or shrunk to `count` objects of `size` bytes; NULL leaves `old` as it was. */
void *hzb_realloc(void *old, size_t count, size_t size);
void hzb_free(void *memory);

long hzb_live_allocations(void);

#endif
