/* struct hzb_error → Python exceptions, and the exception classes. */
#include "python/binding.h"

#include <string.h>

static const struct {
    enum hzb_status status;
    const char *name, *doc;
    enum hzb_status base;
} classes[] = {
    {HZB_FAILED, "hzb.Error",
     "The base of every exception of hzb that is not about an argument.\n\n"
     "Attributes\n----------\n"
     "result : str or None\n    Name of the VkResult, such as \"VK_ERROR_DEVICE_LOST\".\n"
     "code : int or None\n    Its number.\n"
     "function : str or None\n    The Vulkan call that gave it.\n\n"
     "All three are None where no Vulkan call was the cause.",
     HZB_OK},
    {HZB_VULKAN_FAILED, "hzb.VulkanError",
     "A Vulkan call failed, or there is nothing to make one on.", HZB_FAILED},
    {HZB_LOADER_NOT_FOUND, "hzb.LoaderNotFoundError",
     "There is no Vulkan loader (libvulkan.so.1) on this machine.", HZB_VULKAN_FAILED},
    {HZB_NO_DEVICE, "hzb.NoDeviceError",
     "There is no Vulkan driver (`result` is VK_ERROR_INCOMPATIBLE_DRIVER), or no device that hzb "
     "can use (`result` is None).",
     HZB_VULKAN_FAILED},
    {HZB_DEVICE_LOST, "hzb.DeviceLostError",
     "The device stopped answering; its contexts cannot be used again.", HZB_VULKAN_FAILED},
    {HZB_OUT_OF_MEMORY, "hzb.OutOfMemoryError",
     "The host or the device has too little memory for the call. Also a MemoryError.",
     HZB_VULKAN_FAILED},
};

int hzb_errors_init(struct hzb_module *module)
{
    module->exceptions[HZB_TYPE_ERROR] = Py_NewRef(PyExc_TypeError);
    module->exceptions[HZB_VALUE_ERROR] = Py_NewRef(PyExc_ValueError);
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
        enum hzb_status status = classes[i].status;
        PyObject *base = classes[i].base ? module->exceptions[classes[i].base] : PyExc_Exception;
        PyObject *bases = status == HZB_OUT_OF_MEMORY ? PyTuple_Pack(2, base, PyExc_MemoryError)
                                                      : PyTuple_Pack(1, base);
        if (!bases)
            return -1;
        /* Found on the class where an instance has none of its own. */
        PyObject *unknown = classes[i].base ? NULL
                                            : Py_BuildValue("{sOsOsO}", "result", Py_None, "code",
                                                            Py_None, "function", Py_None);
        if (unknown || classes[i].base)
            module->exceptions[status] =
                PyErr_NewExceptionWithDoc(classes[i].name, classes[i].doc, bases, unknown);
        Py_DECREF(bases);
        Py_XDECREF(unknown);
        if (!module->exceptions[status])
            return -1;
    }
    return 0;
}

static int set_attribute(PyObject *exception, const char *name, PyObject *value)
{
    int failed = value ? PyObject_SetAttrString(exception, name, value) : -1;
    Py_XDECREF(value);
    return failed;
}

void *hzb_raise(const struct hzb_module *module, const struct hzb_error *err)
{
    if (err->status == HZB_INTERRUPTED)
        return NULL; /* a signal handler has raised already */
    PyObject *type = module->exceptions[err->status];
    /* A long value in a message may have been cut within a character. */
    PyObject *text =
        PyUnicode_DecodeUTF8(err->message, (Py_ssize_t)strlen(err->message), "replace");
    PyObject *exception = text ? PyObject_CallOneArg(type, text) : NULL;
    Py_XDECREF(text);
    if (!exception)
        return NULL;
    if (!err->result ||
        (set_attribute(exception, "result", PyUnicode_FromString(err->result)) == 0 &&
         set_attribute(exception, "code", PyLong_FromLong(err->code)) == 0 &&
         (!err->function ||
          set_attribute(exception, "function", PyUnicode_FromString(err->function)) == 0)))
        PyErr_SetObject(type, exception);
    Py_DECREF(exception);
    return NULL;
}

PyObject *hzb_take_exception(void)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyErr_GetRaisedException();
#else
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback)
        PyException_SetTraceback(value, traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return value;
#endif
}

void hzb_raise_from(PyObject *cause, PyObject *type, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    PyErr_FormatV(type, format, arguments);
    va_end(arguments);
    if (!cause)
        return;
    PyObject *exception = hzb_take_exception();
    PyException_SetContext(exception, Py_NewRef(cause));
    PyException_SetCause(exception, cause);
    PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
    Py_DECREF(exception);
}
