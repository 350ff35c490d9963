/* What the files of the binding share: the state of the module and the calls between them. This
   folder is the only code that includes Python.h; it turns objects into structs and back, and
   decides nothing. */
#ifndef HZB_PYTHON_BINDING_H
#define HZB_PYTHON_BINDING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* NumPy's function table is filled by module.c and shared by all files here. */
#define PY_ARRAY_UNIQUE_SYMBOL hzb_numpy_api
#ifndef HZB_FILLS_NUMPY_API
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include "core/blocks.h"
#include "core/context.h"
#include "core/job.h"
#include "ops/hzb/plan.h"

/* The names of all keyword arguments, as indices into hzb_module.names and into the arrays that
   hzb_parse fills. */
enum hzb_name {
    HZB_DEPTH,
    HZB_BOUNDS_NAME,
    HZB_REVERSED_Z,
    HZB_SIZING_NAME,
    HZB_ROUNDING_NAME,
    HZB_NAN_NAME,
    HZB_VIEW_RECT,
    HZB_LEVELS,
    HZB_DTYPE_NAME,
    HZB_ALGORITHM_NAME,
    HZB_OUT,
    HZB_DEVICE,
    HZB_CONTEXT,
    HZB_SHAPE,
    HZB_COVERED,
    HZB_SETS,
    HZB_REPEATS,
    HZB_HEAT_NS,
    HZB_UPLOAD,
    HZB_NAMES,
};

struct hzb_module {
    PyObject *names[HZB_NAMES];
    PyObject *exceptions[HZB_INTERRUPTED]; /* by enum hzb_status */
    PyTypeObject *context_type;
    PyTypeObject *device_type;
    PyObject *bounds_type;
    PyObject *from_dlpack; /* numpy.from_dlpack */
    bool notice_given;     /* a notice has been logged in this process */
    int tile_blocks;       /* for tests and benchmarks: struct hzb_options.tile_blocks */
};

static inline struct hzb_module *hzb_module_of(PyObject *module)
{
    return PyModule_GetState(module);
}

/* ---- module.c: names ---- */

/* A function's arguments: one that may be positional and must be there, others by keyword. */
struct hzb_signature {
    const char *function;
    enum hzb_name first;
    unsigned keywords; /* a bit for each enum hzb_name */
};

/* Sort a vectorcall's arguments into `values` by name, NULL where not given; references are
   borrowed. -1 with an exception. */
int hzb_parse(const struct hzb_module *module, const struct hzb_signature *signature,
              PyObject *const *args, Py_ssize_t count, PyObject *keywords,
              PyObject *values[HZB_NAMES]);

/* ---- errors.c ---- */

/* Make the exception classes. -1 with an exception. */
int hzb_errors_init(struct hzb_module *module);

/* Raise what `err` says; returns NULL. */
void *hzb_raise(const struct hzb_module *module, const struct hzb_error *err);

/* Raise `type` with a formatted message and `cause` (stolen, may be NULL) as its cause. */
void hzb_raise_from(PyObject *cause, PyObject *type, const char *format, ...);

/* Take the exception that is set, so that it can be the cause of another. */
PyObject *hzb_take_exception(void);

/* ---- options.c ---- */

/* The shape of frames: leading axes, height, width. */
struct hzb_shape {
    int axes;
    npy_intp side[HZB_MAX_LEADING_AXES + 2];
};

/* The text of a str, or NULL, and no exception, where it is none or cannot be a C string. */
const char *hzb_c_text(PyObject *value);

/* All build options but `out`. -1 with an exception. */
int hzb_options_parse(const struct hzb_module *module, PyObject *const values[HZB_NAMES],
                      struct hzb_options *options);

/* `argument` as a truth value, `fallback` where `value` is NULL. -1 with an exception. */
int hzb_parse_bool(const char *argument, PyObject *value, bool fallback);

/* An integer from anything with __index__ but a bool; `label` names it in messages. -1 with an
   exception. */
int hzb_parse_index(const char *label, PyObject *value, int64_t *number);

/* A shape from a sequence of integers, checked as hzb_shape_check does. -1 with an exception. */
int hzb_shape_parse(PyObject *value, struct hzb_shape *shape);

/* Whether a shape is one of frames: two axes, no side of 0. `argument` names it in the message. */
int hzb_shape_check(const char *argument, const struct hzb_shape *shape);

/* The shape of a level of these frames. */
struct hzb_shape hzb_shape_of_level(const struct hzb_shape *frames,
                                    const struct hzb_options *options,
                                    const struct hzb_extent *extent, int level);

PyObject *hzb_shape_tuple(const struct hzb_shape *shape);

/* ---- arrays.c ---- */

struct hzb_input {
    PyArrayObject *array; /* owned: keeps the frames' memory */
    struct hzb_shape shape;
    struct hzb_frames frames;
};

/* Describe `depth` without copying it, converting array-likes. `input` is zeroed by the caller; -1
   with an exception. */
int hzb_input_open(const struct hzb_module *module, PyObject *depth,
                   const struct hzb_options *options, struct hzb_input *input);
void hzb_input_close(struct hzb_input *input);

/* The arrays that results go to, as core wants them, and what the call returns. */
struct hzb_targets {
    struct hzb_block *block; /* a reference; NULL: none */
    int count;
    PyArrayObject *arrays[2 * HZB_MAX_LEVELS]; /* owned */
    struct hzb_output outputs[2 * HZB_MAX_LEVELS];
    PyObject *result; /* owned */
};

/* Take the caller's arrays, or make new ones, on the block if there is one. `targets` is zeroed by
   the caller but for the block; -1 with an exception. */
int hzb_targets_take(PyObject *out, const struct hzb_input *input,
                     const struct hzb_options *options, const struct hzb_extent *extent,
                     struct hzb_targets *targets);
int hzb_targets_make(const struct hzb_module *module, const struct hzb_input *input,
                     const struct hzb_options *options, const struct hzb_extent *extent,
                     struct hzb_targets *targets);
void hzb_targets_close(struct hzb_targets *targets);

/* Bytes of the block that new arrays share: of the levels that are not small. */
uint64_t hzb_targets_block_bytes(const struct hzb_input *input, const struct hzb_options *options,
                                 const struct hzb_extent *extent);

/* Bytes of all results together; UINT64_MAX beyond 64 bits. */
uint64_t hzb_targets_bytes(const struct hzb_input *input, const struct hzb_options *options,
                           const struct hzb_extent *extent);

/* ---- context.c ---- */

/* The time between hzb_unlock and hzb_relock is spent without the interpreter lock; `hooks` let
   core look for signals during it. */
struct hzb_unlocked {
    PyThreadState *thread;
    struct hzb_hooks hooks;
};
void hzb_unlock(struct hzb_unlocked *unlocked);
void hzb_relock(struct hzb_unlocked *unlocked);

/* For the exit hook: end the builds in flight, close every context, use no driver from now on. */
void hzb_shut_down(void);

/* Make the Context and Device types. -1 with an exception. */
int hzb_context_types_init(PyObject *module);

/* A new reference to the context that the arguments `device` and `context` (either may be NULL)
   name; logs its notice. NULL with an exception. */
struct hzb_context *hzb_context_for(struct hzb_module *module, PyObject *device, PyObject *context);

/* hzb_context_release, which may wait, without the interpreter lock; NULL is allowed. */
void hzb_release_context(struct hzb_context *context);

/* Log, once each, the kernels that the context came to distrust in the build before. */
int hzb_log_distrust(struct hzb_context *context);

/* "1.3.255" */
PyObject *hzb_version_text(uint32_t version);

extern PyMethodDef hzb_context_methods[];

/* ---- build.c ---- */

extern const struct hzb_signature hzb_build_signature;
extern const struct hzb_signature hzb_context_build_signature;

/* All that one build needs. */
struct hzb_call {
    struct hzb_request request;
    struct hzb_input input;
    struct hzb_context *context; /* owned */
    struct hzb_plan plan;
    struct hzb_targets targets;
};

/* Everything that comes before the work: checks, and the arrays that results go to. `lane_table` is
   that of struct hzb_options, `call` is zeroed by the caller; -1 with an exception. */
int hzb_call_prepare(struct hzb_module *module, PyObject *const values[HZB_NAMES], bool lane_table,
                     struct hzb_call *call);
struct hzb_job hzb_call_job(struct hzb_call *call);
void hzb_call_close(struct hzb_call *call);

/* hzb.build with its arguments sorted. */
PyObject *hzb_build(struct hzb_module *module, PyObject *const values[HZB_NAMES], bool lane_table);

extern PyMethodDef hzb_build_methods[];

/* ---- details.c, testing.c ---- */

extern PyMethodDef hzb_details_methods[];

extern PyMethodDef hzb_testing_methods[];

#endif
