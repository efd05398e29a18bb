/* The tuples and the records of messages, and how a message begins that is plain: what the functions over them share.
 *
 * An entry is (number, message, available, expires, flags), an arrival (delivery, message, settled), a held delivery
 * (link, entry, sent at): see `penstock_amqp.endpoint.events`. Records: docs/reference/log-format.md.
 */

#ifndef PENSTOCK_ENTRIES_H
#define PENSTOCK_ENTRIES_H

#include "numbers.h"

#include <string.h>

enum { ENTRY_NUMBER, ENTRY_DATA, ENTRY_AVAILABLE, ENTRY_EXPIRES, ENTRY_FLAGS, ENTRY_FIELDS };
enum { ARRIVAL_DELIVERY, ARRIVAL_DATA, ARRIVAL_SETTLED, ARRIVAL_FIELDS };
enum { HELD_LINK, HELD_ENTRY, HELD_SENT, HELD_FIELDS };
enum { PUT_ROUTE_SET, PUT_MESSAGE, PUT_ARRIVAL, PUT_PAYLOAD, PUT_FLAGS, PUT_FIELDS };

/* A put as a record: type, flags, 0 (16 bits), length of what follows (32 bits); route set (32), 0 (32), message (64),
 * arrival (64), and the payload. Little-endian. */
enum { RECORD_HEAD = 8, PUT_HEAD = 32, PUT_FIXED = PUT_HEAD - RECORD_HEAD };

/* A little-endian number; written out, because compilers then make one load of it. */
static inline uint64_t
number_32(const unsigned char *at)
{
    return (uint64_t)at[0] | (uint64_t)at[1] << 8 | (uint64_t)at[2] << 16 | (uint64_t)at[3] << 24;
}

static inline uint64_t
number_64(const unsigned char *at)
{
    return number_32(at) | number_32(at + 4) << 32;
}

/* The fields of a tuple of that length; NULL with an exception if it is none. */
static inline PyObject **
fields_of(PyObject *tuple, Py_ssize_t length)
{
    if (PyTuple_Check(tuple) && PyTuple_GET_SIZE(tuple) == length) {
        return ((PyTupleObject *)tuple)->ob_item;
    }
    PyErr_Format(PyExc_TypeError, "a tuple of %zd fields is wanted, not %R", length, tuple);
    return NULL;
}

/* Append what is new to a list, and give up the reference to it. */
static inline bool
append(PyObject *list, PyObject *added)
{
    bool done = added != NULL && PyList_Append(list, added) == 0;
    Py_XDECREF(added);
    return done;
}

/* A tuple of the kind: `tuple`, or a subclass without attributes of its own. All references are given up. */
static inline PyObject *
make_tuple(PyTypeObject *kind, Py_ssize_t length, PyObject *const *fields)
{
    PyObject *made = kind == &PyTuple_Type ? PyTuple_New(length) : kind->tp_alloc(kind, length);
#if PY_VERSION_HEX >= 0x030E0000
    if (made != NULL) {
        ((PyTupleObject *)made)->ob_hash = -1; /* it is not known yet; PyTuple_New says so itself */
    }
#endif
    for (Py_ssize_t at = 0; at < length; at++) {
        if (fields[at] == NULL) {
            Py_CLEAR(made);
        }
    }
    for (Py_ssize_t at = 0; at < length; at++) {
        if (made != NULL) {
            PyTuple_SET_ITEM(made, at, fields[at]);
        }
        else {
            Py_XDECREF(fields[at]);
        }
    }
    return made;
}

/* Add the length of a message to `bytes`; of a streamed one that of the whole, which Python code tells. */
static inline bool
add_size(Py_ssize_t *bytes, PyObject *data)
{
    Py_ssize_t size = PyBytes_CheckExact(data) ? PyBytes_GET_SIZE(data) : PyObject_Size(data);
    if (size > PY_SSIZE_T_MAX - *bytes) {
        PyErr_SetString(PyExc_OverflowError, "the messages are too long");
        return false;
    }
    *bytes += size < 0 ? 0 : size;
    return size >= 0;
}

/* How a message begins that needs no closer look, see `queue.message_prefix`. */
struct beginning {
    const char *prefix;
    Py_ssize_t length, count_at;
    bool is_narrow; /* the size of the properties is the byte before their count */
};

enum { NO_TIMES = 8, USUAL_COUNT = 10, NULL_VALUE = 0x40, TIMESTAMP = 0x83 };

static inline bool
beginning_of(PyObject *prefix, PyObject *count_at, PyObject *is_narrow, struct beginning *beginning)
{
    char *start;
    if (PyBytes_AsStringAndSize(prefix, &start, &beginning->length) < 0) {
        return false;
    }
    beginning->prefix = start;
    beginning->count_at = PyLong_AsSsize_t(count_at);
    beginning->is_narrow = is_narrow == Py_True;
    return beginning->count_at != -1 || !PyErr_Occurred();
}

/* The properties name no expiry and no group: they are few, or a JMS client's, the creation time behind a null. */
static inline bool
names_no_time(const unsigned char *data, Py_ssize_t size, const struct beginning *beginning)
{
    Py_ssize_t at = beginning->count_at;
    if (data[at] <= NO_TIMES) {
        return true;
    }
    if (data[at] != USUAL_COUNT || !beginning->is_narrow || at < 1) {
        return false;
    }
    Py_ssize_t end = at + data[at - 1];
    return end >= 18 && end <= size && data[end - 10] == NULL_VALUE && data[end - 9] == TIMESTAMP &&
           data[end - 18] != TIMESTAMP;
}

static inline bool
begins_so(const char *data, Py_ssize_t size, const struct beginning *beginning)
{
    return size > beginning->count_at && beginning->count_at >= 0 && size >= beginning->length &&
           memcmp(data, beginning->prefix, (size_t)beginning->length) == 0 &&
           names_no_time((const unsigned char *)data, size, beginning);
}

#endif
