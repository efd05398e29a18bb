/* Batches of what goes out: entries are sent, and deliveries that came are accepted and settled, without a line of Python
 * for each. An entry holds its message as its second field: see `endpoint.events`.
 */

#include "batches.h"
#include "entries.h"
#include "proton_functions.h"

/* The message of an entry and its length; NULL with an exception if there is none. The length of a streamed message is
 * that of the whole, which Python code tells; only if it fits one frame, all of it has to be in memory. */
static PyObject *
data_of(PyObject *entry, Py_ssize_t frame_bytes, Py_ssize_t *size)
{
    bool has_data = PyTuple_Check(entry) && PyTuple_GET_SIZE(entry) > ENTRY_DATA;
    PyObject *data = has_data ? PyTuple_GET_ITEM(entry, ENTRY_DATA) : NULL;
    if (data == NULL || !PyBytes_Check(data)) {
        PyErr_Format(PyExc_TypeError, "no entry with a message: %R", entry);
        return NULL;
    }
    *size = PyBytes_GET_SIZE(data);
    if (!PyBytes_CheckExact(data)) {
        Py_ssize_t in_memory = *size;
        *size = PyObject_Size(data);
        if (*size >= 0 && *size <= frame_bytes && *size != in_memory) {
            PyErr_SetString(PyExc_ValueError, "a message that fits one frame has only a part of its bytes in memory");
            return NULL;
        }
    }
    return *size < 0 ? NULL : data;
}

/* Send one entry, which the caller owns. Returns None; if it is too long for a frame, its delivery; NULL: failed. */
static PyObject *
send_entry(void *pointer, PyObject *link, PyObject *entry, PyObject *now, sent_t *unsettled, uint32_t tag,
           Py_ssize_t frame_bytes, PyObject *bodies)
{
    Py_ssize_t size;
    PyObject *data = data_of(entry, frame_bytes, &size);
    if (data == NULL) {
        return NULL;
    }
    void *delivery = proton.pn_delivery(pointer, (proton_bytes){sizeof tag, (const char *)&tag});
    if (!PyBytes_CheckExact(data) && size > frame_bytes) {
        return PyLong_FromVoidPtr(delivery);
    }
    if (bodies != Py_None && PyBytes_CheckExact(data) && size <= frame_bytes) {
        size = keep_body(bodies, tag, data);
        if (size < 0) {
            return NULL;
        }
    }
    if (size) {
        proton.pn_link_send(pointer, PyBytes_AS_STRING(data), (size_t)size);
    }
    proton.pn_link_advance(pointer);
    if (unsettled == NULL) {
        proton.pn_delivery_settle(delivery);
    }
    else if (!sent_add(unsettled, delivery, link, entry, now)) {
        return NULL;
    }
    return Py_NewRef(Py_None);
}

/* send(link, pointer, entries, now, unsettled or None, tag, frame bytes, bodies or None) */
PyObject *
deliveries_send(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    void *pointer;
    if (!takes(count, 8, "send")) {
        return NULL;
    }
    PyObject *link = given[0], *entries = given[2], *now = given[3], *bodies = given[7];
    sent_t *unsettled = given[4] == Py_None ? NULL : sent_of(given[4]);
    if (unsettled == NULL && given[4] != Py_None) {
        return NULL;
    }
    if (!PyList_CheckExact(entries) || (bodies != Py_None && !PyList_CheckExact(bodies)) || entries == bodies) {
        PyErr_SetString(PyExc_TypeError, "send takes a list of entries and a list of bodies");
        return NULL;
    }
    long long tag = number_of(given[5], UINT32_MAX), frame_bytes = tag < 0 ? -1 : number_of(given[6], PY_SSIZE_T_MAX);
    if (frame_bytes < 0 || (pointer = pointer_of(given[1])) == NULL) {
        return NULL;
    }
    uint32_t last = (uint32_t)tag;
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(entries); at++) {
        PyObject *entry = Py_NewRef(PyList_GET_ITEM(entries, at));
        PyObject *left = send_entry(pointer, link, entry, now, unsettled, ++last, (Py_ssize_t)frame_bytes, bodies);
        Py_DECREF(entry);
        if (left == NULL) {
            return NULL;
        }
        if (left != Py_None) {
            return Py_BuildValue("knN", (unsigned long)last, at, left);
        }
        Py_DECREF(left);
    }
    return PyLong_FromUnsignedLong(last);
}

/* Settle received deliveries, accepted if `state` says so. */
static PyObject *
settle_all(PyObject *deliveries, uint64_t state)
{
    PyObject *all = PySequence_Fast(deliveries, "deliveries are given one by one");
    if (all == NULL) {
        return NULL;
    }
    for (Py_ssize_t at = 0; at < PySequence_Fast_GET_SIZE(all); at++) {
        void *delivery = pointer_of(PySequence_Fast_GET_ITEM(all, at));
        if (delivery == NULL) {
            Py_DECREF(all);
            return NULL;
        }
        if (state) {
            proton.pn_delivery_update(delivery, state);
        }
        proton.pn_delivery_settle(delivery);
    }
    Py_DECREF(all);
    Py_RETURN_NONE;
}

PyObject *
deliveries_accept(PyObject *Py_UNUSED(module), PyObject *deliveries)
{
    return settle_all(deliveries, ACCEPTED);
}

PyObject *
deliveries_settle(PyObject *Py_UNUSED(module), PyObject *deliveries)
{
    return settle_all(deliveries, 0);
}

/* The state of the first message of a run, 0 if the run is one of accepts; false with an exception. */
static bool
first_state(PyObject *event, uint64_t *state)
{
    bool is_run = PyTuple_Check(event) && PyTuple_GET_SIZE(event) > EVENT_BATCH;
    *state = 0;
    if (is_run && PyTuple_GET_ITEM(event, EVENT_KIND) != messages_kind) {
        return true;
    }
    PyObject *batch = is_run ? PyTuple_GET_ITEM(event, EVENT_BATCH) : NULL;
    PyObject *arrival =
        batch != NULL && PyList_Check(batch) && PyList_GET_SIZE(batch) ? PyList_GET_ITEM(batch, 0) : NULL;
    if (arrival == NULL || !PyTuple_Check(arrival) || !PyTuple_GET_SIZE(arrival)) {
        PyErr_Format(PyExc_TypeError, "no run of messages: %R", event);
        return false;
    }
    void *delivery = pointer_of(PyTuple_GET_ITEM(arrival, ARRIVAL_DELIVERY));
    if (delivery == NULL) {
        return false;
    }
    *state = proton.pn_delivery_remote_state(delivery);
    return true;
}

/* any_in_state(came, state): whether the first message of any run that came has this state. `came` has pairs of whatever
 * and a list with a run. */
PyObject *
deliveries_any_in_state(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    if (!takes(count, 2, "any_in_state")) {
        return NULL;
    }
    long long wanted = number_of(given[1], LLONG_MAX);
    if (wanted < 0 || !PyList_Check(given[0])) {
        if (wanted >= 0) {
            PyErr_SetString(PyExc_TypeError, "any_in_state takes a list");
        }
        return NULL;
    }
    bool found = false;
    for (Py_ssize_t at = 0; !found && at < PyList_GET_SIZE(given[0]); at++) {
        PyObject *pair = PyList_GET_ITEM(given[0], at);
        PyObject *run = PyTuple_Check(pair) && PyTuple_GET_SIZE(pair) == 2 ? PyTuple_GET_ITEM(pair, 1) : NULL;
        uint64_t state;
        if (run == NULL || !PyList_Check(run) || PyList_GET_SIZE(run) != 1) {
            PyErr_SetString(PyExc_TypeError, "a pair with a list of one run is wanted");
            return NULL;
        }
        if (!first_state(PyList_GET_ITEM(run, 0), &state)) {
            return NULL;
        }
        found = state == (uint64_t)wanted;
    }
    return PyBool_FromLong(found);
}
