/* The loops over messages of reading a deep backlog, see messages.c. */

#include "backlog.h"

#include "entries.h"

/* read_puts(data, begin, end, type, kind, found): where the first record begins that is no whole put of this type */
PyObject *
backlog_read_puts(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    if (!takes(count, 6, "read_puts")) {
        return NULL;
    }
    if (!PyBytes_Check(given[0]) || !PyType_Check(given[4]) ||
        !PyType_IsSubtype((PyTypeObject *)given[4], &PyTuple_Type) || !PyList_Check(given[5])) {
        PyErr_SetString(PyExc_TypeError, "read_puts takes bytes, a kind of tuple and a list");
        return NULL;
    }
    long long type, at, end;
    if ((type = number_of(given[3], UINT8_MAX)) < 0 || (end = number_of(given[2], PyBytes_GET_SIZE(given[0]))) < 0 ||
        (at = number_of(given[1], end)) < 0) {
        return NULL;
    }
    const unsigned char *data = (const unsigned char *)PyBytes_AS_STRING(given[0]);
    while (end - at >= PUT_HEAD && data[at] == type) {
        long long length = (long long)number_32(data + at + 4), following = at + RECORD_HEAD + length;
        if (length < PUT_FIXED || following > end) {
            break;
        }
        const char *payload = (const char *)data + at + PUT_HEAD;
        PyObject *fields[PUT_FIELDS] = {
            [PUT_ROUTE_SET] = PyLong_FromUnsignedLongLong(number_32(data + at + 8)),
            [PUT_MESSAGE] = PyLong_FromUnsignedLongLong(number_64(data + at + 16)),
            [PUT_ARRIVAL] = PyLong_FromUnsignedLongLong(number_64(data + at + 24)),
            [PUT_PAYLOAD] = PyBytes_FromStringAndSize(payload, (Py_ssize_t)length - PUT_FIXED),
            [PUT_FLAGS] = PyLong_FromLong(data[at + 1]),
        };
        if (!append(given[5], make_tuple((PyTypeObject *)given[4], PUT_FIELDS, fields))) {
            return NULL;
        }
        at = following;
    }
    return PyLong_FromLongLong(at);
}

/* plain_entries(puts, at, prefix, count_at, is narrow, special flags, time to live, flags, found): how many puts,
 * from `at` on, became entries */
PyObject *
backlog_plain_entries(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    struct beginning beginning;
    if (!takes(count, 9, "plain_entries") || !beginning_of(given[2], given[3], given[4], &beginning)) {
        return NULL;
    }
    PyObject *puts = given[0], *found = given[8];
    long long first, special, ttl;
    if ((first = number_of(given[1], PY_SSIZE_T_MAX)) < 0 || (special = number_of(given[5], LONG_MAX)) < 0 ||
        (ttl = number_of(given[6], LLONG_MAX)) < 0) {
        return NULL;
    }
    if (!PyList_Check(puts) || !PyList_Check(found)) {
        PyErr_SetString(PyExc_TypeError, "plain_entries takes lists");
        return NULL;
    }
    Py_ssize_t at;
    for (at = (Py_ssize_t)first; at < PyList_GET_SIZE(puts); at++) {
        PyObject **put = fields_of(PyList_GET_ITEM(puts, at), PUT_FIELDS);
        if (put == NULL) {
            return NULL;
        }
        int beyond; /* not 0: the number is not one of this type */
        long flags = PyLong_AsLong(put[PUT_FLAGS]);
        if (flags == -1 && PyErr_Occurred()) {
            return NULL;
        }
        long long arrival = PyLong_AsLongLongAndOverflow(put[PUT_ARRIVAL], &beyond);
        if (arrival == -1 && PyErr_Occurred()) {
            return NULL;
        }
        PyObject *data = put[PUT_PAYLOAD];
        if (flags & special || beyond || arrival > LLONG_MAX - ttl || !PyBytes_CheckExact(data) ||
            !begins_so(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), &beginning)) {
            break;
        }
        PyObject *fields[ENTRY_FIELDS] = {Py_NewRef(put[PUT_MESSAGE]), Py_NewRef(data), Py_NewRef(put[PUT_ARRIVAL]),
                                          PyLong_FromLongLong(ttl ? arrival + ttl : 0), Py_NewRef(given[7])};
        if (!append(found, make_tuple(&PyTuple_Type, ENTRY_FIELDS, fields))) {
            return NULL;
        }
    }
    return PyLong_FromSsize_t(at - (Py_ssize_t)first);
}

/* Bytes and a stretch of them, as the first three arguments; NULL with an exception if they are none. */
static const unsigned char *
stretch_of(PyObject *const *given, Py_ssize_t *begin, Py_ssize_t *end)
{
    *begin = PyLong_AsSsize_t(given[1]);
    *end = PyLong_AsSsize_t(given[2]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (!PyBytes_Check(given[0]) || *begin < 0 || *end > PyBytes_GET_SIZE(given[0])) {
        PyErr_SetString(PyExc_TypeError, "bytes and a stretch of them are wanted");
        return NULL;
    }
    return (const unsigned char *)PyBytes_AS_STRING(given[0]);
}

/* put_stretch(data, begin, end, type, other types): None, or (begin, end, first, last, how many, bytes, route set,
 * flags) */
PyObject *
backlog_put_stretch(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    Py_ssize_t at, end, start = -1, upto = -1, puts = 0, bytes = 0;
    if (!takes(count, 5, "put_stretch")) {
        return NULL;
    }
    const unsigned char *data = stretch_of(given, &at, &end);
    long type = data == NULL ? -1 : PyLong_AsLong(given[3]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (!PyBytes_Check(given[4])) {
        PyErr_SetString(PyExc_TypeError, "put_stretch takes types as bytes");
        return NULL;
    }
    const char *others = PyBytes_AS_STRING(given[4]);
    uint64_t first = 0, last = 0, route_set = 0;
    unsigned char flags = 0;
    while (at < end) {
        if (end - at < RECORD_HEAD) {
            Py_RETURN_NONE;
        }
        Py_ssize_t length = (Py_ssize_t)number_32(data + at + 4);
        if (length > end - at - RECORD_HEAD || memchr(others, data[at], (size_t)PyBytes_GET_SIZE(given[4])) != NULL) {
            Py_RETURN_NONE;
        }
        Py_ssize_t following = at + RECORD_HEAD + length;
        if (data[at] == type) {
            if (length < PUT_FIXED) {
                Py_RETURN_NONE;
            }
            uint64_t number = number_64(data + at + 16);
            if (start < 0) {
                start = upto = at;
                first = number;
                route_set = number_32(data + at + 8);
                flags = data[at + 1];
            }
            else if (number <= last) {
                Py_RETURN_NONE;
            }
            if (at != upto || number_32(data + at + 8) != route_set || data[at + 1] != flags) {
                Py_RETURN_NONE;
            }
            last = number;
            upto = following;
            puts++;
            bytes += length - PUT_FIXED;
        }
        at = following;
    }
    if (start < 0) {
        Py_RETURN_NONE;
    }
    return Py_BuildValue("nnKKnnKi", start, upto, (unsigned long long)first, (unsigned long long)last, puts, bytes,
                         (unsigned long long)route_set, (int)flags);
}

/* stretch_entries(data, begin, end, prefix, count_at, is narrow, time to live, flags, found): where the first put
 * begins, in a stretch of puts, that does not begin so */
PyObject *
backlog_stretch_entries(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    struct beginning beginning;
    Py_ssize_t at, end;
    if (!takes(count, 9, "stretch_entries") || !beginning_of(given[3], given[4], given[5], &beginning)) {
        return NULL;
    }
    const unsigned char *data = stretch_of(given, &at, &end);
    unsigned long long ttl = data == NULL ? 0 : PyLong_AsUnsignedLongLong(given[6]), arrival, known = 0;
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (!PyList_Check(given[8])) {
        PyErr_SetString(PyExc_TypeError, "stretch_entries takes a list");
        return NULL;
    }
    PyObject *available = NULL, *expires = NULL; /* of a put that arrived when `known` says */
    bool done = true;
    while (done && end - at >= PUT_HEAD) {
        Py_ssize_t length = (Py_ssize_t)number_32(data + at + 4);
        const char *payload = (const char *)data + at + PUT_HEAD;
        if (length < PUT_FIXED || length > end - at - RECORD_HEAD ||
            !begins_so(payload, length - PUT_FIXED, &beginning)) {
            break;
        }
        arrival = number_64(data + at + 24);
        if (available == NULL || arrival != known) {
            Py_XSETREF(available, PyLong_FromUnsignedLongLong(arrival));
            Py_XSETREF(expires, PyLong_FromUnsignedLongLong(ttl ? arrival + ttl : 0));
            known = arrival;
        }
        PyObject *entry = PyTuple_New(ENTRY_FIELDS);
        PyObject *number = PyLong_FromUnsignedLongLong(number_64(data + at + 16));
        PyObject *message = PyBytes_FromStringAndSize(payload, length - PUT_FIXED);
        done = entry != NULL && number != NULL && message != NULL && available != NULL && expires != NULL;
        if (done) {
            PyTuple_SET_ITEM(entry, ENTRY_NUMBER, number);
            PyTuple_SET_ITEM(entry, ENTRY_DATA, message);
            PyTuple_SET_ITEM(entry, ENTRY_AVAILABLE, Py_NewRef(available));
            PyTuple_SET_ITEM(entry, ENTRY_EXPIRES, Py_NewRef(expires));
            PyTuple_SET_ITEM(entry, ENTRY_FLAGS, Py_NewRef(given[7]));
            PyObject_GC_UnTrack(entry); /* nothing in it can refer back to it */
            done = append(given[8], entry);
        }
        else {
            Py_XDECREF(entry);
            Py_XDECREF(number);
            Py_XDECREF(message);
        }
        at += RECORD_HEAD + length;
    }
    Py_XDECREF(available);
    Py_XDECREF(expires);
    return done ? PyLong_FromSsize_t(at) : NULL;
}

/* pageable(mask, wanted, in parts, entries, at, from, below): how many entries from `at` on have the flags wanted, and
 * numbers that rise, from one bound to another */
PyObject *
backlog_pageable(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    if (!takes(count, 7, "pageable")) {
        return NULL;
    }
    long mask = PyLong_AsLong(given[0]), wanted = PyLong_AsLong(given[1]);
    Py_ssize_t some_in_parts = PyObject_Size(given[2]), first = PyLong_AsSsize_t(given[4]), at;
    uint64_t from = PyLong_AsUnsignedLongLong(given[5]), below = PyLong_AsUnsignedLongLong(given[6]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (!PyList_Check(given[3]) || first < 0) {
        PyErr_SetString(PyExc_TypeError, "pageable takes a list");
        return NULL;
    }
    for (at = first; at < PyList_GET_SIZE(given[3]); at++) {
        PyObject **entry = fields_of(PyList_GET_ITEM(given[3], at), ENTRY_FIELDS);
        if (entry == NULL) {
            return NULL;
        }
        long flags = PyLong_AsLong(entry[ENTRY_FLAGS]);
        uint64_t number = PyLong_AsUnsignedLongLong(entry[ENTRY_NUMBER]);
        if (PyErr_Occurred()) {
            return NULL;
        }
        if ((flags & mask) != wanted || number < from || number >= below || !PyBytes_CheckExact(entry[ENTRY_DATA])) {
            break;
        }
        int is_in_parts = some_in_parts ? PySequence_Contains(given[2], entry[ENTRY_NUMBER]) : 0;
        if (is_in_parts < 0) {
            return NULL;
        }
        if (is_in_parts) {
            break;
        }
        from = number + 1;
    }
    return PyLong_FromSsize_t(at - first);
}

/* tally(entries, flag): (bytes, how many expire, how many have the flag) */
PyObject *
backlog_tally(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    if (!takes(count, 2, "tally")) {
        return NULL;
    }
    long flag = PyLong_AsLong(given[1]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (!PyList_Check(given[0])) {
        PyErr_SetString(PyExc_TypeError, "tally takes a list");
        return NULL;
    }
    Py_ssize_t bytes = 0, expiring = 0, flagged = 0;
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(given[0]); at++) {
        PyObject *held = Py_NewRef(PyList_GET_ITEM(given[0], at)); /* measuring may run Python code */
        PyObject **entry = fields_of(held, ENTRY_FIELDS);
        int expires = entry == NULL || !add_size(&bytes, entry[ENTRY_DATA]) ? -1 : PyObject_IsTrue(entry[ENTRY_EXPIRES]);
        long flags = expires < 0 ? -1 : PyLong_AsLong(entry[ENTRY_FLAGS]);
        Py_DECREF(held);
        if (PyErr_Occurred()) {
            return NULL;
        }
        expiring += expires;
        flagged += (flags & flag) != 0;
    }
    return Py_BuildValue("nnn", bytes, expiring, flagged);
}
