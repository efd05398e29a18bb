/* What proton has to send, and the bodies of messages that it does not get.
 *
 * Proton would copy each body four times, through buffers of each connection that no processor's cache holds. It gets
 * no byte of it, and `output` writes the body behind the transfer. The bodies are in a list: the tag of the first, how
 * many bytes of a frame are still to be copied as they are, and from `FIRST_BODY` on the bodies by their tags, or None.
 * The list is empty while there are none. Source: docs/decisions/092-compiled-engine.md.
 */

#include "batches.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "proton_functions.h"

enum { FIRST_TAG, REST_OF_FRAME, FIRST_BODY };
enum { SIZE_BYTES = 4, FRAME_BYTES = 8, DESCRIPTOR = 0x53, TRANSFER = 0x14 };
enum { SHORTEST_BODY = 256, LONGEST_BODY = 65536, MOST_BODIES = 65536 };

/* Keep a body for `output`, unless it is short or long: how many of its bytes proton gets; -1 with an exception. */
Py_ssize_t
keep_body(PyObject *bodies, uint32_t tag, PyObject *data)
{
    Py_ssize_t size = PyBytes_GET_SIZE(data);
    if (size < SHORTEST_BODY || size > LONGEST_BODY) {
        return size;
    }
    if (PyList_GET_SIZE(bodies) < FIRST_BODY) {
        PyObject *numbers = Py_BuildValue("[kk]", (unsigned long)tag, 0UL);
        int failed = numbers == NULL ? -1 : PyList_SetSlice(bodies, 0, PyList_GET_SIZE(bodies), numbers);
        Py_XDECREF(numbers);
        if (failed) {
            return -1;
        }
    }
    long long first = number_of(PyList_GET_ITEM(bodies, FIRST_TAG), UINT32_MAX);
    Py_ssize_t at = (Py_ssize_t)(uint32_t)(tag - (uint32_t)first) + FIRST_BODY;
    if (first < 0) {
        return -1;
    }
    if (at < PyList_GET_SIZE(bodies) || at > MOST_BODIES) {
        return size;
    }
    while (PyList_GET_SIZE(bodies) < at) {
        if (PyList_Append(bodies, Py_None) < 0) {
            return -1;
        }
    }
    return PyList_Append(bodies, data) < 0 ? -1 : 0;
}

/* How many bytes a number of up to 32 bits takes in proton's encoding; 0: it is none. */
static size_t
number_bytes(unsigned char code)
{
    return code == 0x43 ? 1 : code == 0x52 ? 2 : code == 0x70 ? 5 : 0;
}

/* The place in `bodies` of the body that belongs behind a whole frame of proton's; 0: it has none. */
static Py_ssize_t
body_at(const unsigned char *frame, size_t size, PyObject *bodies, uint32_t first)
{
    enum { LIST_AT = 3, LIST_8 = 0xc0, LIST_32 = 0xd0, BINARY_8 = 0xa0, TAG_BYTES = 4 };
    size_t at = 4 * (size_t)frame[4];
    if (at + LIST_AT + 9 > size || frame[at] != 0 || frame[at + 1] != DESCRIPTOR || frame[at + 2] != TRANSFER) {
        return 0;
    }
    at += LIST_AT;
    size_t end = 0;
    if (frame[at] == LIST_8) {
        end = at + 2 + frame[at + 1];
    }
    else if (frame[at] == LIST_32) {
        end = at + 5 + big_endian(frame + at + 1);
    }
    if (end != size) {
        return 0;
    }
    at += frame[at] == LIST_8 ? 3 : 9;
    for (int numbers = 0; numbers < 2; numbers++) { /* the handle and the delivery-id */
        size_t bytes = at < end ? number_bytes(frame[at]) : 0;
        if (bytes == 0) {
            return 0;
        }
        at += bytes;
    }
    uint32_t tag;
    if (at + 2 + TAG_BYTES > end || frame[at] != BINARY_8 || frame[at + 1] != TAG_BYTES) {
        return 0;
    }
    memcpy(&tag, frame + at + 2, TAG_BYTES);
    size_t place = (size_t)(uint32_t)(tag - first) + FIRST_BODY;
    return place < (size_t)PyList_GET_SIZE(bodies) && PyBytes_CheckExact(PyList_GET_ITEM(bodies, (Py_ssize_t)place))
               ? (Py_ssize_t)place
               : 0;
}

/* Where frames of proton's go, with their bodies. */
struct spliced {
    unsigned char *to;
    size_t room, filled;
    PyObject *bodies;
    uint32_t first;
    size_t rest; /* of a frame that is copied as it is */
};

/* Copy bytes as they are, as many as there is room for; how many. */
static size_t
copy_some(struct spliced *into, const unsigned char *from, size_t size)
{
    size_t copied = Py_MIN(size, into->room - into->filled);
    memcpy(into->to + into->filled, from, copied);
    into->filled += copied;
    return copied;
}

/* Copy what there is of a frame, with its body behind it; how many bytes of it are done, 0 if it has to
 * wait for room, or for the rest of it. */
static size_t
splice_frame(struct spliced *into, const unsigned char *frame, size_t left)
{
    enum { LONGEST_BARE_FRAME = 512, PROTOCOL_BYTES = 8 };
    size_t size = left < FRAME_BYTES ? FRAME_BYTES : big_endian(frame);
    if (left >= FRAME_BYTES && memcmp(frame, "AMQP", 4) == 0) {
        size = PROTOCOL_BYTES;
    }
    if (size <= LONGEST_BARE_FRAME) {
        if (size > left) {
            return 0;
        }
        Py_ssize_t at = size > FRAME_BYTES ? body_at(frame, size, into->bodies, into->first) : 0;
        if (at) {
            PyObject *data = PyList_GET_ITEM(into->bodies, at);
            size_t body = (size_t)PyBytes_GET_SIZE(data), whole = size + body;
            if (whole > into->room - into->filled) {
                return 0;
            }
            unsigned char *to = into->to + into->filled;
            memcpy(to, frame, size);
            memcpy(to + size, PyBytes_AS_STRING(data), body);
            for (int byte = 0; byte < SIZE_BYTES; byte++) {
                to[byte] = (unsigned char)(whole >> 8 * (SIZE_BYTES - 1 - byte));
            }
            into->filled += whole;
            PyList_SetItem(into->bodies, at, Py_NewRef(Py_None)); /* in range: it can't fail */
            return size;
        }
    }
    into->rest = size;
    size_t copied = copy_some(into, frame, Py_MIN(size, left));
    into->rest -= copied;
    return copied;
}

/* Move what proton has to send into the buffer; how many bytes, 0 if there is nothing or no room; below 0: proton has
 * failed. */
static ssize_t
splice(void *transport, struct spliced *into)
{
    ssize_t pending = proton.pn_transport_pending(transport);
    if (pending <= 0) {
        return pending;
    }
    const unsigned char *from = (const unsigned char *)proton.pn_transport_head(transport);
    size_t at = 0, done = 1, before = into->filled;
    while (done && at < (size_t)pending) {
        if (into->rest) {
            done = copy_some(into, from + at, Py_MIN(into->rest, (size_t)pending - at));
            into->rest -= done;
        }
        else {
            done = splice_frame(into, from + at, (size_t)pending - at);
        }
        at += done;
    }
    if (at) {
        proton.pn_transport_pop(transport, at);
    }
    return (ssize_t)(into->filled - before);
}

/* Note how much of a frame is still to be copied, or that no body is left. */
static int
note_bodies(const struct spliced *into)
{
    Py_ssize_t size = PyList_GET_SIZE(into->bodies), at = FIRST_BODY;
    while (at < size && PyList_GET_ITEM(into->bodies, at) == Py_None) {
        at++;
    }
    if (at == size && !into->rest) {
        return PyList_SetSlice(into->bodies, 0, size, NULL);
    }
    return PyList_SetItem(into->bodies, REST_OF_FRAME, PyLong_FromSize_t(into->rest));
}

/* Take the first event of a collector off. It may have the last reference to a link that ended with its session, and
 * the link the last one to the session: proton 0.40 then frees the link together with the session, and once more when
 * it comes back to the link. So a session that we have ended is held meanwhile. */
void
pop_event(void *collector, void *event)
{
    enum { LOCAL_CLOSED = 4 };
    void *session = proton.pn_event_session(event);
    bool has_ended = session != NULL && (proton.pn_session_state(session) & LOCAL_CLOSED) != 0;
    if (has_ended) {
        proton.pn_incref(session);
    }
    proton.pn_collector_pop(collector);
    if (has_ended) {
        proton.pn_decref(session);
    }
}

/* pop_event(collector): take the first event off, if there is one. */
PyObject *
output_pop_event(PyObject *Py_UNUSED(module), PyObject *given)
{
    void *collector = pointer_of(given);
    if (collector == NULL) {
        return NULL;
    }
    void *event = proton.pn_collector_peek(collector);
    if (event != NULL) {
        pop_event(collector, event);
    }
    Py_RETURN_NONE;
}

/* What proton has to send, with the bodies that it did not get, in a buffer. */
struct filled {
    size_t bytes;
    bool has_failed; /* proton has failed behind these bytes */
};

/* Fill the buffer, and drop the flow events that proton raises for our own transfers; false with an exception. */
static bool
fill_buffer(void *transport, void *collector, PyObject *bodies, const Py_buffer *buffer, struct filled *filled)
{
    void *event;
    long long first = 0, rest = 0;
    bool has_bodies = PyList_GET_SIZE(bodies) >= FIRST_BODY;
    if (has_bodies && ((first = number_of(PyList_GET_ITEM(bodies, FIRST_TAG), UINT32_MAX)) < 0 ||
                       (rest = number_of(PyList_GET_ITEM(bodies, REST_OF_FRAME), UINT32_MAX)) < 0)) {
        return false;
    }
    struct spliced into = {buffer->buf, (size_t)buffer->len, 0, bodies, (uint32_t)first, (size_t)rest};
    ssize_t size = 1;
    while (size > 0 && into.filled < into.room) {
        if (has_bodies) {
            size = splice(transport, &into);
            continue;
        }
        size = proton.pn_transport_peek(transport, (char *)into.to + into.filled, into.room - into.filled);
        if (size > 0) {
            proton.pn_transport_pop(transport, (size_t)size);
            into.filled += (size_t)size;
        }
    }
    if (has_bodies && note_bodies(&into) < 0) {
        return false;
    }
    /* Every flow that `drain` finds must be the peer's. */
    while ((event = proton.pn_collector_peek(collector)) != NULL && proton.pn_event_type(event) != transport_error) {
        pop_event(collector, event);
    }
    *filled = (struct filled){into.filled, size < 0};
    return true;
}

/* The same with the arguments of `output`: transport, collector, buffer, bodies. The caller releases the buffer. */
static bool
fill(PyObject *const *given, Py_buffer *buffer, struct filled *filled)
{
    void *transport, *collector;
    if (!PyList_CheckExact(given[3])) {
        PyErr_SetString(PyExc_TypeError, "output takes a list of bodies");
        return false;
    }
    if ((transport = pointer_of(given[0])) == NULL || (collector = pointer_of(given[1])) == NULL ||
        PyObject_GetBuffer(given[2], buffer, PyBUF_WRITABLE) < 0) {
        return false;
    }
    if (!fill_buffer(transport, collector, given[3], buffer, filled)) {
        PyBuffer_Release(buffer);
        return false;
    }
    return true;
}

/* Send what is filled. Whether that is all; otherwise `sent` is how many bytes the socket took, or -errno. More may wait
 * if the buffer is full to the half: `buffers.OUTPUT_BYTES`. */
static bool
send_filled(int descriptor, const Py_buffer *buffer, const struct filled *filled, ssize_t *sent)
{
    *sent = 0;
    if (filled->bytes) {
        Py_BEGIN_ALLOW_THREADS
        *sent = send(descriptor, buffer->buf, filled->bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (*sent < 0) {
            *sent = -errno;
        }
        Py_END_ALLOW_THREADS
    }
    return !filled->has_failed && *sent >= 0 && (size_t)*sent == filled->bytes &&
           filled->bytes <= (size_t)buffer->len / 2;
}

/* What `output` says of these bytes. */
static ssize_t
told_of(const struct filled *filled)
{
    return filled->has_failed ? -1 - (ssize_t)filled->bytes : (ssize_t)filled->bytes;
}

/* output(transport, collector, buffer, bodies): bytes in the buffer, or -1 - bytes if the engine has failed behind
 * them. */
PyObject *
output_fill(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    Py_buffer buffer;
    struct filled filled;
    if (!takes(count, 4, "output") || !fill(given, &buffer, &filled)) {
        return NULL;
    }
    PyBuffer_Release(&buffer);
    return PyLong_FromSsize_t(told_of(&filled));
}

/* send_output(transport, collector, buffer, bodies, descriptor): None if everything is sent. Otherwise (what `output`
 * says, how many of these bytes the socket took, or -errno). */
PyObject *
output_send(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    Py_buffer buffer;
    struct filled filled;
    if (!takes(count, 5, "send_output")) {
        return NULL;
    }
    long long descriptor = number_of(given[4], INT_MAX);
    if (descriptor < 0 || !fill(given, &buffer, &filled)) {
        return NULL;
    }
    ssize_t sent;
    bool is_all = send_filled((int)descriptor, &buffer, &filled, &sent);
    PyBuffer_Release(&buffer);
    if (is_all) {
        Py_RETURN_NONE;
    }
    return Py_BuildValue("nn", told_of(&filled), sent);
}

/* send_outputs(lines, buffer): None if everything of all lines of a list is sent. Otherwise (position of the first of
 * which that is not so, what `send_output` says of it): nothing is done for those behind it. */
PyObject *
output_send_all(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    Py_buffer buffer;
    if (!takes(count, 2, "send_outputs")) {
        return NULL;
    }
    if (!PyList_CheckExact(given[0])) {
        PyErr_SetString(PyExc_TypeError, "send_outputs takes a list of lines");
        return NULL;
    }
    if (PyObject_GetBuffer(given[1], &buffer, PyBUF_WRITABLE) < 0) {
        return NULL;
    }
    PyObject *told = Py_NewRef(Py_None);
    for (Py_ssize_t at = 0; told == Py_None && at < PyList_GET_SIZE(given[0]); at++) {
        struct filled filled;
        struct line line;
        ssize_t sent;
        PyObject *of_line = Py_NewRef(PyList_GET_ITEM(given[0], at)); /* others run while bytes are sent */
        if (!line_of(of_line, &line) || !fill_buffer(line.transport, line.collector, line.bodies, &buffer, &filled)) {
            Py_CLEAR(told);
        }
        else if (!send_filled(line.descriptor, &buffer, &filled, &sent)) {
            Py_SETREF(told, Py_BuildValue("n(nn)", at, told_of(&filled), sent));
        }
        Py_DECREF(of_line);
    }
    PyBuffer_Release(&buffer);
    return told;
}
