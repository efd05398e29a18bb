/* What messages.c takes from fields.c. */

#ifndef PENSTOCK_FIELDS_H
#define PENSTOCK_FIELDS_H

#include "numbers.h"

extern PyObject *fields_picked(PyObject *, PyObject *const *, Py_ssize_t);
extern PyObject *fields_properties_field(PyObject *, PyObject *const *, Py_ssize_t);

#endif
