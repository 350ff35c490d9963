/* hzb.build from arguments to result, and hzb.level_shapes. */
#include "python/binding.h"

#define BUILD_KEYWORDS                                                                             \
    (1u << HZB_BOUNDS_NAME | 1u << HZB_REVERSED_Z | 1u << HZB_SIZING_NAME |                        \
     1u << HZB_ROUNDING_NAME | 1u << HZB_NAN_NAME | 1u << HZB_VIEW_RECT | 1u << HZB_LEVELS |       \
     1u << HZB_DTYPE_NAME | 1u << HZB_ALGORITHM_NAME | 1u << HZB_OUT)

const struct hzb_signature hzb_context_build_signature = {"build", HZB_DEPTH, BUILD_KEYWORDS};
const struct hzb_signature hzb_build_signature = {
    "build", HZB_DEPTH, BUILD_KEYWORDS | 1u << HZB_DEVICE | 1u << HZB_CONTEXT};

PyDoc_STRVAR(
    build_doc,
    "build($module, depth, *, bounds=\"furthest\", reversed_z=True, sizing=\"pow2\",\n"
    "      rounding=\"conservative\", nan=\"propagate\", view_rect=None, levels=None,\n"
    "      dtype=\"float16\", algorithm=\"auto\", out=None, device=None, context=None)\n"
    "--\n\n"
    "Build the hierarchical Z buffer of reversed-Z depth (near = 1, far = 0).\n\n"
    "Level 0 has about half the sides of the frame, each further level about half of those before\n"
    "it; a texel holds the furthest (or the closest) depth under it. The bits are the same on\n"
    "every device, the processor included, and those of :func:`hzb.reference.build`.\n\n"
    "Parameters\n"
    "----------\n"
    "depth : array_like, shape (..., height, width)\n"
    "    Depth in any unit; leading axes are independent frames. Any strides, byte order and\n"
    "    alignment; an ndarray or buffer is copied once at most, and never written.\n"
    "    float16, float32 and integers of 8 and 16 bits are taken exactly; float64 and integers\n"
    "    of 32 and 64 bits through float32 rounded to odd, which keeps their order and the later\n"
    "    rounding to float16. Integers are not normalised.\n"
    "bounds : {\"furthest\", \"closest\", \"both\"}\n"
    "    Which depth a texel holds: the one furthest from the viewer (for occlusion culling), the\n"
    "    nearest one (for ray marching), or both chains from one pass over the input.\n"
    "reversed_z : bool\n"
    "    True where larger depth is nearer (near = 1, far = 0), False where it is further.\n"
    "sizing : {\"pow2\", \"floor\", \"ceil\"}\n"
    "    How the sides of the levels follow from those of the frame: powers of two (Unreal's),\n"
    "    halves rounded down, or halves rounded up. See :func:`hzb.level_shapes`.\n"
    "rounding : {\"conservative\", \"nearest\", \"unreal\"}\n"
    "    How a level is stored: never nearer (furthest) or further (closest) than the true bound;\n"
    "    to nearest even; or as Unreal Engine does, which needs ``sizing=\"pow2\"``, float16,\n"
    "    `reversed_z` and, but on the processor, an `algorithm` of \"auto\" or \"batched\".\n"
    "nan : {\"propagate\", \"ignore\"}\n"
    "    Whether one NaN makes its texel NaN, or only a footprint of nothing but NaN does.\n"
    "view_rect : sequence of four ints, optional\n"
    "    ``(x0, y0, x1, y1)`` in pixels, the last two exclusive: the part of each frame to "
    "reduce.\n"
    "levels : int, optional\n"
    "    How many levels to make, from level 0 on; all by default.\n"
    "dtype : {numpy.float16, numpy.float32}\n"
    "    The type of the levels. float32 levels are exact.\n"
    "algorithm : {\"auto\", \"per_level\", \"batched\", \"two_pass\", \"single_pass\"}\n"
    "    How a Vulkan device makes the levels; the bits do not depend on it. The processor has\n"
    "    one way, and takes every name.\n\n"
    "    * \"auto\": what was measured to be the fastest for such a device and build, of what the\n"
    "      device can do and gets right.\n"
    "    * \"per_level\": a dispatch a level; a thread a texel reads what is under it.\n"
    "    * \"batched\": up to four levels a dispatch, in shared memory, as Unreal Engine does it.\n"
    "    * \"two_pass\": a dispatch takes 64x64 tiles of the frame through six levels, a second\n"
    "      one of one workgroup a frame makes the rest.\n"
    "    * \"single_pass\": one dispatch; the last workgroup to end a tile of the next six levels\n"
    "      goes on with it.\n\n"
    "    The last two need workgroups of 256 and subgroup shuffles. They take the kernel of\n"
    "    \"batched\" for ``sizing=\"floor\"``, unless both sides are powers of two, and for more\n"
    "    than 24 levels. Where a driver gets the kernel of one of them wrong, another is taken,\n"
    "    and the logger ``hzb`` has a warning about it.\n"
    "out : list or tuple of ndarray, optional\n"
    "    Arrays to write the levels to; for ``bounds=\"both\"`` a `Bounds` or a pair of such "
    "lists.\n"
    "    C-contiguous, writeable, aligned, of the exact shape and type, overlapping neither\n"
    "    `depth` nor each other. Their content is undefined after an error of the device.\n"
    "device : str, int, Device, optional\n"
    "    The device, as for :class:`hzb.Context`; its context is made at its first use and kept.\n"
    "context : Context, optional\n"
    "    A context to use instead.\n\n"
    "Returns\n"
    "-------\n"
    "list of ndarray, shape (..., h_k, w_k), or Bounds\n"
    "    The levels, level 0 first, C-contiguous and writeable; for ``bounds=\"both\"`` a "
    "`Bounds`\n"
    "    of two such lists; `out` itself where it was given. New levels of more than 16 KiB share\n"
    "    one block of memory, which the next build may use again when the last of them is gone:\n"
    "    to keep one without the others, copy it.\n\n"
    "Raises\n"
    "------\n"
    "TypeError\n"
    "    If an argument is of a kind or type that is not accepted.\n"
    "ValueError\n"
    "    If an argument has a value that is not accepted, two of them clash, a frame is beyond a\n"
    "    limit of the device, or the device lacks what a named `algorithm` needs. Nothing has\n"
    "    been written to `out` in either case.\n"
    "hzb.OutOfMemoryError\n"
    "    If the host or the device has too little memory; a MemoryError too.\n"
    "hzb.LoaderNotFoundError, hzb.NoDeviceError\n"
    "    If a device is named, and Vulkan or its driver is missing.\n"
    "hzb.Error\n"
    "    If the context is closed, busy in this thread or of a process that was forked.\n"
    "hzb.VulkanError\n"
    "    If the driver failed.");

/* Make the arrays that results go to. */
static int make_targets(const struct hzb_module *module, struct hzb_call *call,
                        const struct hzb_job *job)
{
    const struct hzb_options *options = &call->request.options;
    const struct hzb_extent *extent = &call->request.extent;
    uint64_t bytes = hzb_targets_block_bytes(&call->input, options, extent);
    /* A small result has none, and is made too often to let go of the interpreter for nothing. */
    if (bytes) {
        struct hzb_error err;
        struct hzb_unlocked unlocked;
        hzb_unlock(&unlocked);
        enum hzb_status status = hzb_job_take_block(call->context, job, bytes, &unlocked.hooks,
                                                    &call->targets.block, &err);
        hzb_relock(&unlocked);
        if (status) {
            hzb_raise(module, &err);
            return -1;
        }
    }
    return hzb_targets_make(module, &call->input, options, extent, &call->targets);
}

int hzb_call_prepare(struct hzb_module *module, PyObject *const values[HZB_NAMES], bool lane_table,
                     struct hzb_call *call)
{
    struct hzb_options *options = &call->request.options;
    struct hzb_extent *extent = &call->request.extent;
    const struct hzb_frames *frames = &call->input.frames;
    PyObject *out = values[HZB_OUT] == Py_None ? NULL : values[HZB_OUT];
    struct hzb_error err;
    if (hzb_options_parse(module, values, options) < 0 ||
        hzb_input_open(module, values[HZB_DEPTH], options, &call->input) < 0)
        return -1;
    options->lane_table = lane_table;
    if (hzb_options_check(options, frames->width, frames->height, extent, &err)) {
        hzb_raise(module, &err);
        return -1;
    }
    call->context = hzb_context_for(module, values[HZB_DEVICE], values[HZB_CONTEXT]);
    if (!call->context)
        return -1;
    const struct hzb_job job = hzb_call_job(call);
    if (hzb_job_plan(call->context, &job, &err)) {
        hzb_raise(module, &err);
        return -1;
    }
    if (out && hzb_targets_take(out, &call->input, options, extent, &call->targets) < 0)
        return -1;
    /* The caller's arrays have their memory already; ours are made only if it is there. */
    uint64_t bytes = out ? 0 : hzb_targets_bytes(&call->input, options, extent);
    if (hzb_job_check_memory(call->context, &job, bytes, &err)) {
        hzb_raise(module, &err);
        return -1;
    }
    return out ? 0 : make_targets(module, call, &job);
}

struct hzb_job hzb_call_job(struct hzb_call *call)
{
    return (struct hzb_job){
        .op = &hzb_op,
        .request = &call->request,
        .plan = &call->plan,
        .frames = &call->input.frames,
        .outputs = call->targets.outputs,
        .block = call->targets.block,
    };
}

void hzb_call_close(struct hzb_call *call)
{
    hzb_release_context(call->context);
    hzb_targets_close(&call->targets);
    hzb_input_close(&call->input);
}

static int run(const struct hzb_module *module, struct hzb_call *call)
{
    const struct hzb_job job = hzb_call_job(call);
    struct hzb_error err;
    struct hzb_unlocked unlocked;
    hzb_unlock(&unlocked);
    enum hzb_status status = hzb_job_run(call->context, &job, &unlocked.hooks, &err);
    hzb_relock(&unlocked);
    if (status) {
        hzb_raise(module, &err);
        return -1;
    }
    return hzb_log_distrust(call->context);
}

PyObject *hzb_build(struct hzb_module *module, PyObject *const values[HZB_NAMES], bool lane_table)
{
    struct hzb_call call = {0};
    PyObject *result = NULL;
    if (hzb_call_prepare(module, values, lane_table, &call) == 0 && run(module, &call) == 0)
        result = Py_NewRef(call.targets.result);
    hzb_call_close(&call);
    return result;
}

static PyObject *build(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    struct hzb_module *module = hzb_module_of(self);
    PyObject *values[HZB_NAMES];
    if (hzb_parse(module, &hzb_build_signature, args, count, keywords, values) < 0)
        return NULL;
    return hzb_build(module, values, false);
}

/* ---- level_shapes ---- */

static const struct hzb_signature level_shapes_signature = {
    "level_shapes", HZB_SHAPE,
    1u << HZB_SIZING_NAME | 1u << HZB_VIEW_RECT | 1u << HZB_LEVELS | 1u << HZB_COVERED};

PyDoc_STRVAR(
    level_shapes_doc,
    "level_shapes($module, shape, *, sizing=\"pow2\", view_rect=None, levels=None,\n"
    "             covered=False)\n"
    "--\n\n"
    "Give the shapes of the levels that :func:`hzb.build` makes of an array.\n\n"
    "Needs no device and does not depend on the depth convention.\n\n"
    "Parameters\n"
    "----------\n"
    "shape : sequence of ints, (..., height, width)\n"
    "    The shape of the depth array, in pixels; leading axes may be 0.\n"
    "sizing : {\"pow2\", \"floor\", \"ceil\"}\n"
    "    From a source side n, level 0 has the side of the greatest power of two below n\n"
    "    (1 at least), floor(n / 2) (1 at least) or ceil(n / 2); the next level halves it\n"
    "    in the same way, and the last is 1x1.\n"
    "view_rect, levels\n"
    "    As in :func:`hzb.build`.\n"
    "covered : bool\n"
    "    Give instead the part of each level that stands for real pixels. Beyond it a\n"
    "    \"pow2\" level is constant along the axis: from level 1 on not the last covered\n"
    "    texel but the one after it.\n\n"
    "Returns\n"
    "-------\n"
    "list of tuple of int\n"
    "    One shape ``(..., h_k, w_k)`` a level, level 0 first.\n\n"
    "Raises\n"
    "------\n"
    "TypeError\n"
    "    If an argument is of a kind that is not accepted.\n"
    "ValueError\n"
    "    If an argument has a value that is not accepted.");

static PyObject *level_shapes(PyObject *self, PyObject *const *args, Py_ssize_t count,
                              PyObject *keywords)
{
    struct hzb_module *module = hzb_module_of(self);
    PyObject *values[HZB_NAMES];
    struct hzb_shape shape;
    struct hzb_options options;
    if (hzb_parse(module, &level_shapes_signature, args, count, keywords, values) < 0 ||
        hzb_options_parse(module, values, &options) < 0 ||
        hzb_shape_parse(values[HZB_SHAPE], &shape) < 0)
        return NULL;
    int covered = hzb_parse_bool("covered", values[HZB_COVERED], false);
    if (covered < 0)
        return NULL;
    struct hzb_extent extent;
    struct hzb_error err;
    if (hzb_options_check(&options, shape.side[shape.axes - 1], shape.side[shape.axes - 2], &extent,
                          &err))
        return hzb_raise(module, &err);
    PyObject *list = PyList_New(extent.levels);
    for (int level = 0; list && level < extent.levels; level++) {
        struct hzb_shape of_level = hzb_shape_of_level(&shape, &options, &extent, level);
        if (covered) {
            of_level.side[shape.axes - 2] = hzb_covered_side(options.sizing, extent.height, level);
            of_level.side[shape.axes - 1] = hzb_covered_side(options.sizing, extent.width, level);
        }
        PyObject *tuple = hzb_shape_tuple(&of_level);
        if (tuple)
            PyList_SET_ITEM(list, level, tuple);
        else
            Py_CLEAR(list);
    }
    return list;
}

PyMethodDef hzb_build_methods[] = {
    {"build", (PyCFunction)(void (*)(void))build, METH_FASTCALL | METH_KEYWORDS, build_doc},
    {"level_shapes", (PyCFunction)(void (*)(void))level_shapes, METH_FASTCALL | METH_KEYWORDS,
     level_shapes_doc},
    {NULL, NULL, 0, NULL},
};
