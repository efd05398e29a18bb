/* Pointers to proton's objects as Python's integers. */

#ifndef PENSTOCK_POINTERS_H
#define PENSTOCK_POINTERS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* The pointer that Python holds as an integer; NULL with an exception for anything else: what stands where a pointer
 * was whose object is freed is no integer (`buffers.FREED`). */
static inline void *
pointer_of(PyObject *given)
{
    void *pointer = NULL;
    if (PyLong_CheckExact(given)) {
        pointer = PyLong_AsVoidPtr(given);
    }
    if (pointer == NULL && !PyErr_Occurred()) {
        PyErr_Format(PyExc_TypeError, "the engine takes the pointer of an object, not %R", given);
    }
    return pointer;
}

/* Batches of messages (batches.c). */
extern PyObject *batches_use(PyObject *, PyObject *const *, Py_ssize_t);
extern PyObject *batches_drain(PyObject *, PyObject *const *, Py_ssize_t);
extern PyObject *batches_push_plain(PyObject *, PyObject *const *, Py_ssize_t);
extern PyObject *batches_send(PyObject *, PyObject *const *, Py_ssize_t);
extern PyObject *batches_accept(PyObject *, PyObject *);
extern PyObject *batches_settle(PyObject *, PyObject *);
extern PyObject *batches_output(PyObject *, PyObject *const *, Py_ssize_t);
extern int batches_prepare(void);

#endif
