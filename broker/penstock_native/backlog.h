/* What messages.c takes from backlog.c. */

#ifndef PENSTOCK_BACKLOG_H
#define PENSTOCK_BACKLOG_H

#include "numbers.h"

extern PyObject *backlog_read_puts(PyObject *, PyObject *const *, Py_ssize_t);
extern PyObject *backlog_plain_entries(PyObject *, PyObject *const *, Py_ssize_t);
extern PyObject *backlog_put_stretch(PyObject *, PyObject *const *, Py_ssize_t);
extern PyObject *backlog_stretch_entries(PyObject *, PyObject *const *, Py_ssize_t);
extern PyObject *backlog_pageable(PyObject *, PyObject *const *, Py_ssize_t);
extern PyObject *backlog_tally(PyObject *, PyObject *const *, Py_ssize_t);

#endif
