/* Depth arrays → struct hzb_frames without a copy, and the arrays that levels go to. */
#include "python/binding.h"

#include <stdio.h>

#define ACCEPTED "float16, float32, float64 and integers of 8 to 64 bits"

/* DLPack's kDLCPU, and CUDA's and ROCm's pinned memory, which is the host's as well. */
enum { DL_CPU = 1, DL_CUDA_HOST = 3, DL_ROCM_HOST = 11 };

static struct hzb_shape shape_of(PyArrayObject *array)
{
    struct hzb_shape shape = {.axes = PyArray_NDIM(array)};
    for (int i = 0; i < shape.axes; i++)
        shape.side[i] = PyArray_DIM(array, i);
    return shape;
}

/* ---- array-likes ---- */

/* The attribute, or NULL with no exception where there is none; -1 on an exception. */
static int find_attribute(PyObject *object, const char *name, PyObject **attribute)
{
    *attribute = PyObject_GetAttrString(object, name);
    if (*attribute)
        return 0;
    if (!PyErr_ExceptionMatches(PyExc_AttributeError))
        return -1;
    PyErr_Clear();
    return 0;
}

static int has_attribute(PyObject *object, const char *name)
{
    PyObject *attribute;
    if (find_attribute(object, name, &attribute) < 0)
        return -1;
    Py_XDECREF(attribute);
    return attribute != NULL;
}

/* Whether the exception that is set is one by which an array-like says no. */
static bool is_refusal(void)
{
    return PyErr_ExceptionMatches(PyExc_TypeError) || PyErr_ExceptionMatches(PyExc_ValueError) ||
           PyErr_ExceptionMatches(PyExc_BufferError) || PyErr_ExceptionMatches(PyExc_RuntimeError);
}

/* Replace a refusal by `type`, naming the argument, what it was and `remedy`; other exceptions
 * stay. */
static void explain(PyObject *type, PyObject *depth, const char *fault, const char *remedy)
{
    if (!is_refusal())
        return;
    PyObject *cause = hzb_take_exception();
    hzb_raise_from(cause, type, "depth: %.200s %s (%S); %s", Py_TYPE(depth)->tp_name, fault, cause,
                   remedy);
}

/* Each of the following gives the array of one way, or NULL: with an exception when the object
   offers that way and it failed for good, without one when the next way is to be tried. */

static PyObject *from_buffer(PyObject *depth)
{
    if (!PyObject_CheckBuffer(depth))
        return NULL;
    PyObject *view = PyMemoryView_FromObject(depth);
    if (!view) {
        if (PyErr_ExceptionMatches(PyExc_TypeError) || PyErr_ExceptionMatches(PyExc_BufferError))
            PyErr_Clear();
        return NULL;
    }
    PyObject *array = PyArray_FROM_O(view);
    Py_DECREF(view);
    if (!array)
        explain(PyExc_TypeError, depth, "has items of a type that is not accepted",
                "accepted are " ACCEPTED ": convert it, with astype(numpy.float32)");
    return array;
}

/* Whether an object offers DLPack, from host memory; a TypeError where the memory is elsewhere. */
static int offers_dlpack(PyObject *depth)
{
    PyObject *method;
    int exports = has_attribute(depth, "__dlpack__");
    if (exports <= 0 || find_attribute(depth, "__dlpack_device__", &method) < 0)
        return exports <= 0 ? exports : -1;
    if (!method)
        return 0;
    PyObject *device = PyObject_CallNoArgs(method);
    PyObject *kind = device ? PySequence_GetItem(device, 0) : NULL;
    long type = kind ? PyLong_AsLong(kind) : -1;
    bool on_host = type == DL_CPU || type == DL_CUDA_HOST || type == DL_ROCM_HOST;
    if (PyErr_Occurred())
        explain(PyExc_TypeError, depth, "does not tell its DLPack device",
                "copy it to the host first");
    else if (!on_host)
        PyErr_Format(
            PyExc_TypeError,
            "depth: %.200s is on DLPack device %R, not in host memory; copy it to the host "
            "first",
            Py_TYPE(depth)->tp_name, device);
    Py_DECREF(method);
    Py_XDECREF(device);
    Py_XDECREF(kind);
    return on_host ? 1 : -1;
}

static PyObject *from_dlpack(const struct hzb_module *module, PyObject *depth)
{
    if (offers_dlpack(depth) <= 0)
        return NULL;
    PyObject *array = PyObject_CallOneArg(module->from_dlpack, depth);
    if (array || !is_refusal())
        return array;
    /* An object may still convert what it cannot export: types that DLPack lacks, say. */
    PyObject *refusal = hzb_take_exception();
    int converts = has_attribute(depth, "__array__");
    if (converts == 0)
        hzb_raise_from(Py_NewRef(refusal), PyExc_TypeError,
                       "depth: %.200s cannot be read through DLPack (%S); accepted are " ACCEPTED
                       ": convert it, with astype(numpy.float32)",
                       Py_TYPE(depth)->tp_name, refusal);
    Py_DECREF(refusal);
    return NULL;
}

static PyObject *from_array_method(PyObject *depth)
{
    int converts = has_attribute(depth, "__array__");
    if (converts < 0)
        return NULL;
    if (!converts) {
        if (has_attribute(depth, "__cuda_array_interface__") > 0)
            PyErr_Format(
                PyExc_TypeError,
                "depth: %.200s is in the memory of a CUDA device; copy it to the host first",
                Py_TYPE(depth)->tp_name);
        return NULL;
    }
    PyObject *array = PyArray_FROM_O(depth);
    if (!array)
        explain(PyExc_TypeError, depth, "does not convert to an ndarray",
                "copy it to the host, or convert it, with astype(numpy.float32)");
    return array;
}

static PyObject *from_nested(PyObject *depth)
{
    PyObject *array = PyArray_FROM_O(depth);
    if (!array)
        explain(PyErr_ExceptionMatches(PyExc_ValueError) ? PyExc_ValueError : PyExc_TypeError,
                depth, "is no regular array",
                "pass an array, or nested sequences of numbers with rows of equal length");
    return array;
}

static PyArrayObject *as_array(const struct hzb_module *module, PyObject *depth)
{
    if (PyArray_Check(depth))
        return (PyArrayObject *)Py_NewRef(depth);
    PyObject *array = from_buffer(depth);
    if (!array && !PyErr_Occurred())
        array = from_dlpack(module, depth);
    if (!array && !PyErr_Occurred())
        array = from_array_method(depth);
    if (!array && !PyErr_Occurred())
        array = from_nested(depth);
    return (PyArrayObject *)array;
}

/* ---- input ---- */

static int refuse_masked(PyArrayObject *array)
{
    if (PyArray_CheckExact(array))
        return 0;
    PyObject *ma = PyImport_ImportModule("numpy.ma");
    PyObject *type = ma ? PyObject_GetAttrString(ma, "MaskedArray") : NULL;
    int masked = type ? PyObject_IsInstance((PyObject *)array, type) : -1;
    Py_XDECREF(ma);
    Py_XDECREF(type);
    if (masked > 0)
        PyErr_SetString(PyExc_TypeError,
                        "depth: masked arrays are not accepted; fill it with NaN first: "
                        "depth.astype(numpy.float32).filled(numpy.nan)");
    return masked ? -1 : 0;
}

static int scalar_of(PyArrayObject *array, enum hzb_scalar *scalar)
{
    switch (PyArray_TYPE(array)) {
    case NPY_HALF:
        *scalar = HZB_SCALAR_F16;
        return 0;
    case NPY_FLOAT:
        *scalar = HZB_SCALAR_F32;
        return 0;
    case NPY_DOUBLE:
        *scalar = HZB_SCALAR_F64;
        return 0;
    case NPY_BYTE:
        *scalar = HZB_SCALAR_I8;
        return 0;
    case NPY_UBYTE:
        *scalar = HZB_SCALAR_U8;
        return 0;
    case NPY_SHORT:
        *scalar = HZB_SCALAR_I16;
        return 0;
    case NPY_USHORT:
        *scalar = HZB_SCALAR_U16;
        return 0;
    case NPY_INT:
    case NPY_LONG:
    case NPY_LONGLONG:
        *scalar = PyArray_ITEMSIZE(array) == 4 ? HZB_SCALAR_I32 : HZB_SCALAR_I64;
        return 0;
    case NPY_UINT:
    case NPY_ULONG:
    case NPY_ULONGLONG:
        *scalar = PyArray_ITEMSIZE(array) == 4 ? HZB_SCALAR_U32 : HZB_SCALAR_U64;
        return 0;
    default:
        PyErr_Format(PyExc_TypeError,
                     "depth: dtype %S is not accepted; accepted are " ACCEPTED
                     ": convert it, with depth.astype(numpy.float32)",
                     PyArray_DESCR(array));
        return -1;
    }
}

static bool fits_float32(enum hzb_scalar scalar)
{
    return scalar != HZB_SCALAR_F64 && scalar != HZB_SCALAR_I32 && scalar != HZB_SCALAR_U32 &&
           scalar != HZB_SCALAR_I64 && scalar != HZB_SCALAR_U64;
}

static void describe(PyArrayObject *array, struct hzb_input *input)
{
    struct hzb_shape *shape = &input->shape;
    struct hzb_frames *frames = &input->frames;
    const npy_intp *strides = PyArray_STRIDES(array);
    int leading = shape->axes - 2;
    frames->data = PyArray_BYTES(array);
    frames->swapped = PyArray_ISBYTESWAPPED(array);
    frames->leading_axes = leading;
    frames->count = PyArray_MultiplyList(shape->side, leading);
    for (int i = 0; i < leading; i++) {
        frames->leading_shape[i] = shape->side[i];
        frames->leading_strides[i] = strides[i];
    }
    frames->height = shape->side[leading];
    frames->width = shape->side[leading + 1];
    frames->row_stride = strides[leading];
    frames->column_stride = strides[leading + 1];
}

int hzb_input_open(const struct hzb_module *module, PyObject *depth,
                   const struct hzb_options *options, struct hzb_input *input)
{
    PyArrayObject *array = input->array = as_array(module, depth);
    if (!array || refuse_masked(array) < 0 || scalar_of(array, &input->frames.scalar) < 0)
        return -1;
    if (options->dtype == HZB_DTYPE_FLOAT32 && !fits_float32(input->frames.scalar)) {
        PyErr_Format(PyExc_TypeError,
                     "depth: dtype %S does not fit float32 levels, which are exact; choose the "
                     "rounding yourself, with depth.astype(numpy.float32), or take "
                     "dtype=numpy.float16",
                     PyArray_DESCR(array));
        return -1;
    }
    input->shape = shape_of(array);
    if (hzb_shape_check("depth", &input->shape) < 0)
        return -1;
    describe(array, input);
    return 0;
}

void hzb_input_close(struct hzb_input *input) { Py_CLEAR(input->array); }

/* ---- results ---- */

static int stored_type(const struct hzb_options *options)
{
    return options->dtype == HZB_DTYPE_FLOAT32 ? NPY_FLOAT : NPY_HALF;
}

static uint64_t level_frame_bytes(const struct hzb_options *options,
                                  const struct hzb_extent *extent, int level)
{
    uint64_t texel = options->dtype == HZB_DTYPE_FLOAT32 ? 4 : 2;
    return texel * (uint64_t)hzb_level_side(options->sizing, extent->width, level) *
           (uint64_t)hzb_level_side(options->sizing, extent->height, level);
}

uint64_t hzb_targets_bytes(const struct hzb_input *input, const struct hzb_options *options,
                           const struct hzb_extent *extent)
{
    uint64_t frame = 0, all;
    for (int level = 0; level < extent->levels; level++)
        frame += level_frame_bytes(options, extent, level);
    frame *= (uint64_t)hzb_chain_count(options);
    return __builtin_mul_overflow(frame, (uint64_t)input->frames.count, &all) ? UINT64_MAX : all;
}

/* Keep one more array, which this takes over. */
static void add_target(struct hzb_targets *targets, PyArrayObject *array, uint64_t frame_bytes,
                       const struct hzb_buffer *buffer)
{
    targets->arrays[targets->count] = array;
    targets->outputs[targets->count] = (struct hzb_output){
        .data = PyArray_DATA(array),
        .frame_bytes = frame_bytes,
        .buffer = buffer,
    };
    targets->count++;
}

/* A level of at most this many bytes has memory of its own: who keeps the last few levels does not
   keep the whole block. */
enum { SMALL_LEVEL = 16384 };

static uint64_t align(uint64_t bytes)
{
    return (bytes + HZB_BLOCK_ALIGNMENT - 1) / HZB_BLOCK_ALIGNMENT * HZB_BLOCK_ALIGNMENT;
}

uint64_t hzb_targets_block_bytes(const struct hzb_input *input, const struct hzb_options *options,
                                 const struct hzb_extent *extent)
{
    uint64_t chain = 0;
    for (int level = 0; level < extent->levels; level++) {
        uint64_t bytes = level_frame_bytes(options, extent, level) * (uint64_t)input->frames.count;
        if (bytes > SMALL_LEVEL)
            chain += align(bytes);
    }
    return chain * (uint64_t)hzb_chain_count(options);
}

static const char capsule_name[] = "hzb._core.block";

static void release_block(PyObject *capsule)
{
    hzb_block_release(PyCapsule_GetPointer(capsule, capsule_name));
}

/* The block as it is dealt out, level by level. */
struct share {
    PyObject *keeper; /* owns the block for the arrays on it; NULL where there is no block */
    char *next;
    const struct hzb_buffer *buffer;
};

static int open_share(struct hzb_block *block, struct share *share)
{
    if (!block)
        return 0;
    share->keeper = PyCapsule_New(block, capsule_name, release_block);
    if (!share->keeper)
        return -1;
    hzb_block_retain(block);
    share->next = hzb_block_data(block);
    share->buffer = hzb_block_buffer(block);
    return 0;
}

static PyObject *make_shared(struct hzb_shape *shape, int type, uint64_t bytes, struct share *share)
{
    PyObject *array = PyArray_SimpleNewFromData(shape->axes, shape->side, type, share->next);
    share->next += align(bytes);
    if (array && PyArray_SetBaseObject((PyArrayObject *)array, Py_NewRef(share->keeper)) < 0)
        Py_CLEAR(array);
    return array;
}

/* New arrays of one chain, in a list. */
static PyObject *make_chain(const struct hzb_input *input, const struct hzb_options *options,
                            const struct hzb_extent *extent, struct share *share,
                            struct hzb_targets *targets)
{
    PyObject *chain = PyList_New(extent->levels);
    int type = stored_type(options);
    for (int level = 0; chain && level < extent->levels; level++) {
        struct hzb_shape shape = hzb_shape_of_level(&input->shape, options, extent, level);
        uint64_t frame_bytes = level_frame_bytes(options, extent, level);
        uint64_t bytes = frame_bytes * (uint64_t)input->frames.count;
        bool shared = share->keeper && bytes > SMALL_LEVEL;
        PyObject *array = shared ? make_shared(&shape, type, bytes, share)
                                 : PyArray_SimpleNew(shape.axes, shape.side, type);
        if (!array) {
            Py_CLEAR(chain);
            break;
        }
        PyList_SET_ITEM(chain, level, array);
        add_target(targets, (PyArrayObject *)Py_NewRef(array), frame_bytes,
                   shared ? share->buffer : NULL);
    }
    return chain;
}

int hzb_targets_make(const struct hzb_module *module, const struct hzb_input *input,
                     const struct hzb_options *options, const struct hzb_extent *extent,
                     struct hzb_targets *targets)
{
    bool both = hzb_chain_count(options) == 2;
    struct share share = {0};
    if (open_share(targets->block, &share) < 0)
        return -1;
    PyObject *first = make_chain(input, options, extent, &share, targets);
    PyObject *second = first && both ? make_chain(input, options, extent, &share, targets) : NULL;
    if (second)
        targets->result = PyObject_CallFunctionObjArgs(module->bounds_type, first, second, NULL);
    else if (!both)
        targets->result = Py_XNewRef(first);
    Py_XDECREF(share.keeper);
    Py_XDECREF(first);
    Py_XDECREF(second);
    if (targets->result)
        return 0;
    if (PyErr_ExceptionMatches(PyExc_MemoryError)) {
        PyObject *cause = hzb_take_exception();
        hzb_raise_from(cause, module->exceptions[HZB_OUT_OF_MEMORY],
                       "depth: the system refused memory for the levels (%S): free some, or build "
                       "fewer frames at a time",
                       cause);
    }
    return -1;
}

void hzb_targets_close(struct hzb_targets *targets)
{
    for (int i = 0; i < targets->count; i++)
        Py_DECREF(targets->arrays[i]);
    Py_XDECREF(targets->result);
    hzb_block_release(targets->block);
}

/* ---- out= ---- */

/* Say what is wrong with the array called `label` and what would be right. */
static void refuse_target(const char *label, const struct hzb_shape *shape,
                          const struct hzb_options *options, const char *format, ...)
{
    PyObject *needed = hzb_shape_tuple(shape);
    va_list arguments;
    va_start(arguments, format);
    PyObject *fault = PyUnicode_FromFormatV(format, arguments);
    va_end(arguments);
    if (needed && fault)
        PyErr_Format(PyExc_ValueError, "%s: %U; pass numpy.empty(%R, numpy.%s)", label, fault,
                     needed, options->dtype == HZB_DTYPE_FLOAT32 ? "float32" : "float16");
    Py_XDECREF(needed);
    Py_XDECREF(fault);
}

static int check_target(const char *label, PyObject *object, const struct hzb_shape *shape,
                        const struct hzb_options *options)
{
    if (!PyArray_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s: %.200s is not accepted; pass an ndarray", label,
                     Py_TYPE(object)->tp_name);
        return -1;
    }
    PyArrayObject *array = (PyArrayObject *)object;
    if (PyArray_NDIM(array) != shape->axes ||
        !PyArray_CompareLists(PyArray_DIMS(array), shape->side, shape->axes)) {
        struct hzb_shape has = shape_of(array);
        PyObject *shown = hzb_shape_tuple(&has);
        if (shown)
            refuse_target(label, shape, options, "shape %R is not the level's", shown);
        Py_XDECREF(shown);
    } else if (PyArray_TYPE(array) != stored_type(options) || PyArray_ISBYTESWAPPED(array)) {
        refuse_target(label, shape, options, "%R is not the level's", PyArray_DESCR(array));
    } else if (!PyArray_IS_C_CONTIGUOUS(array)) {
        refuse_target(label, shape, options, "the array is not C-contiguous");
    } else if (!PyArray_ISALIGNED(array)) {
        refuse_target(label, shape, options, "the array is not aligned");
    } else if (!PyArray_ISWRITEABLE(array)) {
        refuse_target(label, shape, options, "the array is not writeable");
    } else {
        return 0;
    }
    return -1;
}

/* The arrays of one chain, called `label`. */
static int take_chain(const char *label, PyObject *chain, const struct hzb_input *input,
                      const struct hzb_options *options, const struct hzb_extent *extent,
                      struct hzb_targets *targets)
{
    if (!PyList_Check(chain) && !PyTuple_Check(chain)) {
        PyErr_Format(PyExc_TypeError,
                     "%s: %.200s is not accepted; pass a list or tuple of ndarrays", label,
                     Py_TYPE(chain)->tp_name);
        return -1;
    }
    Py_ssize_t count = PySequence_Fast_GET_SIZE(chain);
    if (count != extent->levels) {
        PyErr_Format(PyExc_ValueError,
                     "%s: %zd arrays for %d levels; pass one for each shape of hzb.level_shapes",
                     label, count, extent->levels);
        return -1;
    }
    for (int level = 0; level < extent->levels; level++) {
        char name[32];
        snprintf(name, sizeof(name), "%s[%d]", label, level);
        PyObject *object = PySequence_Fast_GET_ITEM(chain, level);
        struct hzb_shape shape = hzb_shape_of_level(&input->shape, options, extent, level);
        if (check_target(name, object, &shape, options) < 0)
            return -1;
        add_target(targets, (PyArrayObject *)Py_NewRef(object),
                   level_frame_bytes(options, extent, level), NULL);
    }
    return 0;
}

/* From the lowest address of an array's items to beyond the highest; empty arrays have none. */
struct span {
    uintptr_t low, high;
};

static struct span span_of(PyArrayObject *array)
{
    struct span span = {(uintptr_t)PyArray_BYTES(array), (uintptr_t)PyArray_BYTES(array)};
    if (PyArray_SIZE(array) == 0)
        return span;
    span.high += (uintptr_t)PyArray_ITEMSIZE(array);
    for (int i = 0; i < PyArray_NDIM(array); i++) {
        npy_intp reach = (PyArray_DIM(array, i) - 1) * PyArray_STRIDE(array, i);
        if (reach < 0)
            span.low += (uintptr_t)reach;
        else
            span.high += (uintptr_t)reach;
    }
    return span;
}

static bool overlap(struct span a, struct span b) { return a.low < b.high && b.low < a.high; }

/* "out[3]", or "out[1][3]" of two chains. */
static void target_label(const struct hzb_extent *extent, bool both, int index, char label[32])
{
    if (both)
        snprintf(label, 32, "out[%d][%d]", index / extent->levels, index % extent->levels);
    else
        snprintf(label, 32, "out[%d]", index);
}

static int check_overlaps(const struct hzb_targets *targets, const struct hzb_input *input,
                          const struct hzb_extent *extent, bool both)
{
    struct span spans[2 * HZB_MAX_LEVELS + 1];
    for (int i = 0; i < targets->count; i++)
        spans[i] = span_of(targets->arrays[i]);
    spans[targets->count] = span_of(input->array);
    for (int i = 0; i < targets->count; i++)
        for (int j = i + 1; j <= targets->count; j++) {
            if (!overlap(spans[i], spans[j]))
                continue;
            char label[32], other[32] = "depth";
            target_label(extent, both, i, label);
            if (j < targets->count)
                target_label(extent, both, j, other);
            PyErr_Format(PyExc_ValueError, "%s: overlaps %s in memory; pass an array of its own",
                         label, other);
            return -1;
        }
    return 0;
}

int hzb_targets_take(PyObject *out, const struct hzb_input *input,
                     const struct hzb_options *options, const struct hzb_extent *extent,
                     struct hzb_targets *targets)
{
    bool both = hzb_chain_count(options) == 2;
    if (!both) {
        if (take_chain("out", out, input, options, extent, targets) < 0)
            return -1;
    } else if ((!PyList_Check(out) && !PyTuple_Check(out)) || PySequence_Fast_GET_SIZE(out) != 2) {
        PyErr_Format(PyExc_TypeError,
                     "out: %.200s is not accepted for bounds='both'; pass a Bounds or a pair of "
                     "lists of ndarrays",
                     Py_TYPE(out)->tp_name);
        return -1;
    } else if (take_chain("out[0]", PySequence_Fast_GET_ITEM(out, 0), input, options, extent,
                          targets) < 0 ||
               take_chain("out[1]", PySequence_Fast_GET_ITEM(out, 1), input, options, extent,
                          targets) < 0) {
        return -1;
    }
    if (check_overlaps(targets, input, extent, both) < 0)
        return -1;
    targets->result = Py_NewRef(out);
    return 0;
}
