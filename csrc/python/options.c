/* Arguments → struct hzb_options and shapes. What may be asked for is checked in ops/hzb/options.c;
   here is only what a Python object has to be. */
#include "python/binding.h"

#include <stdio.h>
#include <string.h>

const char *hzb_c_text(PyObject *value)
{
    if (!PyUnicode_Check(value))
        return NULL;
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(value, &size);
    if (!text)
        PyErr_Clear();
    return text && strlen(text) == (size_t)size ? text : NULL;
}

static int set_word(const struct hzb_module *module, enum hzb_name name, PyObject *value,
                    struct hzb_options *options)
{
    if (!value)
        return 0;
    /* What is no word is shown with its type: that is none of the known words either, and the
       refusal lists them. */
    PyObject *shown = NULL;
    const char *text = hzb_c_text(value);
    if (!text) {
        shown = PyUnicode_FromFormat("%A of type %.100s", value, Py_TYPE(value)->tp_name);
        text = shown ? PyUnicode_AsUTF8(shown) : NULL;
    }
    struct hzb_error err;
    bool failed =
        !text || hzb_options_set(options, PyUnicode_AsUTF8(module->names[name]), text, &err);
    if (text && failed)
        hzb_raise(module, &err);
    Py_XDECREF(shown);
    return failed ? -1 : 0;
}

int hzb_parse_bool(const char *argument, PyObject *value, bool fallback)
{
    if (!value)
        return fallback;
    if (PyBool_Check(value) || PyArray_IsScalar(value, Bool))
        return PyObject_IsTrue(value);
    PyErr_Format(PyExc_ValueError, "%s: %R is not accepted; pass True or False", argument, value);
    return -1;
}

/* The integer that `value` stands for, as a Python int. */
static PyObject *as_index(const char *label, PyObject *value)
{
    if (PyBool_Check(value) || PyArray_IsScalar(value, Bool)) {
        PyErr_Format(PyExc_TypeError, "%s: %R is a bool; pass an int", label, value);
        return NULL;
    }
    PyObject *index = PyNumber_Index(value);
    if (!index && PyErr_ExceptionMatches(PyExc_TypeError))
        hzb_raise_from(hzb_take_exception(), PyExc_TypeError,
                       "%s: %R is not an integer; pass an int or an object with __index__", label,
                       value);
    return index;
}

int hzb_parse_index(const char *label, PyObject *value, int64_t *number)
{
    PyObject *index = as_index(label, value);
    if (!index)
        return -1;
    int overflow;
    *number = PyLong_AsLongLongAndOverflow(index, &overflow);
    if (overflow)
        PyErr_Format(PyExc_ValueError, "%s: %R is not accepted; it has to fit in 64 bits", label,
                     index);
    Py_DECREF(index);
    return overflow ? -1 : 0;
}

/* The integers of a sequence; their number, or -1 with an exception. At most `room` are stored. */
static Py_ssize_t parse_indices(const char *argument, PyObject *value, int64_t *numbers,
                                Py_ssize_t room)
{
    /* Sets and dicts have entries too, but no order that could mean anything here. */
    PyObject *entries = PySequence_Check(value) ? PySequence_Tuple(value) : NULL;
    if (!entries) {
        if (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_TypeError))
            hzb_raise_from(hzb_take_exception(), PyExc_TypeError,
                           "%s: %R is not a sequence; pass a tuple of ints", argument, value);
        return -1;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(entries);
    for (Py_ssize_t i = 0; i < count && i < room; i++) {
        char label[32];
        snprintf(label, sizeof(label), "%s[%zd]", argument, i);
        if (hzb_parse_index(label, PyTuple_GET_ITEM(entries, i), &numbers[i]) < 0) {
            count = -1;
            break;
        }
    }
    Py_DECREF(entries);
    return count;
}

static int parse_view_rect(PyObject *value, struct hzb_options *options)
{
    if (!value || value == Py_None)
        return 0;
    Py_ssize_t count = parse_indices("view_rect", value, options->view_rect, 4);
    if (count >= 0 && count != 4)
        PyErr_Format(PyExc_ValueError,
                     "view_rect: %R has %zd entries; four are needed, (x0, y0, x1, y1)", value,
                     count);
    options->has_view_rect = true;
    return count == 4 ? 0 : -1;
}

static int parse_levels(PyObject *value, struct hzb_options *options)
{
    if (!value || value == Py_None)
        return 0;
    options->has_levels = true;
    return hzb_parse_index("levels", value, &options->levels);
}

static int parse_dtype(PyObject *value, struct hzb_options *options)
{
    if (!value || value == (PyObject *)&PyHalfArrType_Type)
        return 0;
    PyArray_Descr *type;
    if (!PyArray_DescrConverter(value, &type)) {
        if (PyErr_ExceptionMatches(PyExc_TypeError) || PyErr_ExceptionMatches(PyExc_ValueError))
            hzb_raise_from(hzb_take_exception(), PyExc_TypeError,
                           "dtype: %R is not a data type; pass numpy.float16 or numpy.float32",
                           value);
        return -1;
    }
    bool accepted = value != Py_None && PyDataType_ISNOTSWAPPED(type) &&
                    (type->type_num == NPY_HALF || type->type_num == NPY_FLOAT);
    options->dtype = type->type_num == NPY_FLOAT ? HZB_DTYPE_FLOAT32 : HZB_DTYPE_FLOAT16;
    Py_DECREF(type);
    if (!accepted)
        PyErr_Format(PyExc_ValueError,
                     "dtype: %R is not accepted; pass numpy.float16 or numpy.float32, in native "
                     "byte order",
                     value);
    return accepted ? 0 : -1;
}

int hzb_options_parse(const struct hzb_module *module, PyObject *const values[HZB_NAMES],
                      struct hzb_options *options)
{
    static const enum hzb_name words[] = {HZB_BOUNDS_NAME, HZB_SIZING_NAME, HZB_ROUNDING_NAME,
                                          HZB_NAN_NAME, HZB_ALGORITHM_NAME};
    hzb_options_default(options);
    options->tile_blocks = module->tile_blocks;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (set_word(module, words[i], values[words[i]], options) < 0)
            return -1;
    int reversed_z = hzb_parse_bool("reversed_z", values[HZB_REVERSED_Z], options->reversed_z);
    options->reversed_z = reversed_z;
    if (reversed_z < 0 || parse_view_rect(values[HZB_VIEW_RECT], options) < 0 ||
        parse_levels(values[HZB_LEVELS], options) < 0)
        return -1;
    return parse_dtype(values[HZB_DTYPE_NAME], options);
}

int hzb_shape_parse(PyObject *value, struct hzb_shape *shape)
{
    enum { MAX_AXES = HZB_MAX_LEADING_AXES + 2 };
    int64_t sides[MAX_AXES];
    Py_ssize_t count = parse_indices("shape", value, sides, MAX_AXES);
    if (count < 0)
        return -1;
    if (count > MAX_AXES) {
        PyErr_Format(PyExc_ValueError, "shape: %zd axes are not accepted; an array has at most %d",
                     count, MAX_AXES);
        return -1;
    }
    shape->axes = (int)count;
    for (int i = 0; i < shape->axes; i++)
        shape->side[i] = sides[i];
    return hzb_shape_check("shape", shape);
}

int hzb_shape_check(const char *argument, const struct hzb_shape *shape)
{
    const char *fault = NULL;
    if (shape->axes < 2)
        fault = "has too few axes; at least two are needed, (..., height, width): reshape it";
    for (int i = 0; i < shape->axes && !fault; i++)
        if (shape->side[i] < (i < shape->axes - 2 ? 0 : 1))
            fault = "has a side that is not accepted; height and width must be at least 1 and "
                    "leading axes at least 0: leave empty frames out";
    if (!fault)
        return 0;
    PyObject *shown = hzb_shape_tuple(shape);
    if (shown)
        PyErr_Format(PyExc_ValueError, "%s: shape %R %s", argument, shown, fault);
    Py_XDECREF(shown);
    return -1;
}

struct hzb_shape hzb_shape_of_level(const struct hzb_shape *frames,
                                    const struct hzb_options *options,
                                    const struct hzb_extent *extent, int level)
{
    /* Not a copy of the whole: there is room for far more axes than there are. */
    struct hzb_shape shape;
    shape.axes = frames->axes;
    for (int i = 0; i < shape.axes - 2; i++)
        shape.side[i] = frames->side[i];
    shape.side[shape.axes - 2] = hzb_level_side(options->sizing, extent->height, level);
    shape.side[shape.axes - 1] = hzb_level_side(options->sizing, extent->width, level);
    return shape;
}

PyObject *hzb_shape_tuple(const struct hzb_shape *shape)
{
    PyObject *tuple = PyTuple_New(shape->axes);
    for (int i = 0; tuple && i < shape->axes; i++) {
        PyObject *side = PyLong_FromSsize_t(shape->side[i]);
        if (side)
            PyTuple_SET_ITEM(tuple, i, side);
        else
            Py_CLEAR(tuple);
    }
    return tuple;
}
