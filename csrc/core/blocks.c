/* The pool of blocks: those that nobody uses, in order of their last use, the latest first. Its
   lock is a leaf, held for a few instructions: memory is asked for and freed outside of it. */
#include "core/blocks.h"

#include "base/alloc.h"
#include "base/threads.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Unless HZB_PINNED_LIMIT says otherwise: bytes of all blocks, in use or not. */
#define DEFAULT_LIMIT (UINT64_C(1) << 30)

enum {
    MAX_IDLE = 32,
    /* The part of the limit that idle blocks may keep, the one used last aside. */
    IDLE_PART = 4,
    /* A block is not spent on a result that is smaller than it by more than this factor: what is
       kept of the result keeps all of the block. */
    MAX_WASTE = 2,
};

struct hzb_block {
    atomic_long references;
    char *data;
    uint64_t bytes;
    struct hzb_device *device; /* a reference; NULL: the block is plain memory */
    struct hzb_buffer buffer;
    void *memory; /* where `data` lies if it is plain */
    pid_t owner;
    unsigned forks;         /* that the process had seen when the block was taken */
    struct hzb_block *next; /* of those that are to be freed, or that are left */
};

static struct {
    struct hzb_mutex lock;
    struct hzb_block *idle[MAX_IDLE];
    int idle_count;
    uint64_t idle_bytes, bytes; /* of the idle blocks, of all */
    uint64_t limit;             /* as last read */
    long on_devices;            /* blocks that are not plain, of this process */
    bool ended;                 /* the exit hook has run: no device is called any more */
    struct hzb_block *left;
    unsigned forks;
} pool = {.lock = HZB_MUTEX_INIT};

/* ---- forks ---- */

static void before_fork(void) { hzb_mutex_take(&pool.lock); }

/* A block in use is from now on that of two processes, each of which has arrays on it: it must not
   be used again. Memory of a device is even the same for both, and is the parent's to free. */
static void after_fork(void)
{
    pool.forks++;
    hzb_mutex_drop(&pool.lock);
}

static void after_fork_in_child(void)
{
    pool.on_devices = 0;
    after_fork();
}

bool hzb_blocks_setup(void) { return hzb_at_fork(before_fork, after_fork, after_fork_in_child); }

/* ---- the limit ---- */

/* A number of bytes such as "0" or "256M". */
static bool parse_bytes(const char *text, uint64_t *bytes)
{
    static const char suffixes[] = "KMG";
    if (!isdigit((unsigned char)*text))
        return false;
    char *end;
    errno = 0;
    *bytes = strtoull(text, &end, 10);
    const char *suffix = *end ? strchr(suffixes, *end) : NULL;
    uint64_t unit = suffix ? UINT64_C(1024) << (10 * (suffix - suffixes)) : 1;
    return !errno && !end[suffix != NULL] && !__builtin_mul_overflow(*bytes, unit, bytes);
}

static enum hzb_status read_limit(uint64_t *limit, struct hzb_error *err)
{
    const char *text = getenv("HZB_PINNED_LIMIT");
    *limit = DEFAULT_LIMIT;
    if (text && *text && !parse_bytes(text, limit))
        return hzb_fail(err, HZB_VALUE_ERROR,
                        "HZB_PINNED_LIMIT: '%.100s' is not a number of bytes; set it to one such "
                        "as 0, 256M or 2G, or unset it for 1G",
                        text);
    return HZB_OK;
}

/* ---- blocks ---- */

static void count_on_devices(int change)
{
    hzb_mutex_take(&pool.lock);
    pool.on_devices += change;
    hzb_mutex_drop(&pool.lock);
}

/* Free a block that is not counted among the pool's bytes any more. */
static void destroy(struct hzb_block *block)
{
    if (block->device && block->owner == hzb_process()) {
        hzb_buffer_destroy(block->device, &block->buffer);
        hzb_device_release(block->device);
        count_on_devices(-1);
    }
    hzb_free(block->memory);
    hzb_free(block);
}

static void destroy_all(struct hzb_block *block)
{
    while (block) {
        struct hzb_block *next = block->next;
        destroy(block);
        block = next;
    }
}

/* Take an idle block out of the pool. */
static struct hzb_block *remove_locked(int index)
{
    struct hzb_block *block = pool.idle[index];
    pool.idle_count--;
    pool.idle_bytes -= block->bytes;
    memmove(&pool.idle[index], &pool.idle[index + 1],
            (size_t)(pool.idle_count - index) * sizeof pool.idle[0]);
    return block;
}

/* Have a block freed, with those before it, once the lock is dropped. */
static void condemn_locked(struct hzb_block *block, struct hzb_block **condemned)
{
    pool.bytes -= block->bytes;
    block->next = *condemned;
    *condemned = block;
}

static void condemn_oldest_locked(struct hzb_block **condemned)
{
    condemn_locked(remove_locked(pool.idle_count - 1), condemned);
}

/* The smallest idle block that will do. */
static struct hzb_block *reuse_locked(const struct hzb_device *device, uint64_t bytes)
{
    int best = -1;
    for (int i = 0; i < pool.idle_count; i++) {
        uint64_t size = pool.idle[i]->bytes;
        if (pool.idle[i]->device == device && bytes <= size && size / MAX_WASTE <= bytes &&
            (best < 0 || size < pool.idle[best]->bytes))
            best = i;
    }
    return best < 0 ? NULL : remove_locked(best);
}

/* Count the bytes of another block, for which idle ones make room; false beyond the limit. */
static bool reserve_locked(uint64_t bytes, struct hzb_block **condemned)
{
    if (bytes > pool.limit || pool.bytes - pool.idle_bytes > pool.limit - bytes)
        return false;
    while (pool.bytes > pool.limit - bytes)
        condemn_oldest_locked(condemned);
    pool.bytes += bytes;
    return true;
}

static bool allocate_plain(struct hzb_block *block)
{
    /* Not zeroed: it may be memory that has been touched already. */
    block->memory = hzb_realloc(NULL, block->bytes + HZB_BLOCK_ALIGNMENT - 1, 1);
    uintptr_t address = (uintptr_t)block->memory;
    block->data = (char *)block->memory + -address % HZB_BLOCK_ALIGNMENT;
    return block->memory;
}

static bool allocate_on(struct hzb_device *device, struct hzb_block *block)
{
    struct hzb_error ignored;
    if (hzb_buffer_create(device, HZB_MEMORY_READBACK, block->bytes, &block->buffer, &ignored))
        return false;
    count_on_devices(1);
    hzb_device_retain(device);
    block->device = device;
    block->data = block->buffer.mapped;
    return true;
}

static struct hzb_block *create(struct hzb_device *device, uint64_t bytes)
{
    struct hzb_block *block = hzb_calloc(1, sizeof *block);
    if (!block)
        return NULL;
    block->bytes = bytes;
    block->owner = hzb_process();
    if (!(device ? allocate_on(device, block) : allocate_plain(block))) {
        hzb_free(block);
        return NULL;
    }
    return block;
}

enum hzb_status hzb_block_take(struct hzb_device *device, uint64_t bytes, struct hzb_block **taken,
                               struct hzb_error *err)
{
    uint64_t limit;
    enum hzb_status status = read_limit(&limit, err);
    if (status)
        return status;
    struct hzb_block *condemned = NULL;
    hzb_mutex_take(&pool.lock);
    pool.limit = limit;
    unsigned forks = pool.forks;
    struct hzb_block *block = reuse_locked(device, bytes);
    bool reserved = !block && reserve_locked(bytes, &condemned);
    hzb_mutex_drop(&pool.lock);
    destroy_all(condemned);
    if (reserved) {
        block = create(device, bytes);
        if (!block) {
            hzb_mutex_take(&pool.lock);
            pool.bytes -= bytes;
            hzb_mutex_drop(&pool.lock);
        }
    }
    if (block) {
        block->references = 1;
        block->forks = forks;
    }
    *taken = block;
    return HZB_OK;
}

char *hzb_block_data(const struct hzb_block *block) { return block->data; }

struct hzb_buffer *hzb_block_buffer(struct hzb_block *block)
{
    return block->device ? &block->buffer : NULL;
}

void hzb_block_retain(struct hzb_block *block) { block->references++; }

static void keep_locked(struct hzb_block *block, struct hzb_block **condemned)
{
    if (pool.idle_count == MAX_IDLE)
        condemn_oldest_locked(condemned);
    memmove(&pool.idle[1], &pool.idle[0], (size_t)pool.idle_count * sizeof pool.idle[0]);
    pool.idle[0] = block;
    pool.idle_count++;
    pool.idle_bytes += block->bytes;
    while (pool.idle_count > 1 && pool.idle_bytes > pool.limit / IDLE_PART)
        condemn_oldest_locked(condemned);
}

/* Leave a block to the system, within reach, where leak checkers see it. */
static void leave_locked(struct hzb_block *block)
{
    block->next = pool.left;
    pool.left = block;
}

/* Whether a block may be used again. */
static bool is_reusable_locked(const struct hzb_block *block)
{
    return block->forks == pool.forks && !(block->device && block->device->destroyed);
}

void hzb_block_release(struct hzb_block *block)
{
    if (!block || --block->references)
        return;
    struct hzb_block *condemned = NULL;
    hzb_mutex_take(&pool.lock);
    if (block->device && pool.ended)
        leave_locked(block);
    else if (is_reusable_locked(block))
        keep_locked(block, &condemned);
    else
        condemn_locked(block, &condemned);
    hzb_mutex_drop(&pool.lock);
    destroy_all(condemned);
}

void hzb_blocks_trim(void)
{
    struct hzb_block *condemned = NULL;
    hzb_mutex_take(&pool.lock);
    while (pool.idle_count)
        condemn_oldest_locked(&condemned);
    hzb_mutex_drop(&pool.lock);
    destroy_all(condemned);
}

bool hzb_blocks_shutdown(void)
{
    hzb_mutex_take(&pool.lock);
    pool.ended = true;
    bool none = pool.on_devices == 0;
    hzb_mutex_drop(&pool.lock);
    return none;
}

void hzb_blocks_bytes(uint64_t *all, uint64_t *idle)
{
    hzb_mutex_take(&pool.lock);
    *all = pool.bytes;
    *idle = pool.idle_bytes;
    hzb_mutex_drop(&pool.lock);
}
