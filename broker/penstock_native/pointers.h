/* Pointers to proton's objects as Python's integers. */

#ifndef PENSTOCK_POINTERS_H
#define PENSTOCK_POINTERS_H

#include "numbers.h"

enum { LEAST_POINTER = 4096 }; /* no system has objects below it: these are numbers of something else */

/* The pointer that Python holds as an integer; NULL with an exception for anything else: what stands where a pointer
 * was whose object is freed is no integer (`buffers.FREED`). */
static inline void *
pointer_of(PyObject *given)
{
    size_t address = PyLong_CheckExact(given) ? PyLong_AsSize_t(given) : 0;
    if (address == (size_t)-1 && PyErr_Occurred()) {
        return NULL;
    }
    if (address < LEAST_POINTER) {
        PyErr_Format(PyExc_TypeError, "the engine takes the pointer of an object, not %R", given);
        return NULL;
    }
    return (void *)address;
}

/* The functions of the module that stand in batches.c, deliveries.c, input.c and output.c. */
extern PyObject *batches_use(PyObject *, PyObject *const *, Py_ssize_t);
extern PyObject *batches_drain(PyObject *, PyObject *const *, Py_ssize_t);
extern int batches_prepare(void);
extern PyObject *deliveries_send(PyObject *, PyObject *const *, Py_ssize_t);
extern PyObject *deliveries_accept(PyObject *, PyObject *);
extern PyObject *deliveries_settle(PyObject *, PyObject *);
extern PyObject *deliveries_any_in_state(PyObject *, PyObject *const *, Py_ssize_t);
extern PyObject *input_push_plain(PyObject *, PyObject *const *, Py_ssize_t);
extern PyObject *input_read_plain(PyObject *, PyObject *const *, Py_ssize_t);
extern PyObject *input_read_together(PyObject *, PyObject *const *, Py_ssize_t);
extern PyObject *output_fill(PyObject *, PyObject *const *, Py_ssize_t);
extern PyObject *output_pop_event(PyObject *, PyObject *);
extern PyObject *output_send(PyObject *, PyObject *const *, Py_ssize_t);
extern PyObject *output_send_all(PyObject *, PyObject *const *, Py_ssize_t);

#endif
