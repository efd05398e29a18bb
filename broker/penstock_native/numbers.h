/* The numbers and the count of arguments of a function: what is wrong raises an exception. */

#ifndef PENSTOCK_NUMBERS_H
#define PENSTOCK_NUMBERS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

static inline bool
takes(Py_ssize_t given, Py_ssize_t wanted, const char *name)
{
    if (given == wanted) {
        return true;
    }
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, not %zd", name, wanted, given);
    return false;
}

/* A whole number from 0 to `most`; -1 with an exception if it is none. Truths are numbers. */
static inline long long
number_of(PyObject *given, long long most)
{
    long long number = PyLong_AsLongLong(given);
    if (number >= 0 && number <= most) {
        return number;
    }
    if (number != -1 || !PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError, "a number from 0 to %lld is wanted, not %lld", most, number);
    }
    return -1;
}

#endif
