/* Facts for bug reports: the loader's, and what the devices have of what hzb asks for. */
#include "python/binding.h"

#include "base/alloc.h"
#include "base/system.h"
#include "base/workers.h"

static enum hzb_status list_layers(VkLayerProperties **layers, uint32_t *count,
                                   struct hzb_error *err)
{
    VK(vkEnumerateInstanceLayerProperties, count, NULL);
    *layers = hzb_calloc(*count ? *count : 1, sizeof(**layers));
    if (!*layers)
        return hzb_fail_no_memory(err, *count * sizeof(**layers));
    VK(vkEnumerateInstanceLayerProperties, count, *layers);
    return HZB_OK;
fail:
    *count = 0;
    return err->status;
}

static PyObject *layer_names(const VkLayerProperties *layers, uint32_t count)
{
    PyObject *names = PyList_New(count);
    for (uint32_t i = 0; names && i < count; i++) {
        PyObject *name = PyUnicode_FromString(layers[i].layerName);
        if (name)
            PyList_SET_ITEM(names, i, name);
        else
            Py_CLEAR(names);
    }
    return names;
}

PyDoc_STRVAR(loader_details_doc,
             "_loader_details($module)\n--\n\n"
             "Describe the Vulkan loader: error (str or None), instance_version (str or None) and\n"
             "the names of layers.");

static PyObject *loader_details(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused))
{
    const VkPhysicalDevice *handles;
    const struct hzb_device_info *records;
    VkLayerProperties *layers = NULL;
    uint32_t device_count, layer_count = 0, version = 0;
    struct hzb_error err, layers_err;
    struct hzb_unlocked unlocked;
    hzb_unlock(&unlocked);
    enum hzb_status status = hzb_physical_devices(&handles, &records, &device_count, &err);
    /* A child of a process that uses a driver leaves even the loader alone. */
    if (status != HZB_LOADER_NOT_FOUND && !hzb_instance_inherited()) {
        version = volkGetInstanceVersion();
        enum hzb_status listed = list_layers(&layers, &layer_count, &layers_err);
        if (!status && listed) {
            status = listed;
            err = layers_err;
        }
    }
    hzb_relock(&unlocked);
    PyObject *details =
        Py_BuildValue("{szsNsN}", "error", status ? err.message : NULL, "instance_version",
                      version ? hzb_version_text(version) : Py_NewRef(Py_None), "layers",
                      layer_names(layers, layer_count));
    hzb_free(layers);
    return details;
}

static PyObject *describe_device(const struct hzb_limits *limits)
{
    return Py_BuildValue(
        "{sKsKs(III)sIsIsIsIsIsNsNsNsNsNsd}", "storage_range",
        (unsigned long long)limits->storage_range, "buffer_bytes",
        (unsigned long long)limits->buffer_bytes, "group_count", limits->group_count[0],
        limits->group_count[1], limits->group_count[2], "group_invocations",
        limits->group_invocations, "shared_bytes", limits->shared_bytes, "image_side",
        limits->image_side, "image_layers", limits->image_layers, "subgroup_size",
        limits->subgroup_size, "subgroup_shuffle", PyBool_FromLong(limits->subgroup_shuffle),
        "storage16", PyBool_FromLong(limits->storage16), "pipeline_robustness",
        PyBool_FromLong(limits->pipeline_robustness), "unified", PyBool_FromLong(limits->unified),
        "timestamps", PyBool_FromLong(limits->timestamps), "timestamp_ns", limits->timestamp_ns);
}

/* A device that cannot be described is worth a report, too. */
static PyObject *describe_failure(const struct hzb_error *err)
{
    return Py_BuildValue("{ss}", "error", err->message);
}

/* Open a device for a moment. */
static PyObject *device_row(VkPhysicalDevice physical, const struct hzb_device_info *info)
{
    struct hzb_device *device = NULL;
    struct hzb_limits limits = {0};
    struct hzb_error err;
    struct hzb_unlocked unlocked;
    hzb_unlock(&unlocked);
    enum hzb_status status = hzb_device_create(physical, info, &device, &err);
    if (!status)
        limits = device->limits;
    hzb_device_destroy(device);
    hzb_relock(&unlocked);
    return status ? describe_failure(&err) : describe_device(&limits);
}

static PyObject *native_row(void)
{
    enum hzb_instructions used;
    int threads;
    struct hzb_error err;
    if (hzb_instructions_choose(&used, &err) || hzb_workers_count(&threads, &err))
        return describe_failure(&err);
    PyObject *names = PyList_New(0);
    for (int i = 0; names && i <= (int)hzb_instructions_best(); i++) {
        PyObject *name = PyUnicode_FromString(hzb_instructions_name((enum hzb_instructions)i));
        if (!name || PyList_Append(names, name) < 0)
            Py_CLEAR(names);
        Py_XDECREF(name);
    }
    return Py_BuildValue("{sNsssi}", "instruction_sets", names, "instruction_set",
                         hzb_instructions_name(used), "threads", threads);
}

PyDoc_STRVAR(
    device_details_doc,
    "_device_details($module)\n--\n\n"
    "Describe each device of hzb.devices(): of one of Vulkan, which is opened for it, limits\n"
    "and features; of the processor, instruction sets and threads; where that fails, the\n"
    "error.");

static PyObject *device_details(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused))
{
    struct hzb_device_list devices;
    struct hzb_unlocked unlocked;
    hzb_unlock(&unlocked);
    hzb_devices_list(&devices);
    hzb_relock(&unlocked);
    PyObject *list = PyList_New(devices.count + 1);
    for (uint32_t i = 0; list && i <= devices.count; i++) {
        PyObject *row = i == devices.count ? native_row()
                        : devices.handles  ? device_row(devices.handles[i], &devices.records[i])
                                           : describe_failure(&devices.problem);
        if (row)
            PyList_SET_ITEM(list, i, row);
        else
            Py_CLEAR(list);
    }
    return list;
}

PyMethodDef hzb_details_methods[] = {
    {"_loader_details", loader_details, METH_NOARGS, loader_details_doc},
    {"_device_details", device_details, METH_NOARGS, device_details_doc},
    {NULL, NULL, 0, NULL},
};
