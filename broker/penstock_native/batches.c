/* Batches of what came: what `endpoint.engine.Engine` says is plain is done here, without a line of Python for each.
 *
 * An arrival is the tuple (delivery, message, settled), a held delivery is (link, entry, sent at): see
 * `endpoint.events`. Whatever is not plain ends the batch, and Python is told of it.
 *
 * Nothing here calls Python code that could free or settle what it works on: the dicts have integers as keys, and the
 * attributes that are read are slots. What is looked up is held by a reference all the same while it is worked on.
 */

#include "attributes.h"
#include "batches.h"
#include "entries.h"
#include "proton_functions.h"

/* What `drain` found, where it is no event of proton's: see proton.pyi. */
enum { ARRIVAL = -1, OUTCOME = -2, STATE = -3, ASIDE = -4, ASTRAY = -5, CONTINUED = -6 };

PyObject *messages_kind;
static PyObject *accepted_kind;
static unsigned long long noticed;              /* a bit for each type of event that Python is told of */
int transport_error;
static struct attribute unproven_of, partial_of, delivery_of, read_bytes_of, is_request_of;

int
batches_prepare(void)
{
    return (unproven_of.name = PyUnicode_InternFromString("unproven")) != NULL &&
                   (partial_of.name = PyUnicode_InternFromString("partial")) != NULL &&
                   (delivery_of.name = PyUnicode_InternFromString("delivery")) != NULL &&
                   (read_bytes_of.name = PyUnicode_InternFromString("read_bytes")) != NULL &&
                   (is_request_of.name = PyUnicode_InternFromString("is_request")) != NULL
               ? 0
               : -1;
}

/* use(messages, accepted, noticed, transport_error) */
PyObject *
batches_use(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    if (!takes(count, 4, "use")) {
        return NULL;
    }
    unsigned long long types = PyLong_AsUnsignedLongLong(given[2]);
    if (types == (unsigned long long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    long long error = number_of(given[3], INT_MAX);
    if (error < 0) {
        return NULL;
    }
    Py_XSETREF(messages_kind, Py_NewRef(given[0]));
    Py_XSETREF(accepted_kind, Py_NewRef(given[1]));
    noticed = types;
    transport_error = (int)error;
    Py_RETURN_NONE;
}

/* The key of a delivery. The numbers of those that were asked for last are kept: proton uses its deliveries again, and a
 * dict finds a key at once that is the same object. They are numbers alone, and may stay when the deliveries are freed. */
static PyObject *
key_of(void *delivery)
{
    enum { KEPT_BITS = 12 };
    static struct {
        void *delivery;
        PyObject *key;
    } kept[1 << KEPT_BITS], *place;
    place = &kept[(uint64_t)(uintptr_t)delivery * 0x9e3779b97f4a7c15 >> (64 - KEPT_BITS)]; /* a multiple spreads them */
    if (place->delivery != delivery) {
        PyObject *key = PyLong_FromVoidPtr(delivery);
        if (key == NULL) {
            return NULL;
        }
        place->delivery = delivery;
        Py_XSETREF(place->key, key);
    }
    return Py_NewRef(place->key);
}

/* The runs to which the next arrival, or the next accepted delivery, is added. References are borrowed from `out`. */
struct runs {
    PyObject *out;
    PyObject *link;     /* of the last event, if it is a run */
    PyObject *messages; /* the run of messages, if the last event is one */
    PyObject *accepted; /* the run of accepted deliveries, if the last event is one */
};

/* Go on with the last event of `out`, if it is a run. */
static int
resume_run(struct runs *runs)
{
    Py_ssize_t length = PyList_GET_SIZE(runs->out);
    if (length == 0) {
        return 0;
    }
    PyObject *last = PyList_GET_ITEM(runs->out, length - 1);
    if (!PyTuple_CheckExact(last) || PyTuple_GET_SIZE(last) != 3) {
        return 0;
    }
    PyObject *kind = PyTuple_GET_ITEM(last, EVENT_KIND), *link = PyTuple_GET_ITEM(last, EVENT_LINK);
    PyObject *batch = PyTuple_GET_ITEM(last, EVENT_BATCH);
    if (!PyList_CheckExact(batch)) {
        return 0;
    }
    if (kind == accepted_kind) {
        runs->link = link;
        runs->accepted = batch;
    }
    else if (kind == messages_kind) {
        long long unproven = number_in(link, &unproven_of);
        if (unproven < 0) {
            return -1;
        }
        if (unproven == 0) {
            runs->link = link;
            runs->messages = batch;
        }
    }
    return 0;
}

/* Begin a run of a link; returns its list, which `out` owns. */
static PyObject *
begin_run(struct runs *runs, PyObject *kind, PyObject *link)
{
    PyObject *batch = PyList_New(0);
    PyObject *event = batch == NULL ? NULL : PyTuple_Pack(3, kind, link, batch);
    Py_XDECREF(batch);
    if (!append(runs->out, event)) {
        return NULL;
    }
    runs->link = link;
    runs->messages = kind == messages_kind ? batch : NULL;
    runs->accepted = kind == accepted_kind ? batch : NULL;
    return batch;
}

/* What became of an event: `told` says more for SHOWN, and is NULL with an exception for FAILED. */
enum handling { PLAIN, SHOWN, ELSE, FAILED };

/* End a batch, because Python has to do something, with the tuple (code, pointer, detail); `detail` may be NULL, and its
 * reference is given up. */
static enum handling
show(PyObject **told, int code, void *pointer, PyObject *detail)
{
    *told = Py_BuildValue("iNO", code, PyLong_FromVoidPtr(pointer), detail == NULL ? Py_None : detail);
    Py_XDECREF(detail);
    return *told == NULL ? FAILED : SHOWN;
}

/* A state of a delivery that we sent. */
static enum handling
settle_sent(void *delivery, sent_t *unsettled, struct runs *runs, PyObject **told)
{
    PyObject *held = sent_take(unsettled, delivery);
    if (held == NULL) {
        return PyErr_Occurred() ? FAILED : ELSE;
    }
    if (!PyTuple_Check(held) || PyTuple_GET_SIZE(held) <= HELD_LINK) {
        PyErr_Format(PyExc_TypeError, "no held delivery: %R", held);
        sent_put_back(unsettled, delivery, held);
        return FAILED;
    }
    PyObject *link = PyTuple_GET_ITEM(held, HELD_LINK);
    bool is_plain = proton.pn_delivery_remote_state(delivery) == ACCEPTED && proton.pn_delivery_settled(delivery);
    bool is_next = runs->accepted != NULL && runs->link == link;
    if (is_plain && !is_next && begin_run(runs, accepted_kind, link) == NULL) {
        sent_put_back(unsettled, delivery, held);
        return FAILED;
    }
    if (!is_plain) {
        return show(told, OUTCOME, delivery, held);
    }
    proton.pn_delivery_settle(delivery);
    return append(runs->accepted, held) ? PLAIN : FAILED;
}

/* A link on which messages come, as long as messages of no other link come. */
struct incoming {
    void *pointer;
    PyObject *link;              /* NULL: its messages are not plain */
    unsigned long long too_long; /* bytes of the shortest message that is not plain */
    bool is_heavy;               /* each message costs as much as a frame of another kind */
    int credit;                  /* how many messages the peer may still send; the next one beyond it is not plain */
};

/* Whether a link receives a message in parts: 0 or 1; -1: failed. */
static int
is_in_parts(PyObject *link)
{
    PyObject *partial = attribute_of(link, &partial_of);
    PyObject *delivery = partial == NULL ? NULL : attribute_of(partial, &delivery_of);
    Py_XDECREF(partial);
    Py_XDECREF(delivery); /* the link's slot holds it */
    return delivery == NULL ? -1 : delivery != Py_None;
}

static enum handling
look_up(struct incoming *incoming, void *pointer, PyObject *receivers)
{
    Py_CLEAR(incoming->link);
    *incoming = (struct incoming){pointer, NULL, 0, false, 0};
    PyObject *key = PyLong_FromVoidPtr(pointer);
    PyObject *link = key == NULL ? NULL : Py_XNewRef(PyDict_GetItemWithError(receivers, key));
    Py_XDECREF(key);
    if (link == NULL) {
        return PyErr_Occurred() ? FAILED : PLAIN;
    }
    int in_parts = is_in_parts(link);
    long long unproven, too_long, request;
    if (in_parts < 0 || (unproven = number_in(link, &unproven_of)) < 0 ||
        (too_long = number_in(link, &read_bytes_of)) < 0 || (request = number_in(link, &is_request_of)) < 0) {
        Py_DECREF(link);
        return FAILED;
    }
    if (in_parts || unproven > 0) {
        Py_DECREF(link);
        return PLAIN;
    }
    incoming->link = link;
    incoming->too_long = (unsigned long long)too_long;
    incoming->is_heavy = request > 0;
    incoming->credit = proton.pn_link_credit(pointer);
    return PLAIN;
}

/* Read a message that came as a whole. */
static enum handling
take_message(void *delivery, struct incoming *incoming, struct runs *runs, PyObject **told)
{
    size_t size = proton.pn_delivery_pending(delivery);
    if (incoming->link == NULL || incoming->credit <= 0 || size == 0 || size >= incoming->too_long ||
        proton.pn_delivery_partial(delivery) || proton.pn_delivery_aborted(delivery) ||
        proton.pn_link_current(incoming->pointer) != delivery) {
        return show(told, ARRIVAL, delivery, NULL);
    }
    if ((runs->messages == NULL || runs->link != incoming->link) &&
        begin_run(runs, messages_kind, incoming->link) == NULL) {
        return FAILED;
    }
    PyObject *data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    PyObject *key = data == NULL ? NULL : key_of(delivery);
    PyObject *arrival = key == NULL ? NULL : PyTuple_New(ARRIVAL_FIELDS);
    if (arrival == NULL) {
        Py_XDECREF(key);
        Py_XDECREF(data);
        return FAILED;
    }
    ssize_t read = proton.pn_link_recv(incoming->pointer, PyBytes_AS_STRING(data), size);
    PyTuple_SET_ITEM(arrival, ARRIVAL_DELIVERY, key);
    PyTuple_SET_ITEM(arrival, ARRIVAL_DATA, data);
    if (read < 0 || (size_t)read != size) {
        PyErr_Format(PyExc_RuntimeError, "the engine gave %zd bytes of a message of %zu", read, size);
        Py_DECREF(arrival);
        return FAILED;
    }
    proton.pn_link_advance(incoming->pointer);
    incoming->credit--;
    PyTuple_SET_ITEM(arrival, ARRIVAL_SETTLED, PyBool_FromLong(proton.pn_delivery_settled(delivery)));
    return append(runs->messages, arrival) ? PLAIN : FAILED;
}

/* A state of a delivery that is in none of the batches. */
static enum handling
look_aside(void *delivery, PyObject *aside, PyObject *unconfirmed, PyObject **told)
{
    if (!PyDict_GET_SIZE(aside) && !PyDict_GET_SIZE(unconfirmed)) {
        return PLAIN;
    }
    PyObject *key = key_of(delivery);
    PyObject *held = key == NULL ? NULL : PyDict_GetItemWithError(aside, key);
    int contains = held != NULL || PyErr_Occurred() ? 0 : PyDict_Contains(unconfirmed, key);
    Py_XDECREF(key);
    if (contains < 0 || PyErr_Occurred()) {
        return FAILED;
    }
    if (held != NULL && held != Py_None) {
        return show(told, ASIDE, delivery, NULL);
    }
    return contains ? show(told, STATE, delivery, NULL) : PLAIN;
}

/* (collector, receivers, unsettled, aside, unconfirmed, out); false with an exception if they are something else. */
bool
reading_of(PyObject *const *given, struct reading *reading)
{
    if (!PyDict_CheckExact(given[1]) || !PyDict_CheckExact(given[3]) || !PyDict_CheckExact(given[4]) ||
        !PyList_CheckExact(given[5]) || messages_kind == NULL) {
        PyErr_SetString(PyExc_TypeError, "a collector, three dicts and a list are wanted, and `use` before");
        return false;
    }
    *reading = (struct reading){pointer_of(given[0]), NULL, given[1], given[3], given[4], given[5], false};
    return reading->collector != NULL && (reading->unsettled = sent_of(given[2])) != NULL;
}

/* Append what is plain to `out`; what Python has to do next, or None. */
PyObject *
drain(struct reading *reading)
{
    struct runs runs = {reading->out, NULL, NULL, NULL};
    struct incoming incoming = {NULL, NULL, 0, false, 0};
    void *event, *collector = reading->collector;
    if (resume_run(&runs) < 0) {
        return NULL;
    }
    PyObject *told = NULL;
    enum handling done = PLAIN;
    while ((event = proton.pn_collector_peek(collector)) != NULL) {
        void *delivery = proton.pn_event_delivery(event);
        if (delivery == NULL) {
            int type = proton.pn_event_type(event);
            if (type >= 0 && type < 64 && noticed >> type & 1) {
                done = show(&told, type, event, NULL);
                break;
            }
            pop_event(collector, event);
            continue;
        }
        void *link = proton.pn_delivery_link(delivery);
        done = ELSE;
        if (proton.pn_link_is_sender(link)) {
            done = settle_sent(delivery, reading->unsettled, &runs, &told);
        }
        else if (proton.pn_delivery_readable(delivery)) {
            done = link == incoming.pointer ? PLAIN : look_up(&incoming, link, reading->receivers);
            if (done == PLAIN) {
                done = take_message(delivery, &incoming, &runs, &told);
                reading->is_heavy |= incoming.is_heavy;
            }
        }
        if (done == ELSE) {
            done = look_aside(delivery, reading->aside, reading->unconfirmed, &told);
            if (done == PLAIN && !proton.pn_link_is_sender(link)) {
                done = proton.pn_delivery_remote_state(delivery) == TRANSACTIONAL
                           ? show(&told, CONTINUED, delivery, NULL)
                           : PLAIN;
            }
            else if (done == PLAIN &&
                     (proton.pn_delivery_pending(delivery) || proton.pn_link_current(link) == delivery)) {
                done = show(&told, ASTRAY, delivery, NULL);
            }
        }
        if (done != PLAIN) {
            break;
        }
        proton.pn_collector_pop(collector); /* deliveries come before the End, which is not answered yet */
    }
    Py_XDECREF(incoming.link);
    return done == PLAIN ? Py_NewRef(Py_None) : told; /* NULL if it failed */
}

/* Whether these events are one run of messages or of accepts. */
bool
is_one_run(PyObject *events)
{
    PyObject *event = PyList_GET_SIZE(events) == 1 ? PyList_GET_ITEM(events, 0) : NULL;
    if (event == NULL || !PyTuple_CheckExact(event) || PyTuple_GET_SIZE(event) <= EVENT_BATCH) {
        return false;
    }
    PyObject *kind = PyTuple_GET_ITEM(event, EVENT_KIND);
    return kind == messages_kind || kind == accepted_kind;
}

/* drain(collector, receivers, unsettled, aside, unconfirmed, out) */
PyObject *
batches_drain(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    struct reading reading;
    if (!takes(count, READING_ARGUMENTS, "drain")) {
        return NULL;
    }
    return reading_of(given, &reading) ? drain(&reading) : NULL;
}
