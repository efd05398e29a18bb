/* penstock_native.aio: the kernel's asynchronous I/O (Linux AIO), of which the log needs fdatasync only.
 *
 * Ended operations are read from the ring that the kernel shares with the process (struct aio_ring in the kernel's
 * fs/aio.c), as libaio and QEMU do: a turn of the broker's loop needs no call of the kernel for them. A kernel whose
 * ring is another one is asked by io_getevents.
 */

#include "modules.h"
#include "numbers.h"
#include "pointers.h"

#include <errno.h>
#include <linux/aio_abi.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RING_MAGIC 0xA10A10A1u

enum { DEPTH = 64 };

struct ring {
    uint32_t id, size, head, tail, magic, compatible, incompatible, header_bytes;
    struct io_event events[];
};

/* The ring of a context, which is its address; NULL if the kernel's is another one than this code knows. */
static struct ring *
ring_of(void *context)
{
    struct ring *ring = context;
    bool is_known = ring->magic == RING_MAGIC && ring->incompatible == 0 &&
                    ring->header_bytes == sizeof(struct ring);
    return is_known ? ring : NULL;
}

static bool
is_empty(const struct ring *ring)
{
    return ring->head == __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE);
}

/* Take at most DEPTH events off the ring; how many. What stands before the tail was written before it. */
static long
take(struct ring *ring, struct io_event *events)
{
    uint32_t head = ring->head, tail = __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE);
    long taken = 0;
    while (head != tail && taken < DEPTH) {
        events[taken++] = ring->events[head];
        head = (head + 1) % ring->size;
    }
    __atomic_store_n(&ring->head, head, __ATOMIC_RELEASE);
    return taken;
}

/* io_getevents; -1 with an exception if it fails, or if a signal's handler raises one. */
static long
wait_for(void *context, long at_least, struct io_event *events)
{
    for (;;) {
        long count;
        Py_BEGIN_ALLOW_THREADS
        count = syscall(SYS_io_getevents, (aio_context_t)(uintptr_t)context, at_least, (long)DEPTH, events, NULL);
        Py_END_ALLOW_THREADS
        if (count >= 0) {
            return count;
        }
        if (errno != EINTR) {
            PyErr_SetFromErrno(PyExc_OSError);
            return -1;
        }
        if (PyErr_CheckSignals() < 0) {
            return -1;
        }
    }
}

/* setup(): context */
static PyObject *
setup(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    aio_context_t context = 0;
    if (syscall(SYS_io_setup, (unsigned)DEPTH, &context) < 0) {
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return PyLong_FromUnsignedLongLong(context);
}

/* destroy(context) */
static PyObject *
destroy(PyObject *Py_UNUSED(module), PyObject *given)
{
    void *context = pointer_of(given);
    if (context == NULL) {
        return NULL;
    }
    long result;
    Py_BEGIN_ALLOW_THREADS
    result = syscall(SYS_io_destroy, (aio_context_t)(uintptr_t)context);
    Py_END_ALLOW_THREADS
    if (result < 0) {
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_NONE;
}

/* submit(context, eventfd, descriptor, token). It does not wait for the disk, so the interpreter's lock is kept. */
static PyObject *
submit(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    void *context;
    long long eventfd, descriptor, token;
    if (!takes(count, 4, "submit") || (context = pointer_of(given[0])) == NULL ||
        (eventfd = number_of(given[1], INT_MAX)) < 0 || (descriptor = number_of(given[2], INT_MAX)) < 0 ||
        ((token = PyLong_AsLongLong(given[3])) == -1 && PyErr_Occurred())) {
        return NULL;
    }
    struct iocb block = {0};
    block.aio_data = (uint64_t)token;
    block.aio_lio_opcode = IOCB_CMD_FDSYNC;
    block.aio_fildes = (uint32_t)descriptor;
    block.aio_flags = IOCB_FLAG_RESFD;
    block.aio_resfd = (uint32_t)eventfd;
    struct iocb *blocks[] = {&block}; /* the kernel copies it */
    while (syscall(SYS_io_submit, (aio_context_t)(uintptr_t)context, 1L, blocks) < 0) {
        if (errno != EINTR) {
            return PyErr_SetFromErrno(PyExc_OSError);
        }
        if (PyErr_CheckSignals() < 0) {
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

/* may_be_done(context): whether the ring shows that something has ended */
static PyObject *
may_be_done(PyObject *Py_UNUSED(module), PyObject *given)
{
    void *context = pointer_of(given);
    if (context == NULL) {
        return NULL;
    }
    struct ring *ring = ring_of(context);
    return PyBool_FromLong(ring != NULL && !is_empty(ring));
}

/* Make the eventfd unreadable; false with an exception if it is none. */
static bool
was_drained(int eventfd)
{
    uint64_t before;
    if (read(eventfd, &before, sizeof before) >= 0 || errno == EAGAIN || errno == EINTR) {
        return true;
    }
    PyErr_SetFromErrno(PyExc_OSError);
    return false;
}

/* collect(context, eventfd, at least): [(token, result)] */
static PyObject *
collect(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    void *context;
    long long eventfd, at_least;
    if (!takes(count, 3, "collect") || (context = pointer_of(given[0])) == NULL ||
        (eventfd = number_of(given[1], INT_MAX)) < 0 || (at_least = number_of(given[2], DEPTH)) < 0 ||
        !was_drained((int)eventfd)) {
        return NULL;
    }
    struct io_event events[DEPTH];
    struct ring *ring = ring_of(context);
    long taken = ring == NULL ? 0 : take(ring, events);
    if (taken == 0 && (ring == NULL || at_least > 0)) {
        taken = wait_for(context, (long)at_least, events);
    }
    PyObject *ended = taken < 0 ? NULL : PyList_New(taken);
    for (long at = 0; ended != NULL && at < taken; at++) {
        PyObject *one = Py_BuildValue("LL", (long long)events[at].data, (long long)events[at].res);
        if (one == NULL) {
            Py_CLEAR(ended);
        } else {
            PyList_SET_ITEM(ended, at, one);
        }
    }
    return ended;
}

static PyMethodDef methods[] = {
    {"setup", setup, METH_NOARGS, NULL},
    {"destroy", destroy, METH_O, NULL},
    {"submit", FAST(submit), METH_FASTCALL, NULL},
    {"may_be_done", may_be_done, METH_O, NULL},
    {"collect", FAST(collect), METH_FASTCALL, NULL},
    END_OF_METHODS,
};

static struct PyModuleDef definition = MODULE("aio", "Linux AIO's fdatasync");

PyMODINIT_FUNC
PyInit_aio(void)
{
    return PyModule_Create(&definition);
}
