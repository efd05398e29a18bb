/* penstock_native.messages: the loops over messages of the forwarding path, and the table of the whole module.
 *
 * Each function does what a loop in Python would do for the messages that are plain, and stops at the first that is
 * not. backlog.c reads a deep backlog, fields.c single fields of one message.
 */

#include "backlog.h"
#include "entries.h"
#include "fields.h"
#include "modules.h"

/* The number of a message; false with an exception if it is none. */
static bool
message_number_of(PyObject *given, uint64_t *number)
{
    unsigned long long found = PyLong_AsUnsignedLongLong(given);
    *number = found;
    return found != (unsigned long long)-1 || !PyErr_Occurred();
}

static void
write_number(unsigned char *to, uint64_t number, int bytes)
{
    for (int at = 0; at < bytes; at++) {
        to[at] = (unsigned char)(number >> 8 * at);
    }
}

/* The bytes of a put before its payload. */
static PyObject *
put_head(unsigned char type, Py_ssize_t length, uint32_t route_set, uint64_t number, uint64_t arrival)
{
    PyObject *head = PyBytes_FromStringAndSize(NULL, PUT_HEAD);
    if (head != NULL) {
        unsigned char *to = (unsigned char *)PyBytes_AS_STRING(head);
        to[0] = type;
        write_number(to + 1, 0, 3);
        write_number(to + 4, (uint64_t)(PUT_FIXED + length), 4);
        write_number(to + 8, route_set, 4);
        write_number(to + 12, 0, 4);
        write_number(to + 16, number, 8);
        write_number(to + 24, arrival, 8);
    }
    return head;
}

/* What becomes of messages that begin alike: entries, numbered one after the other, and their payloads, if these are
 * asked for. */
struct taking {
    struct beginning beginning;
    long long longest;
    uint64_t number;
    PyObject *now, *expires, *flags, *entries, *payloads;
    Py_ssize_t bytes; /* of those that were taken */
};

enum { TAKING_ARGUMENTS = 14 };

/* The arguments of `take_plain` and `take_batches`: (list, at, prefix, count_at, is narrow, longest, number, now,
 * expires, flags, entries, list of deliveries, the same for settled ones, payloads); where to begin, -1 with an
 * exception. */
static long long
taking_of(PyObject *const *given, Py_ssize_t count, const char *name, struct taking *taking)
{
    if (!takes(count, TAKING_ARGUMENTS, name)) {
        return -1;
    }
    PyObject *list = given[0], *payloads = given[13];
    *taking = (struct taking){
        .now = given[7], .expires = given[8], .flags = given[9], .entries = given[10], .payloads = payloads};
    if (!PyList_Check(list) || !PyList_Check(taking->entries) || !PyList_Check(given[11]) || !PyList_Check(given[12]) ||
        (payloads != Py_None && !PyList_Check(payloads)) || list == given[11] || list == given[12]) {
        PyErr_Format(PyExc_TypeError, "%s takes lists", name);
        return -1;
    }
    return beginning_of(given[2], given[3], given[4], &taking->beginning) &&
                   (taking->longest = number_of(given[5], PY_SSIZE_T_MAX)) >= 0 &&
                   message_number_of(given[6], &taking->number)
               ? number_of(given[1], PY_SSIZE_T_MAX)
               : -1;
}

/* Take the messages of a batch from `at` on; where the first is that is not plain; -1 with an exception. */
static Py_ssize_t
take_batch(struct taking *taking, PyObject *batch, Py_ssize_t at, PyObject *deliveries, PyObject *presettled)
{
    if (batch == taking->entries || batch == taking->payloads) {
        PyErr_SetString(PyExc_TypeError, "a batch is another list than those that it is taken into");
        return -1;
    }
    for (; at < PyList_GET_SIZE(batch); at++) {
        PyObject **arrived = fields_of(PyList_GET_ITEM(batch, at), ARRIVAL_FIELDS);
        if (arrived == NULL) {
            return -1;
        }
        PyObject *data = arrived[ARRIVAL_DATA];
        if (!PyBytes_CheckExact(data) || PyBytes_GET_SIZE(data) > taking->longest ||
            !begins_so(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), &taking->beginning)) {
            break;
        }
        PyObject *fields[] = {PyLong_FromUnsignedLongLong(taking->number++), Py_NewRef(data), Py_NewRef(taking->now),
                              Py_NewRef(taking->expires), Py_NewRef(taking->flags)};
        PyObject *of_its_kind = arrived[ARRIVAL_SETTLED] == Py_True ? presettled : deliveries;
        if (!append(taking->entries, make_tuple(&PyTuple_Type, ENTRY_FIELDS, fields)) ||
            PyList_Append(of_its_kind, arrived[ARRIVAL_DELIVERY]) < 0 ||
            (taking->payloads != Py_None && PyList_Append(taking->payloads, data) < 0)) {
            return -1;
        }
        taking->bytes += PyBytes_GET_SIZE(data);
    }
    return at;
}

/* take_plain(batch, at, prefix, count_at, is narrow, longest, number, now, expires, flags, entries, deliveries,
 * presettled, payloads or None): (messages taken, their bytes) */
static PyObject *
take_plain(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    struct taking taking;
    long long first = taking_of(given, count, "take_plain", &taking);
    Py_ssize_t at = first < 0 ? -1 : take_batch(&taking, given[0], (Py_ssize_t)first, given[11], given[12]);
    return at < 0 ? NULL : Py_BuildValue("nn", at - (Py_ssize_t)first, taking.bytes);
}

/* Two objects as a tuple in a list; the reference to the second, which may be NULL, is given up. */
static bool
append_pair(PyObject *list, PyObject *first, PyObject *second)
{
    PyObject *fields[] = {Py_NewRef(first), second};
    return append(list, make_tuple(&PyTuple_Type, 2, fields));
}

/* Take the whole batch of a source, which the caller owns: 1; 0: nothing of it, since not all of it is plain; -1 with an
 * exception. */
static int
take_source(struct taking *taking, PyObject *source, PyObject *answered, PyObject *presettled)
{
    PyObject **fields = fields_of(source, 2);
    if (fields == NULL || !PyList_CheckExact(fields[1])) {
        PyErr_SetString(PyExc_TypeError, "a source is a producer and a list of arrivals");
        return -1;
    }
    PyObject *deliveries = PyList_New(0), *settled = PyList_New(0);
    struct taking before = *taking;
    Py_ssize_t entries = PyList_GET_SIZE(taking->entries);
    Py_ssize_t payloads = taking->payloads == Py_None ? 0 : PyList_GET_SIZE(taking->payloads);
    Py_ssize_t size = PyList_GET_SIZE(fields[1]), at = -1;
    int done = -1;
    if (deliveries != NULL && settled != NULL) {
        at = take_batch(taking, fields[1], 0, deliveries, settled);
    }
    if (at == size) {
        done = append_pair(answered, fields[0], Py_NewRef(deliveries)) &&
                       (!PyList_GET_SIZE(settled) || append_pair(presettled, fields[0], Py_NewRef(settled)))
                   ? 1
                   : -1;
    }
    else if (at >= 0) {
        *taking = before;
        done = PyList_SetSlice(taking->entries, entries, PY_SSIZE_T_MAX, NULL) < 0 ||
                       (taking->payloads != Py_None &&
                        PyList_SetSlice(taking->payloads, payloads, PY_SSIZE_T_MAX, NULL) < 0)
                   ? -1
                   : 0;
    }
    Py_XDECREF(deliveries);
    Py_XDECREF(settled);
    return done;
}

/* take_batches(sources, at, prefix, count_at, is narrow, longest, number, now, expires, flags, entries, answered,
 * presettled, payloads or None): (batches taken, their bytes) */
static PyObject *
take_batches(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    struct taking taking;
    long long first = taking_of(given, count, "take_batches", &taking);
    if (first < 0) {
        return NULL;
    }
    Py_ssize_t at = (Py_ssize_t)first;
    int taken = 1;
    while (taken == 1 && at < PyList_GET_SIZE(given[0])) {
        PyObject *source = Py_NewRef(PyList_GET_ITEM(given[0], at));
        taken = take_source(&taking, source, given[11], given[12]);
        Py_DECREF(source);
        at += taken == 1;
    }
    return taken < 0 ? NULL : Py_BuildValue("nn", at - (Py_ssize_t)first, taking.bytes);
}

/* put_records(payloads, records, type, route set, number, arrival): appends two pieces for each payload */
static PyObject *
put_records(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    if (!takes(count, 6, "put_records")) {
        return NULL;
    }
    PyObject *payloads = given[0], *records = given[1];
    long long type, route_set;
    uint64_t number, arrival;
    if ((type = number_of(given[2], UINT8_MAX)) < 0 || (route_set = number_of(given[3], UINT32_MAX)) < 0 ||
        !message_number_of(given[4], &number) || !message_number_of(given[5], &arrival)) {
        return NULL;
    }
    if (!PyList_Check(payloads) || !PyList_Check(records) || payloads == records) {
        PyErr_SetString(PyExc_TypeError, "put_records takes two lists");
        return NULL;
    }
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(payloads); at++) {
        PyObject *data = PyList_GET_ITEM(payloads, at);
        if (!PyBytes_CheckExact(data)) {
            PyErr_Format(PyExc_TypeError, "a payload is bytes, not %R", data);
            return NULL;
        }
        if (PyBytes_GET_SIZE(data) > (long long)UINT32_MAX - PUT_FIXED) {
            PyErr_Format(PyExc_ValueError, "a payload of %zd bytes is too long for a record", PyBytes_GET_SIZE(data));
            return NULL;
        }
        PyObject *head = put_head((unsigned char)type, PyBytes_GET_SIZE(data), (uint32_t)route_set, number++, arrival);
        if (!append(records, head) || PyList_Append(records, data) < 0) {
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

/* A run of equal times. */
struct run {
    PyObject *runs, *time; /* `time` is owned, because comparing may run Python code */
    Py_ssize_t length;
};

static bool
end_run(struct run *run)
{
    bool done = run->length == 0 || append_pair(run->runs, run->time, PyLong_FromSsize_t(run->length));
    Py_CLEAR(run->time);
    return done;
}

static bool
add_to_run(struct run *run, PyObject *time)
{
    if (time != run->time) {
        int same = run->length > 0 ? PyObject_RichCompareBool(time, run->time, Py_EQ) : 0;
        if (same < 0 || (same == 0 && !end_run(run))) {
            return false;
        }
        run->length = same ? run->length : 0;
        Py_XSETREF(run->time, Py_NewRef(time));
    }
    run->length++;
    return true;
}

static void
drop_run(struct run *run)
{
    Py_CLEAR(run->runs);
    Py_CLEAR(run->time);
}

/* Count an entry. The caller owns it, because comparing and measuring may run Python code. */
static bool
count_entry(PyObject *entry, Py_ssize_t *bytes, struct run *waits)
{
    PyObject **fields = fields_of(entry, ENTRY_FIELDS);
    return fields != NULL && add_size(bytes, fields[ENTRY_DATA]) && add_to_run(waits, fields[ENTRY_AVAILABLE]);
}

/* Count a held delivery, which the caller owns. */
static bool
count_held(PyObject *held, long flag, Py_ssize_t *bytes, PyObject *flagged, struct run *waits, struct run *holds)
{
    PyObject **fields = fields_of(held, HELD_FIELDS);
    if (fields == NULL || !count_entry(fields[HELD_ENTRY], bytes, waits) || !add_to_run(holds, fields[HELD_SENT])) {
        return false;
    }
    PyObject *entry = fields[HELD_ENTRY];
    long flags = PyLong_AsLong(PyTuple_GET_ITEM(entry, ENTRY_FLAGS));
    if (flags == -1 && PyErr_Occurred()) {
        return false;
    }
    return !(flags & flag) || PyList_Append(flagged, PyTuple_GET_ITEM(entry, ENTRY_NUMBER)) == 0;
}

/* sent_runs(entries): (bytes, [(available, how many in a row)]) */
static PyObject *
sent_runs(PyObject *Py_UNUSED(module), PyObject *entries)
{
    if (!PyList_Check(entries)) {
        PyErr_SetString(PyExc_TypeError, "sent_runs takes a list");
        return NULL;
    }
    struct run waits = {PyList_New(0), NULL, 0};
    Py_ssize_t bytes = 0;
    bool done = waits.runs != NULL;
    for (Py_ssize_t at = 0; done && at < PyList_GET_SIZE(entries); at++) {
        PyObject *entry = Py_NewRef(PyList_GET_ITEM(entries, at));
        done = count_entry(entry, &bytes, &waits);
        Py_DECREF(entry);
    }
    if (done && end_run(&waits)) {
        return Py_BuildValue("nN", bytes, waits.runs);
    }
    drop_run(&waits);
    return NULL;
}

/* accepted_runs(batch, flag): (bytes, numbers with the flag, [(available, how many)], [(sent at, how many)]) */
static PyObject *
accepted_runs(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    if (!takes(count, 2, "accepted_runs")) {
        return NULL;
    }
    PyObject *batch = given[0];
    if (!PyList_Check(batch)) {
        PyErr_SetString(PyExc_TypeError, "accepted_runs takes a list");
        return NULL;
    }
    long flag = PyLong_AsLong(given[1]);
    if (flag == -1 && PyErr_Occurred()) {
        return NULL;
    }
    PyObject *flagged = PyList_New(0);
    struct run waits = {PyList_New(0), NULL, 0}, holds = {PyList_New(0), NULL, 0};
    Py_ssize_t bytes = 0;
    bool done = flagged != NULL && waits.runs != NULL && holds.runs != NULL;
    for (Py_ssize_t at = 0; done && at < PyList_GET_SIZE(batch); at++) {
        PyObject *held = Py_NewRef(PyList_GET_ITEM(batch, at));
        done = count_held(held, flag, &bytes, flagged, &waits, &holds);
        Py_DECREF(held);
    }
    if (done && end_run(&waits) && end_run(&holds)) {
        return Py_BuildValue("nNNN", bytes, flagged, waits.runs, holds.runs);
    }
    Py_XDECREF(flagged);
    drop_run(&waits);
    drop_run(&holds);
    return NULL;
}

static PyMethodDef methods[] = {
    {"take_plain", FAST(take_plain), METH_FASTCALL, NULL},
    {"take_batches", FAST(take_batches), METH_FASTCALL, NULL},
    {"put_records", FAST(put_records), METH_FASTCALL, NULL},
    {"sent_runs", sent_runs, METH_O, NULL},
    {"accepted_runs", FAST(accepted_runs), METH_FASTCALL, NULL},
    {"read_puts", FAST(backlog_read_puts), METH_FASTCALL, NULL},
    {"plain_entries", FAST(backlog_plain_entries), METH_FASTCALL, NULL},
    {"put_stretch", FAST(backlog_put_stretch), METH_FASTCALL, NULL},
    {"stretch_entries", FAST(backlog_stretch_entries), METH_FASTCALL, NULL},
    {"pageable", FAST(backlog_pageable), METH_FASTCALL, NULL},
    {"tally", FAST(backlog_tally), METH_FASTCALL, NULL},
    {"picked", FAST(fields_picked), METH_FASTCALL, NULL},
    {"properties_field", FAST(fields_properties_field), METH_FASTCALL, NULL},
    END_OF_METHODS,
};

static struct PyModuleDef definition = MODULE("messages", "Loops over messages");

PyMODINIT_FUNC
PyInit_messages(void)
{
    return PyModule_Create(&definition);
}
