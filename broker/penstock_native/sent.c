/* The deliveries that an engine has sent and that are not settled, by their pointers, in the order of sending.
 *
 * Python sees a dict of them, `all`. Nearly all are sent and settled without it: these stand in a table of pointers,
 * which takes a fifth of the instructions of the dict, and half of its memory. Whoever asks for the dict gets it with
 * everything in it; so does the table when it is full, which keeps what is moved at once short. So the dict has the
 * older ones, and the table those that were sent since.
 */

#include "sent.h"

#include "entries.h"
#include "modules.h"
#include "pointers.h"

enum { FEWEST_SLOTS = 64, MOST_SLOTS = 4096 }; /* powers of two; proton's deliveries take ten times their memory */
enum { FREE = 0, GONE = 0xffff };              /* no places of slots, which count from 1 */

struct slot {
    void *delivery;
    PyObject *held[HELD_FIELDS]; /* of the tuple that is made when it is asked for; the first NULL: it is gone, the
                                  * second: the first is the tuple */
};

struct sent {
    PyObject_HEAD
    PyObject *all;      /* the dict */
    struct slot *slots; /* in the order of sending */
    uint16_t *places;   /* by the hash of the delivery, twice as many as slots: the number of a slot, from 1 on */
    uint32_t size, used, live;
    int shift; /* of a hash to the number of a place */
};

static uint32_t
place_of(const sent_t *sent, const void *delivery)
{
    return (uint32_t)((uint64_t)(uintptr_t)delivery * 0x9e3779b97f4a7c15 >> sent->shift); /* a multiple spreads them */
}

/* The place of a delivery; if it has none, the free one that ends the search. */
static uint16_t *
find(const sent_t *sent, const void *delivery)
{
    uint32_t at = place_of(sent, delivery), last = 2 * sent->size - 1;
    while (sent->places[at] != FREE &&
           (sent->places[at] == GONE || sent->slots[sent->places[at] - 1].delivery != delivery)) {
        at = (at + 1) & last;
    }
    return &sent->places[at];
}

/* Begin again: nothing of the table is live any more. */
static void
empty(sent_t *sent)
{
    sent->used = sent->live = 0;
    memset(sent->places, 0, 2 * sent->size * sizeof *sent->places);
}

/* Have `size` slots, with those that are live in front. */
static bool
resize(sent_t *sent, uint32_t size)
{
    struct slot *slots = sent->slots;
    uint16_t *places = sent->places;
    if (size != sent->size) {
        slots = PyMem_Malloc(size * sizeof *slots);
        places = PyMem_Malloc(2 * size * sizeof *places);
        if (slots == NULL || places == NULL) {
            PyMem_Free(slots);
            PyMem_Free(places);
            PyErr_NoMemory();
            return false;
        }
    }
    uint32_t live = 0;
    for (uint32_t at = 0; at < sent->used; at++) {
        if (sent->slots[at].held[0] != NULL) {
            slots[live++] = sent->slots[at];
        }
    }
    if (size != sent->size) {
        PyMem_Free(sent->slots);
        PyMem_Free(sent->places);
        sent->slots = slots;
        sent->places = places;
        sent->size = size;
        sent->shift = 63;
        for (uint32_t places_left = size; places_left > 1; places_left /= 2) {
            sent->shift--;
        }
    }
    sent->used = live;
    memset(places, 0, 2 * size * sizeof *places);
    for (uint32_t at = 0; at < live; at++) {
        *find(sent, slots[at].delivery) = (uint16_t)(at + 1);
    }
    return true;
}

/* Give up what a slot has. */
static void
drop(struct slot *slot)
{
    for (int at = 0; at < HELD_FIELDS; at++) {
        Py_CLEAR(slot->held[at]);
    }
}

/* What a slot has, which it gives up; NULL with an exception if there is no memory. */
static PyObject *
taken(struct slot *slot)
{
    PyObject *held = slot->held[0];
    if (slot->held[1] != NULL) {
        held = PyTuple_New(HELD_FIELDS);
        for (int at = 0; held != NULL && at < HELD_FIELDS; at++) {
            PyTuple_SET_ITEM(held, at, slot->held[at]);
        }
    }
    if (held != NULL) {
        memset(slot->held, 0, sizeof slot->held);
    }
    return held;
}

/* Move everything to the dict. */
static bool
move(sent_t *sent)
{
    for (uint32_t at = 0; at < sent->used; at++) {
        struct slot *slot = &sent->slots[at];
        if (slot->held[0] == NULL) {
            continue;
        }
        PyObject *key = PyLong_FromVoidPtr(slot->delivery);
        PyObject *held = key == NULL ? NULL : taken(slot);
        int failed = held == NULL ? -1 : PyDict_SetItem(sent->all, key, held);
        Py_XDECREF(key);
        if (failed) {
            slot->held[0] = held;
            return false;
        }
        *find(sent, slot->delivery) = GONE;
        sent->live--;
        Py_DECREF(held);
    }
    empty(sent);
    return true;
}

/* There is no slot left. */
static bool
make_room(sent_t *sent)
{
    if (sent->live <= sent->size / 2) {
        return resize(sent, Py_MAX(sent->size, FEWEST_SLOTS));
    }
    if (sent->size < MOST_SLOTS) {
        return resize(sent, 2 * sent->size);
    }
    return move(sent);
}

bool
sent_add(sent_t *sent, void *delivery, PyObject *first, PyObject *second, PyObject *third)
{
    if (sent->used == sent->size && !make_room(sent)) {
        return false;
    }
    uint16_t *place = find(sent, delivery);
    struct slot *slot = &sent->slots[*place == FREE ? sent->used : *place - 1u], before = *slot;
    *slot = (struct slot){delivery, {Py_NewRef(first), Py_XNewRef(second), Py_XNewRef(third)}};
    if (*place == FREE) {
        *place = (uint16_t)++sent->used;
        sent->live++;
    }
    else { /* as a dict does */
        drop(&before);
    }
    return true;
}

/* What a dict has at this key, taken out of it; NULL: nothing, or an exception. */
static PyObject *
taken_out(PyObject *dict, PyObject *key)
{
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *value;
    return PyDict_Pop(dict, key, &value) < 0 ? NULL : value;
#else
    PyObject *value = _PyDict_Pop(dict, key, Py_None);
    if (value == Py_None) {
        Py_CLEAR(value);
    }
    return value;
#endif
}

PyObject *
sent_take(sent_t *sent, void *delivery)
{
    uint16_t *place = sent->live ? find(sent, delivery) : NULL;
    if (place != NULL && *place != FREE) {
        PyObject *held = taken(&sent->slots[*place - 1]);
        if (held == NULL) {
            return NULL;
        }
        *place = GONE;
        if (--sent->live == 0 && sent->used > sent->size / 2) {
            empty(sent); /* which takes the longer the larger it is */
        }
        return held;
    }
    if (PyDict_GET_SIZE(sent->all) == 0) {
        return NULL;
    }
    PyObject *key = PyLong_FromVoidPtr(delivery);
    PyObject *held = key == NULL ? NULL : taken_out(sent->all, key);
    Py_XDECREF(key);
    return held;
}

void
sent_put_back(sent_t *sent, void *delivery, PyObject *held)
{
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyObject *key = PyLong_FromVoidPtr(delivery);
    if (key == NULL || PyDict_SetItem(sent->all, key, held) < 0) {
        PyErr_Clear();
    }
    Py_XDECREF(key);
    Py_DECREF(held);
    PyErr_Restore(type, error, trace);
}

sent_t *
sent_of(PyObject *given)
{
    if (Py_IS_TYPE(given, &sent_type)) {
        return (sent_t *)given;
    }
    PyErr_Format(PyExc_TypeError, "an object of the type Sent is wanted, not %R", given);
    return NULL;
}

static PyObject *
make(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    static char *none[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "", none)) {
        return NULL;
    }
    PyObject *all = PyDict_New();
    sent_t *sent = all == NULL ? NULL : (sent_t *)type->tp_alloc(type, 0); /* everything else is 0 */
    if (sent == NULL) {
        Py_XDECREF(all);
        return NULL;
    }
    sent->all = all;
    return (PyObject *)sent;
}

static int
traverse(PyObject *self, visitproc visit, void *arg)
{
    sent_t *sent = (sent_t *)self;
    Py_VISIT(sent->all);
    for (uint32_t at = 0; at < sent->used; at++) {
        for (int field = 0; field < HELD_FIELDS; field++) {
            Py_VISIT(sent->slots[at].held[field]);
        }
    }
    return 0;
}

static int
clear(PyObject *self)
{
    sent_t *sent = (sent_t *)self;
    uint32_t used = sent->used;
    struct slot *slots = sent->slots;
    sent->slots = NULL; /* before anything is let go that might look here */
    sent->used = sent->live = sent->size = 0;
    PyMem_Free(sent->places);
    sent->places = NULL;
    for (uint32_t at = 0; at < used; at++) {
        drop(&slots[at]);
    }
    PyMem_Free(slots);
    return 0; /* the dict is emptied by itself, and stays */
}

static void
dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    clear(self);
    Py_DECREF(((sent_t *)self)->all);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *
get_all(PyObject *self, void *Py_UNUSED(closure))
{
    sent_t *sent = (sent_t *)self;
    return sent->live && !move(sent) ? NULL : Py_NewRef(sent->all);
}

static int
set_all(PyObject *self, PyObject *given, void *Py_UNUSED(closure))
{
    sent_t *sent = (sent_t *)self;
    if (given == NULL || !PyDict_CheckExact(given)) {
        PyErr_SetString(PyExc_TypeError, "deliveries are kept in a dict");
        return -1;
    }
    if (sent->live && !move(sent)) {
        return -1;
    }
    Py_SETREF(sent->all, Py_NewRef(given));
    return 0;
}

static PyObject *
add(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    void *delivery;
    if (!takes(count, 2, "add") || (delivery = pointer_of(given[0])) == NULL ||
        !sent_add((sent_t *)self, delivery, given[1], NULL, NULL)) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"add", FAST(add), METH_FASTCALL, NULL},
    END_OF_METHODS,
};

static PyGetSetDef attributes[] = {
    {"all", get_all, set_all, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject sent_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "penstock_native.proton.Sent",
    .tp_basicsize = sizeof(sent_t),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Deliveries that were sent and are not settled: see proton.pyi.",
    .tp_new = make,
    .tp_traverse = traverse,
    .tp_clear = clear,
    .tp_dealloc = dealloc,
    .tp_methods = methods,
    .tp_getset = attributes,
};
