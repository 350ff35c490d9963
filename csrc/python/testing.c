/* What only tests and benchmarks use: planted faults, what is alive, validation messages, plans,
   times of kernels. */
#include "python/binding.h"

#include "base/alloc.h"
#include "base/fault.h"
#include "core/measure.h"

#include <string.h>

static int parse_kind(PyObject *value, enum hzb_fault *kind)
{
    static const char *const kinds[HZB_FAULT_KINDS] = {
        [HZB_FAULT_ALLOC] = "alloc",
        [HZB_FAULT_THREAD] = "thread",
        [HZB_FAULT_FILE] = "file",
        [HZB_FAULT_VULKAN] = "vulkan",
        [HZB_FAULT_DEVICE_LOST] = "device_lost",
        [HZB_FAULT_KNOWN_ANSWER] = "known_answer",
    };
    const char *text = hzb_c_text(value);
    for (int i = 0; text && i < HZB_FAULT_KINDS; i++)
        if (strcmp(kinds[i], text) == 0) {
            *kind = (enum hzb_fault)i;
            return 0;
        }
    PyErr_Format(PyExc_ValueError,
                 "kind: %R is not accepted; pass 'alloc', 'thread', 'file', 'vulkan', "
                 "'device_lost' or 'known_answer'",
                 value);
    return -1;
}

static PyObject *arm_fault(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *value;
    long nth;
    enum hzb_fault kind;
    if (!PyArg_ParseTuple(args, "Ol:_arm_fault", &value, &nth) || parse_kind(value, &kind) < 0)
        return NULL;
    hzb_fault_arm(kind, nth);
    Py_RETURN_NONE;
}

static PyObject *fault_calls(PyObject *Py_UNUSED(self), PyObject *value)
{
    enum hzb_fault kind;
    return parse_kind(value, &kind) < 0 ? NULL : PyLong_FromLong(hzb_fault_calls(kind));
}

static PyObject *live(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused))
{
    return Py_BuildValue("{slsl}", "allocations", hzb_live_allocations(), "vulkan",
                         hzb_live_vulkan_objects());
}

static PyObject *blocks(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused))
{
    uint64_t all, idle;
    hzb_blocks_bytes(&all, &idle);
    return Py_BuildValue("{sKsK}", "all", (unsigned long long)all, "idle",
                         (unsigned long long)idle);
}

static PyObject *take_validation_messages(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused))
{
    PyObject *list = PyList_New(0);
    char *message;
    while (list && (message = hzb_validation_take())) {
        PyObject *text = PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "replace");
        hzb_free(message);
        if (!text || PyList_Append(list, text) < 0)
            Py_CLEAR(list);
        Py_XDECREF(text);
    }
    return list;
}

static PyObject *describe_dispatch(const struct hzb_dispatch *dispatch)
{
    static const char *const sources[] = {
        [HZB_SOURCE_IMAGE] = "image",
        [HZB_SOURCE_INPUT] = "input",
        [HZB_SOURCE_LEVEL] = "level",
    };
    return Py_BuildValue("{sssssisisIsIsIsIsIs(II)}", "kernel", hzb_kernel_name(dispatch->kernel),
                         "source", sources[dispatch->source], "first", (int)dispatch->first,
                         "count", (int)dispatch->count, "tile_shift", dispatch->tile_shift,
                         "tiles_x", dispatch->tiles_x, "tiles", dispatch->tiles, "tile_side",
                         64 * dispatch->blocks, "run", dispatch->run, "groups", dispatch->groups[0],
                         dispatch->groups[1]);
}

static PyObject *describe_dispatches(const struct hzb_plan *plan)
{
    PyObject *list = PyList_New(plan->dispatch_count);
    for (int i = 0; list && i < plan->dispatch_count; i++) {
        PyObject *dispatch = describe_dispatch(&plan->dispatches[i]);
        if (dispatch)
            PyList_SET_ITEM(list, i, dispatch);
        else
            Py_CLEAR(list);
    }
    return list;
}

PyDoc_STRVAR(describe_plan_doc, "_describe_plan($module, shape, **options)\n--\n\n"
                                "Describe the plan that build would make for an array's shape.");

static PyObject *describe_plan(PyObject *self, PyObject *const *args, Py_ssize_t count,
                               PyObject *keywords)
{
    struct hzb_module *module = hzb_module_of(self);
    struct hzb_signature signature = hzb_build_signature;
    signature.function = "_describe_plan";
    signature.first = HZB_SHAPE;
    PyObject *values[HZB_NAMES];
    struct hzb_options options;
    struct hzb_shape shape;
    struct hzb_extent extent;
    struct hzb_plan plan;
    struct hzb_error err;
    if (hzb_parse(module, &signature, args, count, keywords, values) < 0 ||
        hzb_options_parse(module, values, &options) < 0 ||
        hzb_shape_parse(values[HZB_SHAPE], &shape) < 0)
        return NULL;
    int leading = shape.axes - 2;
    if (hzb_options_check(&options, shape.side[leading + 1], shape.side[leading], &extent, &err))
        return hzb_raise(module, &err);
    struct hzb_context *context = hzb_context_for(module, values[HZB_DEVICE], values[HZB_CONTEXT]);
    if (!context)
        return NULL;
    bool native = hzb_context_is_native(context);
    enum hzb_status status = HZB_OK;
    if (!native) {
        struct hzb_limits limits = hzb_context_limits(context);
        status = hzb_plan_make(&options, &extent, PyArray_MultiplyList(shape.side, leading),
                               &limits, context->info.name, &plan, &err);
    }
    hzb_release_context(context);
    if (status)
        return hzb_raise(module, &err);
    if (native)
        return Py_BuildValue("{sis[]}", "levels", extent.levels, "dispatches");
    return Py_BuildValue("{sisIsIsNsN}", "levels", (int)plan.levels, "group_frames",
                         plan.group_frames, "subgroup_size", plan.subgroup_size, "storage16",
                         PyBool_FromLong(plan.storage16), "dispatches", describe_dispatches(&plan));
}

PyDoc_STRVAR(build_lane_table_doc, "_build_lane_table($module, depth, **options)\n--\n\n"
                                   "Build with kernels that store lane numbers instead of depth.");

static PyObject *build_lane_table(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                  PyObject *keywords)
{
    struct hzb_module *module = hzb_module_of(self);
    PyObject *values[HZB_NAMES];
    if (hzb_parse(module, &hzb_build_signature, args, count, keywords, values) < 0)
        return NULL;
    return hzb_build(module, values, true);
}

PyDoc_STRVAR(
    set_tile_side_doc,
    "_set_tile_side($module, side, /)\n--\n\n"
    "Let large tiles over a frame have 64 or 128 pixels a side from now on; 0: as planned.");

static PyObject *set_tile_side(PyObject *self, PyObject *value)
{
    long side = PyLong_AsLong(value);
    if (side == -1 && PyErr_Occurred())
        return NULL;
    if (side != 0 && side != 64 && side != 128)
        return PyErr_Format(PyExc_ValueError, "side: %R is not accepted; pass 0, 64 or 128", value);
    hzb_module_of(self)->tile_blocks = (int)side / 64;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(distrusted_doc, "_distrusted($module, device, /)\n--\n\n"
                             "Name the kernels that the context of a device, a Context or a spec,\n"
                             "found its driver to get wrong.");

static PyObject *distrusted(PyObject *self, PyObject *device)
{
    struct hzb_module *module = hzb_module_of(self);
    bool given = Py_TYPE(device) == (PyTypeObject *)module->context_type;
    struct hzb_context *context =
        hzb_context_for(module, given ? NULL : device, given ? device : NULL);
    if (!context)
        return NULL;
    uint32_t bits = context->distrusted;
    hzb_release_context(context);
    PyObject *names = PyList_New(0);
    for (int i = 0; names && i < HZB_KERNELS; i++) {
        if (!(bits >> i & 1))
            continue;
        PyObject *name = PyUnicode_FromString(hzb_kernel_name(i));
        if (!name || PyList_Append(names, name) < 0)
            Py_CLEAR(names);
        Py_XDECREF(name);
    }
    return names;
}

/* Make a fence with a flag that there is not: against the rules, and harmless. */
static enum hzb_status break_rule(struct hzb_device *device, struct hzb_error *err)
{
    const VkFenceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO,
                                    .flags = 1u << 30};
    VkFence fence;
    VK_CREATE(fence, device->vk.vkCreateFence, device->handle, &info, NULL);
    VK_DESTROY(device->vk.vkDestroyFence, device->handle, fence);
    return HZB_OK;
fail:
    return err->status;
}

static PyObject *provoke_validation_message(PyObject *self, PyObject *device)
{
    struct hzb_module *module = hzb_module_of(self);
    struct hzb_context *context = hzb_context_for(module, device, NULL);
    if (!context)
        return NULL;
    struct hzb_error err;
    struct hzb_unlocked unlocked;
    hzb_unlock(&unlocked);
    enum hzb_status status = hzb_context_enter_device(context, &unlocked.hooks, &err);
    if (!status) {
        status = break_rule(context->device, &err);
        hzb_context_leave(context);
    }
    hzb_context_release(context);
    hzb_relock(&unlocked);
    if (status)
        return hzb_raise(module, &err);
    Py_RETURN_NONE;
}

static int parse_measure(PyObject *const values[HZB_NAMES], struct hzb_measure *measure)
{
    int64_t sets = 1, repeats = 1, heat_ns = 0;
    int upload = hzb_parse_bool("upload", values[HZB_UPLOAD], false);
    if (upload < 0 || (values[HZB_SETS] && hzb_parse_index("sets", values[HZB_SETS], &sets) < 0) ||
        (values[HZB_REPEATS] && hzb_parse_index("repeats", values[HZB_REPEATS], &repeats) < 0) ||
        (values[HZB_HEAT_NS] && hzb_parse_index("heat_ns", values[HZB_HEAT_NS], &heat_ns) < 0))
        return -1;
    if (sets < 1 || sets > 10000 || repeats < 1 || repeats > 1000000 || heat_ns < 0) {
        PyErr_SetString(PyExc_ValueError, "sets has to be from 1 to 10000, repeats from 1 to "
                                          "1000000 and heat_ns at least 0");
        return -1;
    }
    *measure = (struct hzb_measure){(uint32_t)sets, (uint32_t)repeats, (uint64_t)heat_ns, upload};
    return 0;
}

static PyObject *times_of(struct hzb_module *module, struct hzb_call *call,
                          const struct hzb_measure *measure)
{
    const struct hzb_job job = hzb_call_job(call);
    struct hzb_error err;
    double *times = hzb_calloc(measure->repeats, sizeof(*times));
    if (!times)
        return PyErr_NoMemory();
    struct hzb_unlocked unlocked;
    hzb_unlock(&unlocked);
    enum hzb_status status = hzb_measure_run(call->context, &job, measure, times, &err);
    hzb_relock(&unlocked);
    PyObject *list = status ? hzb_raise(module, &err) : PyList_New(measure->repeats);
    for (uint32_t i = 0; list && i < measure->repeats; i++) {
        PyObject *time = PyFloat_FromDouble(times[i]);
        if (time)
            PyList_SET_ITEM(list, i, time);
        else
            Py_CLEAR(list);
    }
    hzb_free(times);
    return list;
}

PyDoc_STRVAR(measure_doc,
             "_measure($module, depth, *, sets=1, repeats=1, heat_ns=0, upload=False, **options)\n"
             "--\n\nTime the kernels of a build with timestamps, in nanoseconds.");

static PyObject *measure(PyObject *self, PyObject *const *args, Py_ssize_t count,
                         PyObject *keywords)
{
    struct hzb_module *module = hzb_module_of(self);
    struct hzb_signature signature = hzb_build_signature;
    signature.function = "_measure";
    signature.keywords |= 1u << HZB_SETS | 1u << HZB_REPEATS | 1u << HZB_HEAT_NS | 1u << HZB_UPLOAD;
    PyObject *values[HZB_NAMES];
    struct hzb_measure settings;
    struct hzb_call call = {0};
    PyObject *times = NULL;
    if (hzb_parse(module, &signature, args, count, keywords, values) == 0 &&
        parse_measure(values, &settings) == 0 &&
        hzb_call_prepare(module, values, false, &call) == 0) {
        /* A batch is measured as one submission, where the device can take it. */
        call.plan.group_frames = call.plan.most_frames;
        times = times_of(module, &call, &settings);
    }
    hzb_call_close(&call);
    return times;
}

PyMethodDef hzb_testing_methods[] = {
    {"_arm_fault", arm_fault, METH_VARARGS,
     "_arm_fault($module, kind, nth, /)\n--\n\nMake the nth call of a kind fail; 0 disarms."},
    {"_fault_calls", fault_calls, METH_O,
     "_fault_calls($module, kind, /)\n--\n\nCount the calls of a kind since it was armed."},
    {"_live", live, METH_NOARGS,
     "_live($module)\n--\n\nCount what is alive: allocations and Vulkan objects."},
    {"_blocks", blocks, METH_NOARGS,
     "_blocks($module)\n--\n\nCount the bytes of memory for results: all, and what is idle."},
    {"_take_validation_messages", take_validation_messages, METH_NOARGS,
     "_take_validation_messages($module)\n--\n\nTake the kept messages of the validation layer."},
    {"_set_tile_side", set_tile_side, METH_O, set_tile_side_doc},
    {"_distrusted", distrusted, METH_O, distrusted_doc},
    {"_provoke_validation_message", provoke_validation_message, METH_O,
     "_provoke_validation_message($module, device, /)\n--\n\nMake a call that is against the "
     "rules."},
    {"_measure", (PyCFunction)(void (*)(void))measure, METH_FASTCALL | METH_KEYWORDS, measure_doc},
    {"_describe_plan", (PyCFunction)(void (*)(void))describe_plan, METH_FASTCALL | METH_KEYWORDS,
     describe_plan_doc},
    {"_build_lane_table", (PyCFunction)(void (*)(void))build_lane_table,
     METH_FASTCALL | METH_KEYWORDS, build_lane_table_doc},
    {NULL, NULL, 0, NULL},
};
