/* The Context type, the Device record, and which context a call gets. */
#include "python/binding.h"

#include <string.h>

/* ---- without the interpreter lock ---- */

/* The exit hook is closing the contexts; read and written under the interpreter lock. */
static bool ending;

static bool interrupted(void *data)
{
    struct hzb_unlocked *unlocked = data;
    PyEval_RestoreThread(unlocked->thread);
    bool raised = PyErr_CheckSignals() < 0;
    if (!raised && ending) {
        /* Of other threads only daemons are left at this point: it ends them without a word. */
        PyErr_SetNone(PyExc_SystemExit);
        raised = true;
    }
    unlocked->thread = PyEval_SaveThread();
    return raised;
}

void hzb_unlock(struct hzb_unlocked *unlocked)
{
    unlocked->hooks = (struct hzb_hooks){.interrupted = interrupted, .data = unlocked};
    unlocked->thread = PyEval_SaveThread();
}

void hzb_relock(struct hzb_unlocked *unlocked) { PyEval_RestoreThread(unlocked->thread); }

void hzb_shut_down(void)
{
    ending = true;
    struct hzb_unlocked unlocked;
    hzb_unlock(&unlocked);
    hzb_contexts_shutdown();
    hzb_relock(&unlocked);
}

void hzb_release_context(struct hzb_context *context)
{
    if (!context || hzb_context_release_shared(context))
        return;
    struct hzb_unlocked unlocked;
    hzb_unlock(&unlocked);
    hzb_context_release(context);
    hzb_relock(&unlocked);
}

/* ---- device records ---- */

static PyStructSequence_Field device_fields[] = {
    {"index", "Its place in hzb.devices(), from 0."},
    {"name", "What the driver calls it."},
    {"kind", "\"discrete\", \"integrated\", \"virtual\", \"native\", \"software\" or \"other\"."},
    {"vendor_id", "PCI or Khronos number of the vendor."},
    {"device_id", "The vendor's number of the model."},
    {"uuid", "Text that tells equal cards apart, or None without a Vulkan driver."},
    {"driver_name", "Such as \"NVIDIA\" or \"llvmpipe\"."},
    {"driver_version", "As the driver writes it."},
    {"api_version", "The Vulkan version, such as \"1.3.255\", or None without a Vulkan driver."},
    {"memory", "Bytes of its own memory."},
    {NULL, NULL},
};

static PyStructSequence_Desc device_desc = {
    .name = "hzb.Device",
    .doc =
        "A device that hzb can use; hzb.devices() lists them.\n\n"
        "An immutable record. Pass it, its `index`, its `uuid` or a part of its name as `device`.",
    .fields = device_fields,
    .n_in_sequence = 10,
};

enum { DEVICE_UUID = 5 };

PyObject *hzb_version_text(uint32_t version)
{
    return PyUnicode_FromFormat("%u.%u.%u", VK_API_VERSION_MAJOR(version),
                                VK_API_VERSION_MINOR(version), VK_API_VERSION_PATCH(version));
}

static PyObject *make_device(const struct hzb_module *module, Py_ssize_t index,
                             const struct hzb_device_info *info)
{
    bool native = info->kind == HZB_KIND_NATIVE;
    char uuid[HZB_SPEC_TEXT];
    hzb_device_spec(info, uuid);
    PyObject *items[] = {
        PyLong_FromSsize_t(index),
        PyUnicode_DecodeUTF8(info->name, (Py_ssize_t)strlen(info->name), "replace"),
        PyUnicode_FromString(hzb_device_kind_name(info->kind)),
        PyLong_FromUnsignedLong(info->vendor_id),
        PyLong_FromUnsignedLong(info->device_id),
        native ? Py_NewRef(Py_None) : PyUnicode_FromString(uuid),
        PyUnicode_DecodeUTF8(info->driver_name, (Py_ssize_t)strlen(info->driver_name), "replace"),
        PyUnicode_DecodeUTF8(info->driver_version, (Py_ssize_t)strlen(info->driver_version),
                             "replace"),
        native ? Py_NewRef(Py_None) : hzb_version_text(info->api_version),
        PyLong_FromUnsignedLongLong(info->memory),
    };
    PyObject *record = PyStructSequence_New(module->device_type);
    for (size_t i = 0; i < sizeof(items) / sizeof(items[0]); i++) {
        if (record && items[i])
            PyStructSequence_SetItem(record, (Py_ssize_t)i, items[i]);
        else
            Py_XDECREF(items[i]);
        if (!items[i])
            Py_CLEAR(record);
    }
    return record;
}

/* List the devices without the interpreter lock: drivers take their time. */
static void list_devices(struct hzb_device_list *list, struct hzb_device_info *native)
{
    struct hzb_unlocked unlocked;
    hzb_unlock(&unlocked);
    hzb_devices_list(list);
    hzb_devices_native(native);
    hzb_relock(&unlocked);
}

PyDoc_STRVAR(devices_doc,
             "devices($module)\n--\n\n"
             "List the devices that hzb can use.\n\n"
             "Returns\n"
             "-------\n"
             "list of Device\n"
             "    One record a device: those of Vulkan, none where there is no loader,\n"
             "    driver or device, and last the processor, whose `kind` is\n"
             "    \"native\".");

static PyObject *devices(PyObject *self, PyObject *Py_UNUSED(unused))
{
    struct hzb_module *module = hzb_module_of(self);
    struct hzb_device_list devices;
    struct hzb_device_info native;
    list_devices(&devices, &native);
    PyObject *list = PyList_New(devices.count + 1);
    for (uint32_t i = 0; list && i <= devices.count; i++) {
        PyObject *record =
            make_device(module, i, i < devices.count ? &devices.records[i] : &native);
        if (record)
            PyList_SET_ITEM(list, i, record);
        else
            Py_CLEAR(list);
    }
    return list;
}

/* The record of a device that is in use, with the place it has in the list. */
static PyObject *find_device(const struct hzb_module *module, const struct hzb_device_info *info)
{
    struct hzb_device_list devices;
    struct hzb_device_info native;
    list_devices(&devices, &native);
    uint32_t index = 0;
    /* Two drivers may offer the same card, under one UUID. */
    while (index < devices.count &&
           (memcmp(devices.records[index].uuid, info->uuid, sizeof(info->uuid)) != 0 ||
            strcmp(devices.records[index].driver_name, info->driver_name) != 0))
        index++;
    return make_device(module, index, info);
}

/* ---- device specs ---- */

/* The text of a device spec, as a new str that hzb_c_text takes, or None for the default device. */
static PyObject *spec_of(const struct hzb_module *module, PyObject *device)
{
    PyObject *spec = device ? device : Py_None;
    if (Py_IS_TYPE(spec, module->device_type))
        spec = PyStructSequence_GetItem(spec, DEVICE_UUID);
    if (spec == Py_None)
        return device && device != Py_None ? PyUnicode_FromString("cpu") : Py_NewRef(Py_None);
    if (PyUnicode_Check(spec)) {
        Py_INCREF(spec);
    } else {
        PyObject *index = PyBool_Check(spec) ? NULL : PyNumber_Index(spec);
        if (!index && (PyBool_Check(spec) || PyErr_ExceptionMatches(PyExc_TypeError)))
            PyErr_Format(PyExc_TypeError,
                         "device: %R is not accepted; pass a str, an int or a record of "
                         "hzb.devices()",
                         device);
        spec = index ? PyObject_Str(index) : NULL;
        Py_XDECREF(index);
    }
    if (spec && (!hzb_c_text(spec) || (device != spec && PyUnicode_READ_CHAR(spec, 0) == '-'))) {
        PyErr_Format(PyExc_ValueError,
                     "device: %R cannot name a device; hzb.devices() lists them, from index 0",
                     device);
        Py_CLEAR(spec);
    }
    return spec;
}

static const char *spec_text(PyObject *spec) { return spec == Py_None ? NULL : hzb_c_text(spec); }

/* Takes the reference to the text, which may be NULL with an exception. */
static int log_text(const char *method, PyObject *text)
{
    PyObject *logging = PyImport_ImportModule("logging");
    PyObject *logger = logging ? PyObject_CallMethod(logging, "getLogger", "s", "hzb") : NULL;
    PyObject *done = logger && text ? PyObject_CallMethod(logger, method, "sO", "%s", text) : NULL;
    Py_XDECREF(text);
    Py_XDECREF(logging);
    Py_XDECREF(logger);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* Log what there is to say about how a device was chosen, once a process. */
static int log_notice(struct hzb_module *module, const struct hzb_notice *notice)
{
    if (!notice->text[0] || module->notice_given)
        return 0;
    module->notice_given = true;
    return log_text(notice->warns ? "warning" : "info", PyUnicode_FromString(notice->text));
}

int hzb_log_distrust(struct hzb_context *context)
{
    /* Only read, as a rule: this comes after every build. */
    uint32_t kernels = context->untold ? atomic_exchange(&context->untold, 0) : 0;
    for (int i = 0; kernels >> i; i++)
        if (kernels >> i & 1 &&
            log_text("warning",
                     PyUnicode_FromFormat(
                         "%s, driver %s %s, gets the kernel of algorithm=\"%s\" wrong: its known "
                         "case came out with other bits. Builds take another one from now on, "
                         "with the right bits",
                         context->info.name, context->info.driver_name,
                         context->info.driver_version, hzb_kernel_name(i))) < 0)
            return -1;
    return 0;
}

/* ---- hzb.Context ---- */

typedef struct {
    PyObject ob_base;
    /* NULL until an unpickled Context is first used; then the spec is all there is. */
    struct hzb_context *context;
    char spec[HZB_SPEC_TEXT];
    bool closed; /* before it was used */
} context_object;

static struct hzb_module *module_of(const context_object *self)
{
    return PyType_GetModuleState(Py_TYPE(self));
}

static int fail_closed(const context_object *self)
{
    struct hzb_error err;
    hzb_fail(&err, HZB_FAILED,
             "the context of device %s is closed: make another with hzb.Context(device=…)",
             self->spec);
    hzb_raise(module_of(self), &err);
    return -1;
}

/* Open a context of its own for `spec` and give it to `self`, unless another thread was faster. */
static int open_context(context_object *self, const char *spec)
{
    struct hzb_module *module = module_of(self);
    struct hzb_context *context;
    struct hzb_notice notice;
    struct hzb_error err;
    struct hzb_unlocked unlocked;
    hzb_unlock(&unlocked);
    enum hzb_status status = hzb_context_create(spec, &unlocked.hooks, &context, &notice, &err);
    hzb_relock(&unlocked);
    if (status) {
        hzb_raise(module, &err);
        return -1;
    }
    if (self->context || self->closed) {
        hzb_release_context(context);
        return 0;
    }
    self->context = context;
    hzb_device_spec(&context->info, self->spec);
    return log_notice(module, &notice);
}

/* Open one that was unpickled, at its first use. */
static int need_context(context_object *self)
{
    if (!self->context && !self->closed && open_context(self, self->spec) < 0)
        return -1;
    return self->context ? 0 : fail_closed(self);
}

static bool is_closed(const context_object *self)
{
    return self->context ? self->context->closed : self->closed;
}

static PyObject *context_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"device", NULL};
    PyObject *device = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O:Context", names, &device))
        return NULL;
    PyObject *spec = spec_of(PyType_GetModuleState(type), device);
    context_object *self = spec ? (context_object *)type->tp_alloc(type, 0) : NULL;
    if (self && open_context(self, spec_text(spec)) < 0)
        Py_CLEAR(self);
    Py_XDECREF(spec);
    return (PyObject *)self;
}

PyDoc_STRVAR(restore_context_doc, "_restore_context($module, spec, /)\n--\n\n"
                                  "Unpickle a Context: one that opens its device when used.");

static PyObject *restore_context(PyObject *self, PyObject *spec)
{
    PyTypeObject *type = hzb_module_of(self)->context_type;
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(spec, &size);
    if (!text)
        return NULL;
    if (size >= HZB_SPEC_TEXT || strlen(text) != (size_t)size) {
        PyErr_Format(PyExc_ValueError, "spec: %R is not what a context is pickled as", spec);
        return NULL;
    }
    context_object *context = (context_object *)type->tp_alloc(type, 0);
    if (context)
        memcpy(context->spec, text, (size_t)size + 1);
    return (PyObject *)context;
}

static int context_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static void context_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    hzb_release_context(((context_object *)self)->context);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *context_repr(PyObject *object)
{
    const context_object *self = (context_object *)object;
    if (self->context)
        return PyUnicode_FromFormat("<hzb.Context on %s%s>", self->context->info.name,
                                    is_closed(self) ? ", closed" : "");
    return PyUnicode_FromFormat("<hzb.Context of device %s, %s>", self->spec,
                                is_closed(self) ? "closed" : "not opened yet");
}

PyDoc_STRVAR(context_build_doc,
             "build($self, depth, *, bounds=\"furthest\", reversed_z=True, sizing=\"pow2\",\n"
             "      rounding=\"conservative\", nan=\"propagate\", view_rect=None, levels=None,\n"
             "      dtype=\"float16\", algorithm=\"auto\", out=None)\n"
             "--\n\n"
             "Build the hierarchical Z buffer of reversed-Z depth (near = 1, far = 0) here.\n\n"
             "Takes the arguments of :func:`hzb.build` less `device` and `context`, with the same\n"
             "results and errors.\n\n"
             "Raises\n"
             "------\n"
             "hzb.Error\n"
             "    If the context is closed.");

static PyObject *context_build(PyObject *self, PyObject *const *args, Py_ssize_t count,
                               PyObject *keywords)
{
    struct hzb_module *module = module_of((context_object *)self);
    PyObject *values[HZB_NAMES];
    if (hzb_parse(module, &hzb_context_build_signature, args, count, keywords, values) < 0)
        return NULL;
    values[HZB_CONTEXT] = self;
    return hzb_build(module, values, false);
}

PyDoc_STRVAR(context_close_doc, "close($self)\n--\n\n"
                                "Wait for the build in flight and free the device.\n\n"
                                "Levels that were built stay; where they lie in memory that the\n"
                                "driver gave, it goes with the last of them.\n\n"
                                "Later builds raise :exc:`hzb.Error`. Closing again does nothing.");

static PyObject *context_close(PyObject *object, PyObject *Py_UNUSED(unused))
{
    context_object *self = (context_object *)object;
    struct hzb_context *context = self->context;
    if (!context) {
        self->closed = true;
        Py_RETURN_NONE;
    }
    struct hzb_error err;
    struct hzb_unlocked unlocked;
    hzb_unlock(&unlocked);
    enum hzb_status status = hzb_context_close(context, &unlocked.hooks, &err);
    hzb_relock(&unlocked);
    if (status)
        return hzb_raise(module_of(self), &err);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(context_enter_doc, "__enter__($self)\n--\n\nReturn the context itself.");

static PyObject *context_enter(PyObject *self, PyObject *Py_UNUSED(unused))
{
    if (is_closed((context_object *)self)) {
        fail_closed((context_object *)self);
        return NULL;
    }
    return Py_NewRef(self);
}

PyDoc_STRVAR(context_exit_doc, "__exit__($self, /, *exception)\n--\n\nClose the context.");

static PyObject *context_exit(PyObject *self, PyObject *Py_UNUSED(exception))
{
    return context_close(self, NULL);
}

PyDoc_STRVAR(context_reduce_doc,
             "__reduce__($self)\n--\n\nPickle as the device; the copy opens it when used.");

static PyObject *context_reduce(PyObject *self, PyObject *Py_UNUSED(unused))
{
    PyObject *module = PyType_GetModule(Py_TYPE(self));
    PyObject *restore = PyObject_GetAttrString(module, "_restore_context");
    return restore ? Py_BuildValue("N(s)", restore, ((context_object *)self)->spec) : NULL;
}

static PyObject *context_get_device(PyObject *object, void *Py_UNUSED(closure))
{
    context_object *self = (context_object *)object;
    return need_context(self) < 0 ? NULL : find_device(module_of(self), &self->context->info);
}

static PyObject *context_get_closed(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(is_closed((context_object *)self));
}

static PyMethodDef context_methods[] = {
    {"build", (PyCFunction)(void (*)(void))context_build, METH_FASTCALL | METH_KEYWORDS,
     context_build_doc},
    {"close", context_close, METH_NOARGS, context_close_doc},
    {"__enter__", context_enter, METH_NOARGS, context_enter_doc},
    {"__exit__", context_exit, METH_VARARGS, context_exit_doc},
    {"__reduce__", context_reduce, METH_NOARGS, context_reduce_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef context_properties[] = {
    {"device", context_get_device, NULL, "The record of the context's device.", NULL},
    {"closed", context_get_closed, NULL, "Whether the context has been closed.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(
    context_doc,
    "Context(device=None)\n--\n\n"
    "A device held open for builds; reversed-Z (near = 1, far = 0) is their default.\n\n"
    "Calls of :func:`hzb.build` share contexts that are made when first needed, so one of\n"
    "your own is for choosing when a device is opened and freed. A context may be used\n"
    "from any thread, one build at a time; it closes when left as a context manager or\n"
    "garbage collected, and pickles as its device, which the copy opens when used.\n\n"
    "A context tries the kernels of the algorithms \"two_pass\" and \"single_pass\" on a known\n"
    "case before their first use. If the driver gets one wrong, it logs a warning (``hzb``) and\n"
    "takes a simpler one from then on.\n\n"
    "Parameters\n"
    "----------\n"
    "device : str, int, Device or None\n"
    "    A UUID or part of a device's or driver's name, \"cpu\" for the processor, an index\n"
    "    into :func:`hzb.devices`, one of its records, or None for the default device: the\n"
    "    one that the environment variable HZB_DEVICE names in the same way, else the best,\n"
    "    which is the processor where there is no GPU.\n\n"
    "Raises\n"
    "------\n"
    "ValueError\n"
    "    If there is no such device; the message lists those that there are.\n"
    "hzb.LoaderNotFoundError, hzb.NoDeviceError\n"
    "    If one is named, and Vulkan or its driver is missing.\n"
    "hzb.VulkanError\n"
    "    If a device that is named cannot be opened.");

static PyType_Slot context_slots[] = {
    {Py_tp_doc, (void *)context_doc},   {Py_tp_new, context_new},
    {Py_tp_traverse, context_traverse}, {Py_tp_dealloc, context_dealloc},
    {Py_tp_repr, context_repr},         {Py_tp_methods, context_methods},
    {Py_tp_getset, context_properties}, {0, NULL},
};

static PyType_Spec context_spec = {
    .name = "hzb.Context",
    .basicsize = sizeof(context_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = context_slots,
};

int hzb_context_types_init(PyObject *module)
{
    struct hzb_module *state = hzb_module_of(module);
    state->context_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &context_spec, NULL);
    state->device_type = PyStructSequence_NewType(&device_desc);
    return state->context_type && state->device_type ? 0 : -1;
}

/* ---- the context of a call ---- */

/* A reference to the context that an argument gives. */
static struct hzb_context *given_context(const struct hzb_module *module, PyObject *argument)
{
    if (!Py_IS_TYPE(argument, module->context_type)) {
        PyErr_Format(PyExc_TypeError, "context: %.200s is not accepted; pass an hzb.Context",
                     Py_TYPE(argument)->tp_name);
        return NULL;
    }
    context_object *self = (context_object *)argument;
    if (need_context(self) < 0)
        return NULL;
    hzb_context_retain(self->context);
    return self->context;
}

struct hzb_context *hzb_context_for(struct hzb_module *module, PyObject *device, PyObject *argument)
{
    if (argument && argument != Py_None) {
        if (!device || device == Py_None)
            return given_context(module, argument);
        PyErr_Format(PyExc_ValueError,
                     "device: %R is given with a context, which has its own; pass one of the two",
                     device);
        return NULL;
    }
    PyObject *spec = spec_of(module, device);
    if (!spec)
        return NULL;
    struct hzb_context *context;
    struct hzb_notice notice;
    struct hzb_error err;
    struct hzb_unlocked unlocked;
    hzb_unlock(&unlocked);
    enum hzb_status status =
        hzb_context_shared(spec_text(spec), &unlocked.hooks, &context, &notice, &err);
    hzb_relock(&unlocked);
    Py_DECREF(spec);
    if (status)
        return hzb_raise(module, &err);
    if (log_notice(module, &notice) < 0) {
        hzb_release_context(context);
        return NULL;
    }
    return context;
}

PyMethodDef hzb_context_methods[] = {
    {"devices", devices, METH_NOARGS, devices_doc},
    {"_restore_context", restore_context, METH_O, restore_context_doc},
    {NULL, NULL, 0, NULL},
};
