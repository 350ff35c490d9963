/* Memory for results, in blocks that are used again: touching fresh pages costs more than a build.
   How a result is laid out in a block is the binding's business (python/arrays.c). */
#ifndef HZB_CORE_BLOCKS_H
#define HZB_CORE_BLOCKS_H

#include "vulkan/memory.h"

#define HZB_BLOCK_ALIGNMENT 64

struct hzb_block;

/* Once a process, before anything else here; false when the system has no resources for it. */
bool hzb_blocks_setup(void);

/* A block of at least `bytes` bytes, content undefined: read-back memory of `device`, which lives
   on for as long as the block, or plain memory of the host where that is NULL. No block, which is
   no error, where those in use would exceed HZB_PINNED_LIMIT or there is no memory: results then go
   to memory that is not shared. Fails only for a HZB_PINNED_LIMIT that is no number. */
enum hzb_status hzb_block_take(struct hzb_device *device, uint64_t bytes, struct hzb_block **block,
                               struct hzb_error *err);
/* At a multiple of HZB_BLOCK_ALIGNMENT. */
char *hzb_block_data(const struct hzb_block *block);
/* The whole of the block as the device sees it; NULL for plain memory. */
struct hzb_buffer *hzb_block_buffer(struct hzb_block *block);

void hzb_block_retain(struct hzb_block *block);
/* By any thread, under any lock: nothing is awaited. NULL is allowed. */
void hzb_block_release(struct hzb_block *block);

/* Free the blocks that nobody uses. */
void hzb_blocks_trim(void);

/* For the exit hook, once all devices are closed: memory of devices that is still in use is left to
   the system from now on. Returns whether there was none. */
bool hzb_blocks_shutdown(void);

/* Bytes of all blocks and, of them, of those that nobody uses. */
void hzb_blocks_bytes(uint64_t *all, uint64_t *idle);

#endif
