/* Memory for results, in blocks that are used again: touching fresh pages costs more than a build.
   How a result is laid out in a block is the binding's business (python/arrays.c). */
#ifndef HZB_CORE_BLOCKS_H
#define HZB_CORE_BLOCKS_H

#include "base/status.h"

#include <stdint.h>

#define HZB_BLOCK_ALIGNMENT 64

struct hzb_block;

/* Once a process, before anything else here; false when the system has no resources for it. */
bool hzb_blocks_setup(void);

/* A block of at least `bytes` bytes, content undefined. NULL, which is no error, where the blocks
   in use would exceed HZB_PINNED_LIMIT or the system has no memory: results then go to memory that
   is not shared. Fails only for a HZB_PINNED_LIMIT that is no number. */
enum hzb_status hzb_block_take(uint64_t bytes, struct hzb_block **block, struct hzb_error *err);
/* At a multiple of HZB_BLOCK_ALIGNMENT. */
char *hzb_block_data(struct hzb_block *block);
/* The end of a block's use, by any thread, under any lock: nothing is awaited. NULL is allowed. */
void hzb_block_release(struct hzb_block *block);

/* Free the blocks that nobody uses. */
void hzb_blocks_trim(void);

/* Bytes of all blocks and, of them, of those that nobody uses. */
void hzb_blocks_bytes(uint64_t *all, uint64_t *idle);

#endif
