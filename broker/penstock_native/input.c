/* The input of a connection while it is plain: given to proton in pieces, from Python's buffer or from the socket.
 *
 * What is plain `frames.input_gate` says; whatever is not is left to Python. Source: AMQP 1.0 part 2, 2.3.
 */

#include "batches.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "proton_functions.h"

/* The input of a connection while it is plain: how much of an incomplete frame proton holds, and what it lacks. Numbers
 * are wider than offsets: a peer may name any size of 32 bits. */
struct input {
    const unsigned char *data;
    long long start, at, size;
    long long held, missing; /* `missing` is 0, too, while the size of the frame is not known */
    bool has_flow;           /* in the piece a flow begins: it may be one of a session, of which proton says nothing */
};

enum { FRAME_SIZE_BYTES = 4, FRAME_HEAD_BYTES = 8, FRAME_CODE_AT = 10, SMALL_ULONG = 0x53 };
enum { OPEN = 0x10, ATTACH = 0x12, FLOW = 0x13, TRANSFER = 0x14, DISPOSITION = 0x15, END = 0x17 };
/* BEGIN is between OPEN and ATTACH */

/* Bytes of a number of up to 32 bits behind its format code; -1: it is none. */
static int
number_bytes(unsigned char code)
{
    return code == 0x70 ? 4 : code == 0x52 ? 1 : code == 0x43 ? 0 : -1;
}

/* Whether Python has to look at a disposition, of which `size` bytes are here: it names many deliveries, as
 * `frames.wide_dispositions` decides it, or may lack one of its two mandatory fields, as `frames.mandatory_fields` does. */
static bool
is_special_disposition(const unsigned char *frame, long long size)
{
    enum { WIDE = 256, LIST_AT = FRAME_CODE_AT + 1, LIST_8 = 0xc0, LIST_32 = 0xd0, BOOLEAN = 0x56, NONE = 0x40 };
    enum { MANDATORY = 2 };
    uint32_t numbers[2] = {0, 0};
    if (size <= LIST_AT) {
        return false;
    }
    if (frame[LIST_AT] != LIST_8 && frame[LIST_AT] != LIST_32) {
        return true;
    }
    long long at = LIST_AT + (frame[LIST_AT] == LIST_8 ? 3 : 9);
    if (at > size) {
        return false;
    }
    if ((frame[LIST_AT] == LIST_8 ? frame[at - 1] : big_endian(frame + at - 4)) < MANDATORY ||
        (at < size && frame[at] == NONE)) {
        return true;
    }
    at += at < size && frame[at] == BOOLEAN ? 2 : 1; /* the role */
    if (at < size && frame[at] == NONE) {
        return true;
    }
    for (int each = 0; each < 2; each++) {
        int bytes = at < size ? number_bytes(frame[at]) : -1;
        if (bytes < 0 || at + 1 + bytes > size) {
            return false;
        }
        numbers[each] = bytes == 4 ? big_endian(frame + at + 1) : bytes ? frame[at + 1] : 0;
        at += 1 + bytes;
    }
    return numbers[1] - numbers[0] >= WIDE;
}

/* Whether Python has to look at a frame, of which `size` bytes are here, at least up to its code: one that proton must
 * get apart (an open, a begin, an attach, an end), a special disposition, or what may be one of them in an unusual encoding. */
static bool
is_special(const unsigned char *frame, long long size)
{
    enum { USUAL_WORDS = 2, WORDS_AT = 4 };
    unsigned char code = frame[FRAME_CODE_AT];
    return frame[WORDS_AT] != USUAL_WORDS || frame[FRAME_CODE_AT - 1] != SMALL_ULONG || (code >= OPEN && code <= ATTACH) ||
           code == END || (code == DISPOSITION && is_special_disposition(frame, size));
}

/* How many of the next bytes, in which a frame begins at `at`, come before a special frame, or before the beginning of a
 * frame whose code is not here yet. Frames that begin at `most` or behind, where the piece ends, are not looked at. */
static long long
before_special(struct input *input, long long at, long long most)
{
    long long left = input->size - input->at;
    while (at < most && at < left) {
        const unsigned char *frame = input->data + input->at + at;
        long long here = left - at, size = here < FRAME_SIZE_BYTES ? LLONG_MAX : big_endian(frame);
        if (here <= FRAME_CODE_AT && size > here) {
            return at;
        }
        if (size < FRAME_HEAD_BYTES) {
            break; /* the engine says what is wrong */
        }
        if (size > FRAME_CODE_AT) { /* others are empty, or malformed */
            if (is_special(frame, Py_MIN(size, here))) {
                return at;
            }
            input->has_flow |= frame[FRAME_CODE_AT] == FLOW;
        }
        at += size;
    }
    return left;
}

/* How many of the next bytes, or of the next `most`, may go to proton unseen, as `frames.input_gate` decides it: 0:
 * Python has to look. */
static long long
unseen(struct input *input, long long most)
{
    input->has_flow = false;
    long long left = input->size - input->at, code_at = input->missing + FRAME_CODE_AT;
    if (input->held && !input->missing) {
        return input->held < FRAME_HEAD_BYTES ? Py_MIN(left, FRAME_HEAD_BYTES - input->held) : 1;
    }
    if (input->missing >= left) {
        return left;
    }
    if (code_at >= left || input->data[input->at + code_at - 1] != SMALL_ULONG) {
        return 0;
    }
    unsigned char code = input->data[input->at + code_at];
    return code == FLOW || code == TRANSFER || code == DISPOSITION ? before_special(input, input->missing, most) : 0;
}

/* `taken` bytes were pushed, and proton holds `partial` bytes of an incomplete frame. */
static void
advance(struct input *input, ssize_t taken, long long partial)
{
    long long missing = input->missing - taken;
    input->at += taken;
    input->held = partial;
    if (partial < FRAME_SIZE_BYTES) {
        missing = 0;
    }
    else if (partial <= input->at - input->start) {
        const unsigned char *head = input->data + input->at - partial;
        missing = (long long)big_endian(head) - partial;
    }
    input->missing = Py_MAX(missing, 0);
}

/* What the engine took of the input, see `push`. */
struct pushed {
    long long last, held_before; /* where the last piece begins, and what proton held before it */
    PyObject *told;              /* what `drain` said; NULL with an exception */
};

/* Push what is plain, piece by piece, and drain the events of each, until over `most_events` are in the list, or a flow
 * came. */
static struct pushed
push(void *transport, struct input *input, long long capacity, long long most_events, struct reading *reading)
{
    struct pushed pushed = {input->start, input->held, Py_NewRef(Py_None)};
    while (input->at < input->size && pushed.told == Py_None && !reading->is_heavy && !input->has_flow &&
           PyList_GET_SIZE(reading->out) <= most_events) {
        /* A piece that fills proton's buffer might make it grow, so one byte stays free. */
        long long most = proton.pn_transport_capacity(transport) - 1;
        long long wanted = Py_MIN(unseen(input, most), most);
        const char *piece = (const char *)input->data + input->at;
        ssize_t taken = wanted > 0 ? proton.pn_transport_push(transport, piece, (size_t)wanted) : 0;
        if (taken <= 0) {
            break;
        }
        ssize_t room = proton.pn_transport_capacity(transport);
        long long partial = room < 0 ? 0 : capacity - room; /* below 0: the engine has failed, and says so */
        if (partial < 0 || partial > input->held + taken) {
            PyErr_Format(PyExc_RuntimeError, "the engine has room for %zd of %lld bytes after %lld were given", room,
                         capacity, input->held + taken);
            Py_CLEAR(pushed.told);
            break;
        }
        pushed.last = input->at;
        pushed.held_before = input->held;
        advance(input, taken, partial);
        Py_SETREF(pushed.told, drain(reading));
    }
    return pushed;
}

/* (bytes taken, offset of the last piece, whether a flow begins in it, held before it, held, missing, what `drain`
 * says); None if nothing was taken. */
static PyObject *
told_of(const struct input *input, struct pushed pushed)
{
    if (pushed.told == NULL || input->at == input->start) {
        return pushed.told;
    }
    return Py_BuildValue("LLOLLLN", input->at - input->start, pushed.last - input->start,
                         input->has_flow ? Py_True : Py_False, pushed.held_before, input->held, input->missing, pushed.told);
}

/* The numbers among the arguments; false with an exception. */
static bool
numbers_of(PyObject *const *given, int count, long long *numbers)
{
    for (int at = 0; at < count; at++) {
        numbers[at] = number_of(given[at], UINT32_MAX);
        if (numbers[at] < 0) {
            return false;
        }
    }
    return true;
}

/* push_plain(transport, input, start, size, held, missing, capacity of the empty transport, most events, and what
 * `drain` takes): what `told_of` says. */
PyObject *
input_push_plain(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    enum { NUMBERS = 6, OWN = 2 + NUMBERS };
    struct reading reading;
    long long numbers[NUMBERS];
    Py_buffer view;
    void *transport;
    if (!takes(count, OWN + READING_ARGUMENTS, "push_plain") || !numbers_of(given + 2, NUMBERS, numbers) ||
        (transport = pointer_of(given[0])) == NULL || !reading_of(given + OWN, &reading) ||
        PyObject_GetBuffer(given[1], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    struct input input = {view.buf, numbers[0], numbers[0], numbers[1], numbers[2], numbers[3], false};
    if (input.size > view.len || (input.held && !input.missing)) {
        input.size = input.start; /* the beginning of the frame is not here */
    }
    struct pushed pushed =
        push(transport, &input, numbers[4], PyList_GET_SIZE(reading.out) + numbers[5], &reading);
    PyBuffer_Release(&view);
    return told_of(&input, pushed);
}

/* Receive at most so many bytes into the buffer: how many, or -errno. */
static ssize_t
receive(int descriptor, const Py_buffer *view, ssize_t most)
{
    ssize_t size;
    Py_BEGIN_ALLOW_THREADS
    size = recv(descriptor, view->buf, (size_t)most, MSG_DONTWAIT);
    if (size < 0) {
        size = -errno;
    }
    Py_END_ALLOW_THREADS
    return size;
}

/* Push `size` bytes that came while proton holds nothing: what `read_plain` returns. `is_whole`, unless it is NULL: all
 * of them were plain and whole. */
static PyObject *
push_read(ssize_t size, void *transport, const Py_buffer *view, long long capacity, long long most_events,
          struct reading *reading, bool *is_whole)
{
    if (size <= 0) {
        return PyLong_FromSsize_t(size);
    }
    struct input input = {view->buf, 0, 0, size, 0, 0, false};
    struct pushed pushed = push(transport, &input, capacity, PyList_GET_SIZE(reading->out) + most_events, reading);
    if (pushed.told == Py_None && input.at == size && !input.held && !pushed.held_before && !reading->is_heavy &&
        !input.has_flow) {
        Py_DECREF(pushed.told);
        if (is_whole != NULL) {
            *is_whole = true;
        }
        return PyLong_FromSsize_t(size);
    }
    PyObject *told = told_of(&input, pushed);
    return told == NULL ? NULL : Py_BuildValue("nN", size, told);
}

/* read_plain(descriptor, most bytes, transport, input, capacity of the empty transport, most events, and what `drain`
 * takes), while proton holds nothing; without a descriptor (None) so many bytes are in the input already: how many bytes
 * came, if all of them were plain and whole; 0: the peer has ended; below 0: -errno. Otherwise (bytes, what `told_of`
 * says). */
PyObject *
input_read_plain(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    enum { BEFORE = 2, AFTER = 2, OWN = 2 + BEFORE + AFTER };
    struct reading reading;
    long long before[BEFORE] = {-1, 0}, after[AFTER];
    Py_buffer view;
    void *transport;
    if (!takes(count, OWN + READING_ARGUMENTS, "read_plain") ||
        (given[0] != Py_None && !numbers_of(given, 1, before)) || !numbers_of(given + 1, 1, before + 1) ||
        !numbers_of(given + BEFORE + 2, AFTER, after) || (transport = pointer_of(given[BEFORE])) == NULL ||
        !reading_of(given + OWN, &reading) || PyObject_GetBuffer(given[BEFORE + 1], &view, PyBUF_WRITABLE) < 0) {
        return NULL;
    }
    ssize_t size = (ssize_t)Py_MIN(before[1], view.len);
    if (given[0] != Py_None) {
        size = receive((int)before[0], &view, size);
    }
    PyObject *read = push_read(size, transport, &view, after[0], after[1], &reading, NULL);
    PyBuffer_Release(&view);
    return read;
}

/* What a tuple says of a line; false with an exception if it is none. */
bool
line_of(PyObject *given, struct line *line)
{
    if (!PyTuple_CheckExact(given) || PyTuple_GET_SIZE(given) != LINE_FIELDS ||
        !PyList_CheckExact(PyTuple_GET_ITEM(given, 3))) {
        PyErr_Format(PyExc_TypeError, "no line of a socket: %R", given);
        return false;
    }
    long long descriptor = number_of(PyTuple_GET_ITEM(given, 0), INT_MAX);
    if (descriptor < 0) {
        return false;
    }
    *line = (struct line){(int)descriptor, pointer_of(PyTuple_GET_ITEM(given, 1)), NULL, PyTuple_GET_ITEM(given, 3)};
    return line->transport != NULL && (line->collector = pointer_of(PyTuple_GET_ITEM(given, 2))) != NULL;
}

/* The same for what is read; the line is one. */
static bool
reading_of_line(PyObject *line, PyObject *out, struct reading *reading)
{
    PyObject *given[READING_ARGUMENTS] = {PyTuple_GET_ITEM(line, 2)};
    for (int dict = 1; dict < READING_ARGUMENTS - 1; dict++) {
        given[dict] = PyTuple_GET_ITEM(line, LINE_READING_AT + dict - 1);
    }
    given[READING_ARGUMENTS - 1] = out;
    return reading_of(given, reading);
}

/* read_together(lines, most bytes, input, most events, bytes of a read that is not light, out): each line of a list is
 * read as by `read_plain`, and gets a list of its own in `out`, up to the first that brings anything but one light run
 * of messages or accepts: what `read_plain` returns for that one, or None. */
PyObject *
input_read_together(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    enum { LINES, MOST, INPUT, NUMBERS, OUT = NUMBERS + 2, OWN };
    long long most, numbers[2];
    Py_buffer view;
    if (!takes(count, OWN, "read_together") || !numbers_of(given + MOST, 1, &most) ||
        !numbers_of(given + NUMBERS, 2, numbers)) {
        return NULL;
    }
    PyObject *lines = given[LINES], *out = given[OUT];
    if (!PyList_CheckExact(lines) || !PyList_CheckExact(out) || lines == out) {
        PyErr_SetString(PyExc_TypeError, "read_together takes a list of lines, and one for events");
        return NULL;
    }
    if (PyObject_GetBuffer(given[INPUT], &view, PyBUF_WRITABLE) < 0) {
        return NULL;
    }
    PyObject *told = Py_NewRef(Py_None);
    for (Py_ssize_t at = 0; told == Py_None && at < PyList_GET_SIZE(lines); at++) {
        struct reading reading;
        struct line line;
        PyObject *of_line = Py_NewRef(PyList_GET_ITEM(lines, at)); /* others run while bytes are received */
        PyObject *events = PyList_New(0);
        if (events == NULL || PyList_Append(out, events) < 0 || !line_of(of_line, &line) ||
            !reading_of_line(of_line, events, &reading)) {
            Py_CLEAR(told);
        }
        else {
            ssize_t size = receive(line.descriptor, &view, (ssize_t)Py_MIN(most, view.len));
            long long capacity = proton.pn_transport_capacity(line.transport); /* it holds nothing */
            bool is_whole = false;
            PyObject *read = push_read(size, line.transport, &view, capacity, numbers[0], &reading, &is_whole);
            if (is_whole && size < numbers[1] && is_one_run(events)) {
                Py_DECREF(read);
            }
            else {
                Py_SETREF(told, read);
            }
        }
        Py_XDECREF(events);
        Py_DECREF(of_line);
    }
    PyBuffer_Release(&view);
    return told;
}
