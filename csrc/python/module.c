/* The module hzb._core: its state, and the sorting of a call's arguments by name. */
#define HZB_FILLS_NUMPY_API
#include "python/binding.h"

/* ---- arguments ---- */

static const char *const name_texts[HZB_NAMES] = {
    [HZB_DEPTH] = "depth",
    [HZB_BOUNDS_NAME] = "bounds",
    [HZB_REVERSED_Z] = "reversed_z",
    [HZB_SIZING_NAME] = "sizing",
    [HZB_ROUNDING_NAME] = "rounding",
    [HZB_NAN_NAME] = "nan",
    [HZB_VIEW_RECT] = "view_rect",
    [HZB_LEVELS] = "levels",
    [HZB_DTYPE_NAME] = "dtype",
    [HZB_ALGORITHM_NAME] = "algorithm",
    [HZB_OUT] = "out",
    [HZB_DEVICE] = "device",
    [HZB_CONTEXT] = "context",
    [HZB_SHAPE] = "shape",
    [HZB_COVERED] = "covered",
    [HZB_SETS] = "sets",
    [HZB_REPEATS] = "repeats",
    [HZB_HEAT_NS] = "heat_ns",
    [HZB_UPLOAD] = "upload",
};

static int find_name(const struct hzb_module *module, PyObject *key)
{
    /* Names in source code are interned; those of a dict need not be. */
    for (int name = 0; name < HZB_NAMES; name++)
        if (module->names[name] == key)
            return name;
    for (int name = 0; name < HZB_NAMES; name++)
        if (PyUnicode_Compare(module->names[name], key) == 0)
            return name;
    return -1;
}

int hzb_parse(const struct hzb_module *module, const struct hzb_signature *signature,
              PyObject *const *args, Py_ssize_t count, PyObject *keywords,
              PyObject *values[HZB_NAMES])
{
    for (int name = 0; name < HZB_NAMES; name++)
        values[name] = NULL;
    if (count > 1) {
        PyErr_Format(PyExc_TypeError, "%s() takes 1 positional argument but %zd were given",
                     signature->function, count);
        return -1;
    }
    if (count == 1)
        values[signature->first] = args[0];
    Py_ssize_t keyword_count = keywords ? PyTuple_GET_SIZE(keywords) : 0;
    for (Py_ssize_t i = 0; i < keyword_count; i++) {
        PyObject *key = PyTuple_GET_ITEM(keywords, i);
        int name = find_name(module, key);
        unsigned accepted = signature->keywords | 1u << signature->first;
        const char *fault = name < 0 || !(accepted >> name & 1) ? "an unexpected keyword argument"
                            : values[name]                      ? "multiple values for argument"
                                                                : NULL;
        if (fault) {
            PyErr_Format(PyExc_TypeError, "%s() got %s %R", signature->function, fault, key);
            return -1;
        }
        values[name] = args[count + i];
    }
    if (!values[signature->first])
        PyErr_Format(PyExc_TypeError, "%s() missing 1 required positional argument: '%U'",
                     signature->function, module->names[signature->first]);
    return values[signature->first] ? 0 : -1;
}

/* ---- initialisation ---- */

/* The function pointers of the Vulkan loader are those of the whole process, with one interpreter's
   signals and locks behind them. */
static int refuse_subinterpreter(void)
{
    if (PyInterpreterState_Get() == PyInterpreterState_Main())
        return 0;
    PyErr_SetString(PyExc_ImportError,
                    "hzb cannot be imported in a sub-interpreter; import it in the main "
                    "interpreter, or use processes");
    return -1;
}

static int init_numpy(struct hzb_module *module)
{
    /* Not import_array, which prints. */
    if (_import_array() == 0) {
        PyObject *numpy = PyImport_ImportModule("numpy");
        if (numpy)
            module->from_dlpack = PyObject_GetAttrString(numpy, "from_dlpack");
        Py_XDECREF(numpy);
    }
    if (module->from_dlpack)
        return 0;
    PyObject *cause = hzb_take_exception();
    hzb_raise_from(cause, PyExc_ImportError,
                   "hzb needs NumPy 1.23 or newer, which could not be imported (%S): "
                   "python -m pip install numpy",
                   cause);
    return -1;
}

static int init_names(struct hzb_module *module)
{
    for (int name = 0; name < HZB_NAMES; name++) {
        module->names[name] = PyUnicode_InternFromString(name_texts[name]);
        if (!module->names[name])
            return -1;
    }
    return 0;
}

static int set_doc(PyObject *object, const char *doc)
{
    PyObject *text = PyUnicode_FromString(doc);
    int failed = text ? PyObject_SetAttrString(object, "__doc__", text) : -1;
    Py_XDECREF(text);
    return failed;
}

static int set_field_doc(PyObject *type, const char *field, const char *doc)
{
    PyObject *property = PyObject_GetAttrString(type, field);
    int failed = property ? set_doc(property, doc) : -1;
    Py_XDECREF(property);
    return failed;
}

static int init_bounds(struct hzb_module *module)
{
    PyObject *collections = PyImport_ImportModule("collections");
    PyObject *make = collections ? PyObject_GetAttrString(collections, "namedtuple") : NULL;
    PyObject *args = Py_BuildValue("(ss)", "Bounds", "furthest closest");
    PyObject *keywords = Py_BuildValue("{ss}", "module", "hzb");
    if (make && args && keywords)
        module->bounds_type = PyObject_Call(make, args, keywords);
    Py_XDECREF(collections);
    Py_XDECREF(make);
    Py_XDECREF(args);
    Py_XDECREF(keywords);
    PyObject *type = module->bounds_type;
    if (!type ||
        set_doc(type,
                "Both chains of one build: levels of the furthest and of the closest depth.") < 0 ||
        set_field_doc(type, "furthest",
                      "Levels of the depth furthest from the viewer: the smallest in reversed-Z "
                      "(near = 1, far = 0).") < 0)
        return -1;
    return set_field_doc(type, "closest",
                         "Levels of the depth nearest to the viewer: the greatest in reversed-Z.");
}

static PyObject *shut_down(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused))
{
    hzb_shut_down();
    Py_RETURN_NONE;
}

/* What the process has one of, however often the module is loaded. The end comes through atexit,
   which runs while threads and the interpreter still work. */
static int init_process(void)
{
    static PyMethodDef method = {"_shut_down", shut_down, METH_NOARGS, NULL};
    static bool done;
    if (done)
        return 0;
    if (!hzb_process_setup() || !hzb_blocks_setup() || !hzb_contexts_setup()) {
        PyErr_SetString(PyExc_ImportError, "the system has no resources for another lock");
        return -1;
    }
    PyObject *atexit = PyImport_ImportModule("atexit");
    PyObject *function = PyCFunction_New(&method, NULL);
    PyObject *registered =
        atexit && function ? PyObject_CallMethod(atexit, "register", "O", function) : NULL;
    done = registered != NULL;
    Py_XDECREF(atexit);
    Py_XDECREF(function);
    Py_XDECREF(registered);
    return done ? 0 : -1;
}

static int add_to_module(PyObject *module)
{
    struct hzb_module *state = hzb_module_of(module);
    for (int status = HZB_FAILED; status < HZB_INTERRUPTED; status++)
        if (PyModule_AddType(module, (PyTypeObject *)state->exceptions[status]) < 0)
            return -1;
    if (PyModule_AddType(module, state->context_type) < 0 ||
        PyModule_AddType(module, state->device_type) < 0 ||
        PyModule_AddObjectRef(module, "Bounds", state->bounds_type) < 0 ||
        PyModule_AddStringConstant(module, "__version__", HZB_VERSION) < 0 ||
        PyModule_AddFunctions(module, hzb_build_methods) < 0 ||
        PyModule_AddFunctions(module, hzb_context_methods) < 0 ||
        PyModule_AddFunctions(module, hzb_details_methods) < 0)
        return -1;
    return PyModule_AddFunctions(module, hzb_testing_methods);
}

static int module_exec(PyObject *module)
{
    struct hzb_module *state = hzb_module_of(module);
    if (refuse_subinterpreter() < 0 || init_numpy(state) < 0 || init_names(state) < 0 ||
        hzb_errors_init(state) < 0 || hzb_context_types_init(module) < 0 ||
        init_bounds(state) < 0 || add_to_module(module) < 0)
        return -1;
    return init_process();
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    struct hzb_module *state = hzb_module_of(module);
    for (int status = 0; status < HZB_INTERRUPTED; status++)
        Py_VISIT(state->exceptions[status]);
    Py_VISIT(state->context_type);
    Py_VISIT(state->device_type);
    Py_VISIT(state->bounds_type);
    Py_VISIT(state->from_dlpack);
    return 0;
}

static int module_clear(PyObject *module)
{
    struct hzb_module *state = hzb_module_of(module);
    for (int name = 0; name < HZB_NAMES; name++)
        Py_CLEAR(state->names[name]);
    for (int status = 0; status < HZB_INTERRUPTED; status++)
        Py_CLEAR(state->exceptions[status]);
    Py_CLEAR(state->context_type);
    Py_CLEAR(state->device_type);
    Py_CLEAR(state->bounds_type);
    Py_CLEAR(state->from_dlpack);
    return 0;
}

static void module_free(void *module) { module_clear(module); }

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "hzb._core",
    .m_doc = "The C part of hzb; everything public in it is an attribute of hzb.",
    .m_size = sizeof(struct hzb_module),
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&module_def); }
