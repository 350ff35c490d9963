/* Runs the native path alone, without Python and Vulkan, over the cases of a file and compares the
   levels bit for bit; tests/test_arm.py writes the file and builds this for another processor. */
#include "ops/hzb/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In the file frames come after it, then the levels of all chains. */
struct header {
    char name[96];
    char bounds[16], sizing[16], rounding[16], nan[16];
    int64_t float32, reversed_z; /* of the options; and whether levels are float32 */
    int64_t has_view_rect, view_rect[4];
    int64_t levels;                        /* 0: all */
    int64_t scalar, scalar_bytes, swapped; /* of the frames; the first is an enum hzb_scalar */
    int64_t frames, height, width;
};

static void __attribute__((noreturn)) fail(const char *name, const char *reason)
{
    fprintf(stderr, "%s: %s\n", name, reason);
    exit(1);
}

static void *read_bytes(FILE *file, const char *name, size_t size)
{
    void *bytes = malloc(size ? size : 1);
    if (!bytes || fread(bytes, 1, size, file) != size)
        fail(name, "the file ends early");
    return bytes;
}

static void request_of(const struct header *header, struct hzb_request *request)
{
    struct hzb_options *options = &request->options;
    struct hzb_error err;
    hzb_options_default(options);
    options->dtype = header->float32 ? HZB_DTYPE_FLOAT32 : HZB_DTYPE_FLOAT16;
    options->reversed_z = (int32_t)header->reversed_z;
    options->has_view_rect = (int32_t)header->has_view_rect;
    memcpy(options->view_rect, header->view_rect, sizeof options->view_rect);
    options->has_levels = header->levels != 0;
    options->levels = header->levels;
    if (hzb_options_set(options, "bounds", header->bounds, &err) ||
        hzb_options_set(options, "sizing", header->sizing, &err) ||
        hzb_options_set(options, "rounding", header->rounding, &err) ||
        hzb_options_set(options, "nan", header->nan, &err) ||
        hzb_options_check(options, header->width, header->height, &request->extent, &err))
        fail(header->name, err.message);
}

static void run_case(FILE *file, const struct header *header)
{
    struct hzb_request request;
    request_of(header, &request);
    const int64_t row_bytes = header->width * header->scalar_bytes;
    const int64_t frame_bytes = header->height * row_bytes;
    char *data = read_bytes(file, header->name, (size_t)(header->frames * frame_bytes));
    const struct hzb_frames frames = {
        .data = data,
        .scalar = (enum hzb_scalar)header->scalar,
        .swapped = header->swapped,
        .leading_axes = 1,
        .leading_shape = {header->frames},
        .leading_strides = {frame_bytes},
        .count = header->frames,
        .height = header->height,
        .width = header->width,
        .row_stride = row_bytes,
        .column_stride = header->scalar_bytes,
    };

    struct hzb_output outputs[2 * HZB_MAX_LEVELS];
    const enum hzb_sizing sizing = (enum hzb_sizing)request.options.sizing;
    const int count = hzb_chain_count(&request.options) * request.extent.levels;
    for (int i = 0; i < count; i++) {
        const int level = i % request.extent.levels;
        const int64_t texels = hzb_level_side(sizing, request.extent.width, level) *
                               hzb_level_side(sizing, request.extent.height, level);
        outputs[i].frame_bytes = (uint64_t)texels * (header->float32 ? 4 : 2);
        outputs[i].data = malloc((size_t)header->frames * outputs[i].frame_bytes);
        if (!outputs[i].data)
            fail(header->name, "no memory");
    }
    struct hzb_error err;
    if (hzb_cpu_build(&request, &frames, outputs, &(struct hzb_hooks){0}, &err))
        fail(header->name, err.message);

    for (int i = 0; i < count; i++) {
        const size_t bytes = (size_t)header->frames * outputs[i].frame_bytes;
        void *expected = read_bytes(file, header->name, bytes);
        if (memcmp(outputs[i].data, expected, bytes) != 0)
            fail(header->name, "other bits than expected");
        free(expected);
        free(outputs[i].data);
    }
    free(data);
}

int main(int argc, char **argv)
{
    FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
    if (!file)
        fail(argv[0], "pass the file of the cases");
    struct header header;
    long cases = 0;
    for (; fread(&header, sizeof header, 1, file) == 1; cases++)
        run_case(file, &header);
    fclose(file);
    printf("%ld cases\n", cases);
    return 0;
}
