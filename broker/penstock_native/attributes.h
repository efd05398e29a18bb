/* Attributes of Python objects that are slots: read where they stand in the object, which is looked up once in its class.
 *
 * `PyObject_GetAttr` takes some 150 instructions for each; five are asked for each read of a connection.
 */

#ifndef PENSTOCK_ATTRIBUTES_H
#define PENSTOCK_ATTRIBUTES_H

#include "numbers.h"

#include <structmember.h>

struct attribute {
    PyObject *name;
    PyTypeObject *type; /* whose objects have it at `offset`; NULL: of none it is known */
    Py_ssize_t offset;
};

/* Remember where objects of this class have the attribute, if it is a slot: false with an exception. */
static inline bool
find_slot(struct attribute *attribute, PyTypeObject *type)
{
    PyObject *found = PyObject_GetAttr((PyObject *)type, attribute->name);
    if (found == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
            return false;
        }
        PyErr_Clear(); /* it may be in a dict of the object */
    }
    else if (Py_IS_TYPE(found, &PyMemberDescr_Type) && PyType_IsSubtype(type, PyDescr_TYPE(found)) &&
             ((PyMemberDescrObject *)found)->d_member->type == T_OBJECT_EX) {
        attribute->offset = ((PyMemberDescrObject *)found)->d_member->offset;
        Py_XSETREF(attribute->type, (PyTypeObject *)Py_NewRef((PyObject *)type));
    }
    Py_XDECREF(found);
    return true;
}

/* The attribute of an object; NULL with an exception if it has none. */
static inline PyObject *
attribute_of(PyObject *object, struct attribute *attribute)
{
    PyTypeObject *type = Py_TYPE(object);
    if (attribute->type != type && !find_slot(attribute, type)) {
        return NULL;
    }
    if (attribute->type == type) {
        PyObject *value = *(PyObject **)((char *)object + attribute->offset);
        if (value != NULL) {
            return Py_NewRef(value);
        }
    }
    return PyObject_GetAttr(object, attribute->name);
}

/* The attribute as a number from 0 on (a truth is 0 or 1); -1 with an exception if it is none. */
static inline long long
number_in(PyObject *object, struct attribute *attribute)
{
    PyObject *value = attribute_of(object, attribute);
    if (value == NULL) {
        return -1;
    }
    long long number = number_of(value, LLONG_MAX);
    Py_DECREF(value);
    return number;
}

#endif
