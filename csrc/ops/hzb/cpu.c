/* Which rows of which level are made from which, and by which thread. The loops over the texels of
   a row are in cpu_kernels.c.

   Only level 0 is rounded. Rounding is monotone, so the levels above are minima and maxima of
   stored texels: every row is made from rows of the level before it where these lie in the caller's
   arrays, as soon as they are there and so while the cache holds them. Even the steps of "unreal",
   each fourth level once more, are monotone. */
#include "ops/hzb/cpu.h"

#include "base/system.h"
#include "base/workers.h"
#include "ops/hzb/cpu_kernels.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* Texels of level 0 made at a time: what that needs stays in the first caches. */
    CHUNK = 2048,
    /* Rows of them, where neighbours in memory belong to different rows or rows are short. */
    TILE_ROWS = 8,
    /* Texels whose numbers are easy or not. */
    PIECE = 128,
    /* How many pieces, and of how many texels, are not tried as easy numbers after two in turn that
       were not. */
    PATIENCE = 8,
    HARD_PIECE = 512,
    /* Source pixels that are worth a thread of their own. */
    PIXELS_A_THREAD = 1 << 17,
    BANDS_A_THREAD = 4,
    /* Source pixels that are not worth a second band. */
    PIXELS_A_BAND = 1 << 14,
    /* Source pixels between looks for a signal. */
    PIXELS_A_LOOK = 1 << 22,
    UNREAL_BATCH = 4,
    CACHE_LINE = 64,
};

/* How one side of a level comes from the same side of its source. */
struct axis {
    int64_t source, side;
    int64_t distinct; /* texels from this one on are equal to the one before it */
    int64_t pairs;    /* texels of which i stands for 2i to 2i + taps - 1 */
    int taps;
    int64_t last; /* what texel `pairs`, if there is one, stands for: this and, if any, the next */
};

struct build {
    const struct hzb_cpu_kernels *kernels;
    const struct hzb_frames *frames;
    const struct hzb_output *outputs;
    int64_t x, y; /* of the rectangle in the frame */
    int levels, chains;
    bool takes_max[2];
    enum hzb_cpu_rounding rounding[2];
    bool words; /* texels are float32 */
    size_t texel_bytes;
    bool unreal, nan_wins;
    bool in_place; /* rows of the frames are float32 words as they lie */
    int tile_rows; /* of level 0 to be made at a time */
    struct axis columns[HZB_MAX_LEVELS], rows[HZB_MAX_LEVELS];
};

/* Consecutive levels that are made together, band by band. A band is `units` times 2^shift rows of
   the first level, and what stands for the same pixels in the others. */
struct stage {
    int first, end, shift;
    int64_t units, bands;
};

/* ---- levels ---------------------------------------------------------------------------------- */

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* `source_distinct` is the `distinct` of the source: its side for a frame. */
static struct axis axis_of(enum hzb_sizing sizing, int64_t source, int64_t source_distinct,
                           int level)
{
    struct axis axis = {.source = source, .side = hzb_level_side(sizing, source, 0), .taps = 2};
    axis.distinct = axis.side;
    axis.last = source - 1;
    if (sizing == HZB_SIZING_POW2) {
        /* The frame's last window is pushed back inside; that of a level is all of equal texels. */
        axis.last = source > 1 ? source - 2 : 0;
        axis.distinct = smaller(axis.side, level == 0 ? (source + 1) / 2 : source_distinct / 2 + 1);
    } else if (sizing == HZB_SIZING_FLOOR && source > 1) {
        axis.taps += source % 2;
    }
    axis.pairs = source / 2;
    return axis;
}

/* The rows or columns of the source that texel `i` stands for; returns how many. */
static int taps_of(const struct axis *axis, int64_t i, int64_t taps[3])
{
    int64_t first = i < axis->pairs ? 2 * i : axis->last;
    for (int j = 0; j < 3; j++)
        taps[j] = smaller(first + j, axis->source - 1);
    return i < axis->pairs ? axis->taps : 2;
}

static char *level_row(const struct build *build, int64_t frame, int chain, int level, int64_t row)
{
    const struct hzb_output *output = &build->outputs[chain * build->levels + level];
    return (char *)output->data + (uint64_t)frame * output->frame_bytes +
           (uint64_t)(row * build->columns[level].side) * build->texel_bytes;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Where a row of texels comes from: texel i from columns 2i to 2i + taps - 1 of each row. */
struct window {
    const void *rows[3];
    int row_count, taps;
};

/* A window as kernels take it, two rows at a time; with three taps a row is there twice, once from
   its second column on, and a row without another is its own. */
struct passes {
    const char *rows[6];
    int count;
};

static void open_passes(const struct window *window, size_t column_bytes, struct passes *passes)
{
    int rows = 0;
    for (int i = 0; i < window->row_count; i++)
        for (int tap = 0; tap < window->taps - 1; tap++)
            passes->rows[rows++] = (const char *)window->rows[i] + (size_t)tap * column_bytes;
    if (rows % 2) {
        passes->rows[rows] = passes->rows[rows - 1];
        rows++;
    }
    passes->count = rows / 2;
}

static enum hzb_cpu_pass which(const struct passes *passes, int i)
{
    return (i == 0 ? HZB_CPU_FIRST : 0) | (i == passes->count - 1 ? HZB_CPU_LAST : 0);
}

/* Make texels of a window, from texel `first` on. */
static void reduce(const struct build *build, bool words, int chain, const struct passes *passes,
                   int64_t first, int64_t count, void *best)
{
    hzb_cpu_reduce *kernel = build->kernels->reduce[words][build->takes_max[chain]];
    const size_t offset = 2 * (size_t)first * (words ? sizeof(uint32_t) : sizeof(uint16_t));
    for (int i = 0; i < passes->count; i++)
        kernel(passes->rows[2 * i] + offset, passes->rows[2 * i + 1] + offset, count,
               build->nan_wins, which(passes, i), best);
}

/* The same of words for all chains, to an array for each. */
static void reduce_words(const struct build *build, const struct passes *passes, int64_t first,
                         int64_t count, void *const best[2])
{
    if (build->chains == 1) {
        reduce(build, true, 0, passes, first, count, best[0]);
        return;
    }
    void *low = best[build->takes_max[0]], *high = best[build->takes_max[1]];
    const size_t offset = 2 * (size_t)first * sizeof(uint32_t);
    for (int i = 0; i < passes->count; i++)
        build->kernels->reduce_both(passes->rows[2 * i] + offset, passes->rows[2 * i + 1] + offset,
                                    count, build->nan_wins, which(passes, i), low, high);
}

/* The same, if numbers are easy, to float16. Whether they were. */
static bool reduce_easy(const struct build *build, const struct passes *passes, int64_t first,
                        int64_t count, const struct hzb_cpu_bound bounds[2])
{
    hzb_cpu_easy *kernel = build->kernels->easy[build->chains > 1 ? 2 : build->takes_max[0]];
    const size_t offset = 2 * (size_t)first * sizeof(uint32_t);
    bool easy = true;
    for (int i = 0; easy && i < passes->count; i++)
        easy = kernel(passes->rows[2 * i] + offset, passes->rows[2 * i + 1] + offset, count,
                      which(passes, i), bounds);
    return easy;
}

/* A part of the rectangle as words: as they lie, or read into `buffer`. `pitch` is words from row
   to row. */
static const uint32_t *read_words(const struct build *build, int64_t frame, struct hzb_rect part,
                                  uint32_t *buffer, int64_t *pitch)
{
    const struct hzb_frames *frames = build->frames;
    part.x += (uint32_t)build->x;
    part.y += (uint32_t)build->y;
    if (build->in_place) {
        const void *row = hzb_frames_at(frames, frame) + part.y * frames->row_stride;
        *pitch = frames->row_stride / (int64_t)sizeof(uint32_t);
        return (const uint32_t *)row + part.x;
    }
    hzb_frames_read(frames, frame, part, part.width, buffer);
    *pitch = part.width;
    return buffer;
}

/* The rows of the next window, at the same columns; NULL: there is none, or it lies elsewhere. */
struct ahead {
    const uint32_t *rows;
    int64_t pitch, width;
};

/* Memory is read fastest in order, which two rows at a time are not: while texels of one window are
   made, the same share of the next is brought nearer, its rows one after the other. */
static void fetch(const struct ahead *ahead, int64_t texel, int64_t count)
{
    const int64_t line = CACHE_LINE / (int64_t)sizeof(*ahead->rows);
    for (int64_t i = 4 * texel; ahead->rows && i < 4 * (texel + count); i += line) {
        const bool second = i >= ahead->width;
        __builtin_prefetch(ahead->rows + (second ? ahead->pitch - ahead->width : 0) + i, 0, 2);
    }
}

/* Make texels of a row of level 0 in float16, from texel `first` of the window on, at most
   HARD_PIECE. */
static void make_any_halves(const struct build *build, const struct passes *passes, int64_t first,
                            int64_t count, const struct ahead *ahead, uint16_t *const targets[2])
{
    uint32_t best[2][HARD_PIECE];
    for (int64_t done = 0; done < count; done += PIECE) {
        const int64_t piece = smaller(PIECE, count - done);
        fetch(ahead, first + done, piece);
        reduce_words(build, passes, first + done, piece,
                     (void *const[2]){best[0] + done, best[1] + done});
    }
    for (int chain = 0; chain < build->chains; chain++)
        build->kernels->round(best[chain], count, build->rounding[chain], targets[chain] + first);
}

/* The same, if numbers are easy, of at most a piece. Whether they were. */
static bool make_easy_halves(const struct build *build, const struct passes *passes, int64_t first,
                             int64_t count, const struct ahead *ahead, uint16_t *const targets[2])
{
    uint32_t best[2][PIECE];
    struct hzb_cpu_bound bounds[2] = {{0}};
    for (int chain = 0; chain < build->chains; chain++)
        bounds[build->takes_max[chain]] =
            (struct hzb_cpu_bound){best[chain], build->rounding[chain], targets[chain] + first};
    fetch(ahead, first, count);
    return reduce_easy(build, passes, first, count, bounds);
}

/* Make a row of texels of level 0 in float16, piece by piece. */
static void make_halves(const struct build *build, const struct passes *passes, int64_t count,
                        const struct ahead *ahead, uint16_t *const targets[2], int *patience)
{
    const struct ahead nothing = {NULL};
    int64_t piece;
    for (int64_t done = 0; done < count; done += piece) {
        if (*patience > 1) {
            piece = smaller(HARD_PIECE, count - done);
            make_any_halves(build, passes, done, piece, ahead, targets);
            --*patience;
            continue;
        }
        piece = smaller(PIECE, count - done);
        bool easy = make_easy_halves(build, passes, done, piece, ahead, targets);
        if (!easy)
            make_any_halves(build, passes, done, piece, &nothing, targets);
        *patience = easy ? 0 : *patience ? PATIENCE + 1 : 1;
    }
}

/* The same in float32. */
static void make_words(const struct build *build, const struct passes *passes, int64_t count,
                       const struct ahead *ahead, uint32_t *const targets[2])
{
    for (int64_t done = 0; done < count; done += PIECE) {
        const int64_t piece = smaller(PIECE, count - done);
        fetch(ahead, done, piece);
        reduce_words(build, passes, done, piece,
                     (void *const[2]){targets[0] + done, targets[1] + done});
        for (int chain = 0; chain < build->chains; chain++)
            build->kernels->tidy(targets[chain] + done, piece);
    }
}

/* Make `count` texels of a row of level 0, from texel `left` on; the window starts there. */
static void make_texels(const struct build *build, int64_t frame, int64_t row, int64_t left,
                        const struct window *window, int64_t count, const struct ahead *ahead,
                        int *patience)
{
    struct passes passes;
    open_passes(window, sizeof(uint32_t), &passes);
    /* Of one chain both are the same, so that there are always two. */
    void *targets[2];
    for (int chain = 0; chain < 2; chain++)
        targets[chain] = level_row(build, frame, chain % build->chains, 0, row) +
                         (size_t)left * build->texel_bytes;
    if (build->words)
        make_words(build, &passes, count, ahead, (uint32_t *const[2]){targets[0], targets[1]});
    else
        make_halves(build, &passes, count, ahead, (uint16_t *const[2]){targets[0], targets[1]},
                    patience);
}

/* Make texels [left, left + count) of `row_count` rows of level 0: pairs, or the one after them. */
static void make_tile(const struct build *build, int64_t frame, int64_t row, int64_t row_count,
                      int64_t left, int64_t count, int *patience)
{
    const struct axis *columns = &build->columns[0], *rows = &build->rows[0];
    int64_t x[3], y[3], pitch;
    const int taps = taps_of(columns, left, x);
    const int64_t width = left < columns->pairs ? 2 * count + taps - 2 : x[1] - x[0] + 1;
    const int last_tap = taps_of(rows, row + row_count - 1, y) - 1;
    const int64_t bottom = y[last_tap];
    taps_of(rows, row, y);
    const int64_t top = y[0];

    uint32_t buffer[3 * (2 * CHUNK + 1)];
    struct hzb_rect part = {(uint32_t)x[0], (uint32_t)top, (uint32_t)width,
                            (uint32_t)(bottom - top + 1)};
    const uint32_t *words = read_words(build, frame, part, buffer, &pitch);
    for (int64_t r = row; r < row + row_count; r++) {
        uint32_t twice[3][2];
        struct window window = {.row_count = taps_of(rows, r, y), .taps = taps};
        for (int i = 0; i < window.row_count; i++) {
            const uint32_t *source = words + (y[i] - top) * pitch;
            twice[i][0] = twice[i][1] = *source;
            window.rows[i] = width > 1 ? source : twice[i];
        }
        struct ahead ahead = {.pitch = pitch, .width = 2 * count};
        if (build->in_place && r + 1 < rows->pairs)
            ahead.rows = words + (y[0] + 2 - top) * pitch;
        make_texels(build, frame, r, left, &window, count, &ahead, patience);
    }
}

static void make_rows_of_frame(const struct build *build, int64_t frame, int64_t row,
                               int64_t row_count, int *patience)
{
    const struct axis *columns = &build->columns[0];
    const int64_t width = CHUNK / build->tile_rows;
    for (int64_t left = 0; left < columns->pairs; left += width) {
        int64_t count = smaller(width, columns->pairs - left);
        make_tile(build, frame, row, row_count, left, count, patience);
    }
    if (columns->pairs < columns->distinct)
        make_tile(build, frame, row, row_count, columns->pairs, 1, patience);
}

static void make_row_of_level(const struct build *build, int64_t frame, int chain, int level,
                              int64_t row)
{
    const struct axis *columns = &build->columns[level];
    const size_t bytes = build->texel_bytes;
    int64_t y[3], x[3];
    struct window window = {.row_count = taps_of(&build->rows[level], row, y),
                            .taps = columns->taps};
    for (int i = 0; i < window.row_count; i++)
        window.rows[i] = level_row(build, frame, chain, level - 1, y[i]);
    char *target = level_row(build, frame, chain, level, row);
    struct passes passes;
    open_passes(&window, bytes, &passes);
    reduce(build, build->words, chain, &passes, 0, smaller(columns->pairs, columns->distinct),
           target);
    if (columns->pairs < columns->distinct) {
        uint32_t last[3][2];
        window.taps = taps_of(columns, columns->pairs, x);
        for (int i = 0; i < window.row_count; i++) {
            for (int j = 0; j < window.taps; j++) {
                memcpy((char *)last[i] + (size_t)j * bytes,
                       (const char *)window.rows[i] + (size_t)x[j] * bytes, bytes);
            }
            window.rows[i] = last[i];
        }
        open_passes(&window, bytes, &passes);
        reduce(build, build->words, chain, &passes, 0, 1, target + (size_t)columns->pairs * bytes);
    }
    if (build->unreal && build->takes_max[chain] && level % UNREAL_BATCH == 0)
        build->kernels->raise((uint16_t *)target, columns->distinct);
}

/* Repeat the last of `distinct` texels to the end of the row. */
static void fill_row(const struct build *build, char *row, const struct axis *columns)
{
    if (build->words) {
        uint32_t *texels = (uint32_t *)row;
        for (int64_t i = columns->distinct; i < columns->side; i++)
            texels[i] = texels[columns->distinct - 1];
    } else {
        uint16_t *texels = (uint16_t *)row;
        for (int64_t i = columns->distinct; i < columns->side; i++)
            texels[i] = texels[columns->distinct - 1];
    }
}

/* ---- bands ----------------------------------------------------------------------------------- */

struct band {
    const struct build *build;
    int64_t frame;
    int64_t start[HZB_MAX_LEVELS], next[HZB_MAX_LEVELS], stop[HZB_MAX_LEVELS]; /* rows */
    int patience; /* how soon to try easy numbers again */
};

/* Make the next row of a level or, of level 0, the next few. */
static void make_next_rows(struct band *band, int level)
{
    const struct build *build = band->build;
    const struct axis *columns = &build->columns[level];
    const int64_t row = band->next[level], distinct = build->rows[level].distinct;
    int64_t count = 1;
    if (row >= distinct && row > band->start[level]) {
        for (int chain = 0; chain < build->chains; chain++) {
            memcpy(level_row(build, band->frame, chain, level, row),
                   level_row(build, band->frame, chain, level, row - 1),
                   (size_t)columns->side * build->texel_bytes);
        }
    } else {
        if (level == 0) {
            if (row < distinct)
                count = smaller(build->tile_rows, smaller(distinct, band->stop[0]) - row);
            make_rows_of_frame(build, band->frame, row, count, &band->patience);
        }
        for (int chain = 0; chain < build->chains; chain++) {
            if (level > 0)
                make_row_of_level(build, band->frame, chain, level, row);
            for (int64_t r = row; r < row + count; r++)
                fill_row(build, level_row(build, band->frame, chain, level, r), columns);
        }
    }
    band->next[level] += count;
}

/* Make the rows of a level whose sources are there. Whether there was one. */
static bool make_ready_rows(struct band *band, int level)
{
    bool any = false;
    while (band->next[level] < band->stop[level]) {
        int64_t y[3];
        int count = taps_of(&band->build->rows[level], band->next[level], y);
        if (y[count - 1] >= band->next[level - 1])
            break;
        make_next_rows(band, level);
        any = true;
    }
    return any;
}

static void make_band(const struct build *build, int64_t frame, const struct stage *stage,
                      int64_t index)
{
    struct band band = {.build = build, .frame = frame};
    for (int level = stage->first; level < stage->end; level++) {
        const int64_t side = build->rows[level].side;
        band.stop[level] = side;
        if (stage->bands > 1) {
            int64_t rows = stage->units << (stage->shift - (level - stage->first));
            band.start[level] = band.next[level] = index * rows;
            band.stop[level] = smaller((index + 1) * rows, side);
        }
    }
    while (band.next[stage->first] < band.stop[stage->first]) {
        make_next_rows(&band, stage->first);
        for (int level = stage->first + 1; level < stage->end; level++)
            if (!make_ready_rows(&band, level))
                break;
    }
}

/* The stage that starts at level `first`, for so many threads. */
static struct stage stage_of(const struct build *build, int first, int threads)
{
    const struct axis *rows = &build->rows[first];
    const int64_t pixels = rows->source * build->columns[first].source;
    struct stage stage = {.first = first, .end = build->levels, .bands = 1};
    if (pixels <= (threads > 1 ? PIXELS_A_BAND : PIXELS_A_LOOK))
        return stage;
    /* Units small enough to be shared out evenly, large enough for several levels; bands as large
       as that and the looks for signals allow, since memory is read fastest in order. */
    stage.shift = 5;
    while (stage.shift > 2 && rows->distinct >> stage.shift < 8 * threads)
        stage.shift--;
    const int64_t even_share = (rows->distinct - 1) / ((BANDS_A_THREAD * threads) << stage.shift);
    const int64_t unit_pixels = build->columns[first].source << (stage.shift + 1);
    stage.units = 1 + smaller(even_share, PIXELS_A_LOOK / unit_pixels);
    stage.bands = (rows->side - 1) / (stage.units << stage.shift) + 1;
    if (stage.bands > 1) {
        stage.end = (int)smaller(build->levels, first + stage.shift + 1);
        for (int level = first + 1; level < stage.end; level++) {
            /* The third row of a window would be another band's. */
            if (build->rows[level].taps > 2)
                stage.end = level;
        }
    }
    return stage;
}

/* ---- threads --------------------------------------------------------------------------------- */

struct share {
    const struct build *build;
    const struct stage *stage;
    int64_t frame, first; /* of turn 0 */
};

static void make_shared_band(void *data, int64_t turn)
{
    const struct share *share = data;
    make_band(share->build, share->frame, share->stage, share->first + turn);
}

static void make_shared_frame(void *data, int64_t turn)
{
    const struct share *share = data;
    make_band(share->build, share->frame + turn, share->stage, 0);
}

/* Pixels done since the last look for a signal. */
struct watch {
    const struct hzb_hooks *hooks;
    int64_t pixels;
};

static enum hzb_status look(struct watch *watch, int64_t pixels, struct hzb_error *err)
{
    watch->pixels += pixels;
    if (watch->pixels < PIXELS_A_LOOK)
        return HZB_OK;
    watch->pixels = 0;
    return hzb_look(watch->hooks, err);
}

/* One frame, its bands shared out. */
static enum hzb_status make_frame(const struct build *build, int64_t frame, int threads,
                                  struct watch *watch, struct hzb_error *err)
{
    struct stage stage;
    for (int level = 0; level < build->levels; level = stage.end) {
        stage = stage_of(build, level, threads);
        struct share share = {.build = build, .stage = &stage, .frame = frame};
        const int64_t pixels =
            build->rows[level].source * build->columns[level].source / stage.bands + 1;
        const int64_t at_once = PIXELS_A_LOOK / pixels + threads;
        for (; share.first < stage.bands; share.first += at_once) {
            int64_t count = smaller(at_once, stage.bands - share.first);
            hzb_workers_run(make_shared_band, &share, count, threads);
            if (look(watch, count * pixels, err))
                return err->status;
        }
    }
    return HZB_OK;
}

/* All frames, shared out. */
static enum hzb_status make_small_frames(const struct build *build, int64_t pixels, int threads,
                                         struct watch *watch, struct hzb_error *err)
{
    const struct stage whole = {.end = build->levels, .bands = 1};
    struct share share = {.build = build, .stage = &whole};
    const int64_t at_once = PIXELS_A_LOOK / pixels + threads;
    for (; share.frame < build->frames->count; share.frame += at_once) {
        int64_t count = smaller(at_once, build->frames->count - share.frame);
        hzb_workers_run(make_shared_frame, &share, count, threads);
        if (look(watch, count * pixels, err))
            return err->status;
    }
    return HZB_OK;
}

/* How many of `threads` threads so many pixels are worth. */
static int threads_for(int64_t pixels, int threads)
{
    int64_t worth = pixels / PIXELS_A_THREAD;
    return worth > 1 ? (int)smaller(worth, threads) : 1;
}

static enum hzb_status make_frames(const struct build *build, const struct hzb_hooks *hooks,
                                   struct hzb_error *err)
{
    int threads;
    if (hzb_workers_count(&threads, err))
        return err->status;
    struct watch watch = {.hooks = hooks};
    const int64_t count = build->frames->count;
    const int64_t pixels = build->rows[0].source * build->columns[0].source;
    const int threads_for_all = threads_for(pixels * count, threads);
    if (pixels <= PIXELS_A_LOOK && count >= threads_for_all)
        return make_small_frames(build, pixels, threads_for_all, &watch, err);
    for (int64_t frame = 0; frame < count; frame++)
        if (make_frame(build, frame, threads_for(pixels, threads), &watch, err))
            return err->status;
    return HZB_OK;
}

/* ---- the operation --------------------------------------------------------------------------- */

static enum hzb_cpu_rounding rounding_of(int32_t rounding, bool takes_max)
{
    if (rounding == HZB_ROUNDING_NEAREST)
        return HZB_CPU_NEAREST;
    if (rounding == HZB_ROUNDING_UNREAL)
        return takes_max ? HZB_CPU_UNREAL_UP : HZB_CPU_TO_ZERO;
    return takes_max ? HZB_CPU_UP : HZB_CPU_DOWN;
}

static const struct hzb_cpu_kernels *const kernels[] = {
    [HZB_INSTRUCTIONS_BASELINE] = &hzb_cpu_kernels_baseline,
#ifdef __x86_64__
    [HZB_INSTRUCTIONS_AVX2] = &hzb_cpu_kernels_avx2,
    [HZB_INSTRUCTIONS_AVX512] = &hzb_cpu_kernels_avx512,
#endif
};

/* Whether all rows are packed words of the machine, aligned. */
static bool are_words(const struct hzb_frames *frames)
{
    uint64_t offsets = (uint64_t)(uintptr_t)frames->data | (uint64_t)frames->row_stride;
    for (int i = 0; i < frames->leading_axes; i++)
        offsets |= (uint64_t)frames->leading_strides[i];
    return frames->scalar == HZB_SCALAR_F32 && !frames->swapped &&
           frames->column_stride == sizeof(uint32_t) && offsets % sizeof(uint32_t) == 0;
}

enum hzb_status hzb_cpu_build(const struct hzb_request *request, const struct hzb_frames *frames,
                              const struct hzb_output *outputs, const struct hzb_hooks *hooks,
                              struct hzb_error *err)
{
    const struct hzb_options *options = &request->options;
    const struct hzb_extent *extent = &request->extent;
    struct build build = {
        .frames = frames,
        .outputs = outputs,
        .x = extent->x,
        .y = extent->y,
        .levels = extent->levels,
        .chains = hzb_chain_count(options),
        .words = options->dtype == HZB_DTYPE_FLOAT32,
        .texel_bytes = options->dtype == HZB_DTYPE_FLOAT32 ? sizeof(uint32_t) : sizeof(uint16_t),
        .unreal = options->rounding == HZB_ROUNDING_UNREAL,
        .nan_wins = options->nan == HZB_NAN_PROPAGATE,
        .in_place = are_words(frames),
        .tile_rows = 1,
    };
    if (llabs(frames->column_stride) > llabs(frames->row_stride) ||
        extent->width <= 2 * CHUNK / TILE_ROWS)
        build.tile_rows = TILE_ROWS;
    enum hzb_instructions instructions;
    if (hzb_instructions_choose(&instructions, err))
        return err->status;
    build.kernels = kernels[instructions];
    for (int chain = 0; chain < build.chains; chain++) {
        build.takes_max[chain] = hzb_chain_is_max(options, chain);
        build.rounding[chain] = rounding_of(options->rounding, build.takes_max[chain]);
    }
    struct axis *columns = build.columns, *rows = build.rows;
    columns[0] = axis_of(options->sizing, extent->width, extent->width, 0);
    rows[0] = axis_of(options->sizing, extent->height, extent->height, 0);
    for (int level = 1; level < build.levels; level++) {
        const struct axis *x = &columns[level - 1], *y = &rows[level - 1];
        columns[level] = axis_of(options->sizing, x->side, x->distinct, level);
        rows[level] = axis_of(options->sizing, y->side, y->distinct, level);
    }
    return make_frames(&build, hooks, err);
}
