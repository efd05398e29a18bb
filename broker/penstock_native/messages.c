/* penstock_native.messages: the loops over messages of the forwarding path, and of reading a deep backlog.
 *
 * Each function does what a loop in Python would do for the messages that are plain, and stops at the first that is
 * not. fields.c reads single fields of one message. An entry is (number, message, available, expires, flags), an arrival (delivery, message, settled), a held
 * delivery (link, entry, sent at): see `penstock_amqp.endpoint.events`. Records: docs/reference/log-format.md.
 */

#include "fields.h"
#include "modules.h"

enum { ENTRY_NUMBER, ENTRY_DATA, ENTRY_AVAILABLE, ENTRY_EXPIRES, ENTRY_FLAGS, ENTRY_FIELDS };
enum { ARRIVAL_DELIVERY, ARRIVAL_DATA, ARRIVAL_SETTLED, ARRIVAL_FIELDS };
enum { HELD_LINK, HELD_ENTRY, HELD_SENT, HELD_FIELDS };
enum { PUT_ROUTE_SET, PUT_MESSAGE, PUT_ARRIVAL, PUT_PAYLOAD, PUT_FLAGS, PUT_FIELDS };

/* A put as a record: type, flags, 0 (16 bits), length of what follows (32 bits); route set (32), 0 (32), message (64),
 * arrival (64), and the payload. Little-endian. */
enum { RECORD_HEAD = 8, PUT_HEAD = 32, PUT_FIXED = PUT_HEAD - RECORD_HEAD };

static void
write_number(unsigned char *to, uint64_t number, int bytes)
{
    for (int at = 0; at < bytes; at++) {
        to[at] = (unsigned char)(number >> 8 * at);
    }
}

static uint64_t
read_number(const unsigned char *from, int bytes)
{
    uint64_t number = 0;
    for (int at = 0; at < bytes; at++) {
        number |= (uint64_t)from[at] << 8 * at;
    }
    return number;
}

/* The number of a message; false with an exception if it is none. */
static bool
message_number_of(PyObject *given, uint64_t *number)
{
    unsigned long long found = PyLong_AsUnsignedLongLong(given);
    *number = found;
    return found != (unsigned long long)-1 || !PyErr_Occurred();
}

/* The fields of a tuple of that length; NULL with an exception if it is none. */
static PyObject **
fields_of(PyObject *tuple, Py_ssize_t length)
{
    if (PyTuple_Check(tuple) && PyTuple_GET_SIZE(tuple) == length) {
        return ((PyTupleObject *)tuple)->ob_item;
    }
    PyErr_Format(PyExc_TypeError, "a tuple of %zd fields is wanted, not %R", length, tuple);
    return NULL;
}

/* Append what is new to a list, and give up the reference to it. */
static bool
append(PyObject *list, PyObject *added)
{
    bool done = added != NULL && PyList_Append(list, added) == 0;
    Py_XDECREF(added);
    return done;
}

/* A tuple of the kind: `tuple`, or a subclass without attributes of its own. All references are given up. */
static PyObject *
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

/* How a message begins that needs no closer look, see `queue.message_prefix`. */
struct beginning {
    const char *prefix;
    Py_ssize_t length, count_at;
    bool is_narrow; /* the size of the properties is the byte before their count */
};

enum { NO_TIMES = 8, USUAL_COUNT = 10, NULL_VALUE = 0x40, TIMESTAMP = 0x83 };

static bool
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
static bool
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

static bool
begins_so(const char *data, Py_ssize_t size, const struct beginning *beginning)
{
    return size > beginning->count_at && beginning->count_at >= 0 && size >= beginning->length &&
           memcmp(data, beginning->prefix, (size_t)beginning->length) == 0 &&
           names_no_time((const unsigned char *)data, size, beginning);
}

/* Two integers as a tuple in a list. */
static bool
append_pair(PyObject *list, PyObject *first, Py_ssize_t second)
{
    PyObject *fields[] = {Py_NewRef(first), PyLong_FromSsize_t(second)};
    return append(list, make_tuple(&PyTuple_Type, 2, fields));
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

/* take_plain(batch, at, prefix, count_at, is narrow, longest, number, now, expires, flags, entries, deliveries,
 * presettled, payloads or None): (messages taken, their bytes) */
static PyObject *
take_plain(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    struct beginning beginning;
    if (!takes(count, 14, "take_plain") || !beginning_of(given[2], given[3], given[4], &beginning)) {
        return NULL;
    }
    PyObject *batch = given[0], *now = given[7], *expires = given[8], *flags = given[9];
    PyObject *entries = given[10], *deliveries = given[11], *presettled = given[12], *payloads = given[13];
    if (!PyList_Check(batch) || !PyList_Check(entries) || !PyList_Check(deliveries) || !PyList_Check(presettled) ||
        (payloads != Py_None && !PyList_Check(payloads))) {
        PyErr_SetString(PyExc_TypeError, "take_plain takes lists");
        return NULL;
    }
    long long first, longest;
    uint64_t number;
    if ((first = number_of(given[1], PY_SSIZE_T_MAX)) < 0 || (longest = number_of(given[5], PY_SSIZE_T_MAX)) < 0 ||
        !message_number_of(given[6], &number)) {
        return NULL;
    }
    Py_ssize_t bytes = 0, at;
    for (at = (Py_ssize_t)first; at < PyList_GET_SIZE(batch); at++) {
        PyObject **arrived = fields_of(PyList_GET_ITEM(batch, at), ARRIVAL_FIELDS);
        if (arrived == NULL) {
            return NULL;
        }
        PyObject *data = arrived[ARRIVAL_DATA];
        if (!PyBytes_CheckExact(data) || PyBytes_GET_SIZE(data) > longest ||
            !begins_so(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), &beginning)) {
            break;
        }
        PyObject *fields[] = {PyLong_FromUnsignedLongLong(number++), Py_NewRef(data), Py_NewRef(now),
                              Py_NewRef(expires), Py_NewRef(flags)};
        PyObject *of_its_kind = arrived[ARRIVAL_SETTLED] == Py_True ? presettled : deliveries;
        if (!append(entries, make_tuple(&PyTuple_Type, ENTRY_FIELDS, fields)) ||
            PyList_Append(of_its_kind, arrived[ARRIVAL_DELIVERY]) < 0 ||
            (payloads != Py_None && PyList_Append(payloads, data) < 0)) {
            return NULL;
        }
        bytes += PyBytes_GET_SIZE(data);
    }
    return Py_BuildValue("nn", at - (Py_ssize_t)first, bytes);
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
    bool done = run->length == 0 || append_pair(run->runs, run->time, run->length);
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

/* Add the length of a message to `bytes`; of a streamed one that of the whole, which Python code tells. */
static bool
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

/* read_puts(data, begin, end, type, kind, found): where the first record begins that is no whole put of this type */
static PyObject *
read_puts(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
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
        long long length = (long long)read_number(data + at + 4, 4), following = at + RECORD_HEAD + length;
        if (length < PUT_FIXED || following > end) {
            break;
        }
        const char *payload = (const char *)data + at + PUT_HEAD;
        PyObject *fields[PUT_FIELDS] = {
            [PUT_ROUTE_SET] = PyLong_FromUnsignedLongLong(read_number(data + at + 8, 4)),
            [PUT_MESSAGE] = PyLong_FromUnsignedLongLong(read_number(data + at + 16, 8)),
            [PUT_ARRIVAL] = PyLong_FromUnsignedLongLong(read_number(data + at + 24, 8)),
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
static PyObject *
plain_entries(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
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

/* A little-endian number; written out, because compilers then make one load of it. */
static uint64_t
number_32(const unsigned char *at)
{
    return (uint64_t)at[0] | (uint64_t)at[1] << 8 | (uint64_t)at[2] << 16 | (uint64_t)at[3] << 24;
}

static uint64_t
number_64(const unsigned char *at)
{
    return number_32(at) | number_32(at + 4) << 32;
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
static PyObject *
put_stretch(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
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
static PyObject *
stretch_entries(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
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
static PyObject *
pageable(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
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
static PyObject *
tally(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
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

static PyMethodDef methods[] = {
    {"take_plain", FAST(take_plain), METH_FASTCALL, NULL},
    {"put_records", FAST(put_records), METH_FASTCALL, NULL},
    {"sent_runs", sent_runs, METH_O, NULL},
    {"accepted_runs", FAST(accepted_runs), METH_FASTCALL, NULL},
    {"read_puts", FAST(read_puts), METH_FASTCALL, NULL},
    {"plain_entries", FAST(plain_entries), METH_FASTCALL, NULL},
    {"put_stretch", FAST(put_stretch), METH_FASTCALL, NULL},
    {"stretch_entries", FAST(stretch_entries), METH_FASTCALL, NULL},
    {"pageable", FAST(pageable), METH_FASTCALL, NULL},
    {"tally", FAST(tally), METH_FASTCALL, NULL},
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
