/* Named fields of one message: what selectors, bindings and delays ask for, read without decoding the rest.
 *
 * Only what clients usually send is read. At anything else (a described value, a binary, text that is not UTF-8, a
 * length beyond the end) the answer is NotImplemented, and `penstock_amqp.messages.fields` reads the message itself:
 * it alone says what is wrong. Nothing is nested here, and each step goes on by a byte at least, within `end`.
 *
 * Source: AMQP 1.0 part 1, section 1.6 (format codes), and part 3, section 3.2 (sections).
 */

#include "fields.h"

enum { HEADER = 0x70, PROPERTIES = 0x73, FOOTER = 0x78, CODES = 256 };
enum { LIST0 = 0x45, LIST8 = 0xC0, MAP8 = 0xC1, WIDE = 0x10 }; /* WIDE: from a format code to that with 32 bits */

/* Instead of an offset. */
enum { ABSENT = -1, UNUSUAL = -2 };

struct message {
    const unsigned char *data;
    Py_ssize_t start, end;
};

/* The items of a list or a map. */
struct items {
    Py_ssize_t at, end;
    uint32_t count;
};

static uint64_t
big_endian(const unsigned char *from, Py_ssize_t bytes)
{
    uint64_t number = 0;
    for (Py_ssize_t at = 0; at < bytes; at++) {
        number = number << 8 | from[at];
    }
    return number;
}

/* The offset behind the value at `at`; UNUSUAL if it has a descriptor, no format code, or does not end in time. */
static Py_ssize_t
behind(const unsigned char *data, Py_ssize_t at, Py_ssize_t end)
{
    static const unsigned char fixed[16] = {[0x4] = 1, [0x5] = 2, [0x6] = 3, [0x7] = 5, [0x8] = 9, [0x9] = 17};
    Py_ssize_t left = end - at;
    if (left < 1) {
        return UNUSUAL;
    }
    unsigned char kind = data[at] >> 4;
    uint64_t width = fixed[kind];
    if (kind >= 0xA) {
        Py_ssize_t bytes = kind & 1 ? 4 : 1; /* of the size */
        width = left > bytes ? 1 + (uint64_t)bytes + big_endian(data + at + 1, bytes) : 0;
    }
    return width > 0 && width <= (uint64_t)left ? at + (Py_ssize_t)width : UNUSUAL;
}

/* The offset of the value of a section; ABSENT if a later one, or the end, comes first. */
static Py_ssize_t
section_of(const struct message *message, int wanted)
{
    const unsigned char *data = message->data;
    Py_ssize_t at = message->start;
    while (at < message->end) {
        if (message->end - at < 3 || data[at] != 0x00 || data[at + 1] != 0x53) {
            return UNUSUAL;
        }
        int section = data[at + 2];
        if (section < HEADER || section > FOOTER) {
            return UNUSUAL;
        }
        if (section >= wanted) {
            return section == wanted ? at + 3 : ABSENT;
        }
        at = behind(data, at + 3, message->end);
        if (at < 0) {
            return UNUSUAL;
        }
    }
    return ABSENT;
}

/* The items of the list or map at `at`, whose format code is `narrow`, or the wide one; false if there is none. */
static bool
items_of(const struct message *message, Py_ssize_t at, int narrow, struct items *items)
{
    const unsigned char *data = message->data;
    items->end = behind(data, at, message->end);
    if (items->end < 0) {
        return false;
    }
    if (narrow == LIST8 && data[at] == LIST0) {
        items->count = 0;
        return true;
    }
    Py_ssize_t bytes = data[at] == narrow ? 1 : 4; /* of the size, and of the count */
    items->at = at + 1 + 2 * bytes;
    if ((data[at] != narrow && data[at] != narrow + WIDE) || items->at > items->end) {
        return false;
    }
    items->count = (uint32_t)big_endian(data + at + 1 + bytes, bytes);
    return true;
}

/* An instance of the class for a format code; the reference to its number is given up. */
static PyObject *
of_class(PyObject *classes, int code, PyObject *number)
{
    PyObject *made = number == NULL ? NULL : PyObject_CallOneArg(PyTuple_GET_ITEM(classes, code), number);
    Py_XDECREF(number);
    return made;
}

static PyObject *
integer_of(const unsigned char *from, Py_ssize_t bytes, bool has_sign)
{
    uint64_t number = big_endian(from, bytes);
    if (!has_sign) {
        return PyLong_FromUnsignedLongLong(number);
    }
    uint64_t sign = (uint64_t)1 << (8 * bytes - 1);
    return PyLong_FromLongLong((long long)((number ^ sign) - sign));
}

static PyObject *
text_of(const unsigned char *from, Py_ssize_t bytes)
{
    PyObject *text = PyUnicode_DecodeUTF8((const char *)from, bytes, NULL);
    if (text == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear();
        Py_RETURN_NOTIMPLEMENTED;
    }
    return text;
}

static PyObject *
floating_of(const unsigned char *from, Py_ssize_t bytes)
{
    const char *at = (const char *)from;
    double number = bytes == 4 ? PyFloat_Unpack4(at, 0) : PyFloat_Unpack8(at, 0);
    return number == -1.0 && PyErr_Occurred() ? NULL : PyFloat_FromDouble(number);
}

/* The value from `at` to `end`, which is where it ends by its format code. */
static PyObject *
value_of(const unsigned char *data, Py_ssize_t at, Py_ssize_t end, PyObject *classes)
{
    const unsigned char *content = data + at + 1;
    Py_ssize_t bytes = end - at - 1;
    int code = data[at];
    switch (code) {
    case 0x40:
        Py_RETURN_NONE;
    case 0x41:
        Py_RETURN_TRUE;
    case 0x42:
        Py_RETURN_FALSE;
    case 0x56:
        if (*content > 1) {
            Py_RETURN_NOTIMPLEMENTED;
        }
        return PyBool_FromLong(*content);
    case 0xA1:
        return text_of(content + 1, bytes - 1);
    case 0xB1:
        return text_of(content + 4, bytes - 4);
    case 0x43: case 0x44: case 0x50: case 0x52: case 0x53: case 0x60: case 0x70: case 0x80:
        return of_class(classes, code, integer_of(content, bytes, false));
    case 0x51: case 0x54: case 0x55: case 0x61: case 0x71: case 0x81: case 0x83:
        return of_class(classes, code, integer_of(content, bytes, true));
    case 0x72:
        return of_class(classes, code, floating_of(content, bytes));
    case 0x82:
        return floating_of(content, bytes);
    default:
        Py_RETURN_NOTIMPLEMENTED;
    }
}

/* Add a value under the name for an encoded key, if that is wanted: 1, or 0 if it is unusual, -1 with an exception. */
static int
add_wanted(PyObject *found, PyObject *wanted, const unsigned char *data, Py_ssize_t at, Py_ssize_t value_at,
           Py_ssize_t end, PyObject *classes)
{
    PyObject *key = PyBytes_FromStringAndSize((const char *)data + at, value_at - at);
    PyObject *name = key == NULL ? NULL : PyDict_GetItemWithError(wanted, key);
    Py_XINCREF(name);
    Py_XDECREF(key);
    if (name == NULL) {
        return PyErr_Occurred() ? -1 : 1;
    }
    PyObject *value = value_of(data, value_at, end, classes);
    int done = value == NULL ? -1 : value != Py_NotImplemented;
    if (done == 1 && PyDict_SetItem(found, name, value) < 0) {
        done = -1;
    }
    Py_DECREF(name);
    Py_XDECREF(value);
    return done;
}

/* Fill `found` from a map: 1, or 0 if something is unusual, -1 with an exception. */
static int
pick(PyObject *found, PyObject *wanted, const unsigned char *data, struct items items, PyObject *classes)
{
    int done = 1;
    for (uint32_t left = items.count / 2; done == 1 && left > 0; left--) {
        Py_ssize_t value_at = behind(data, items.at, items.end);
        Py_ssize_t following = value_at < 0 ? UNUSUAL : behind(data, value_at, items.end);
        if (following < 0) {
            return 0;
        }
        done = add_wanted(found, wanted, data, items.at, value_at, following, classes);
        if (PyDict_GET_SIZE(found) > 0 && PyDict_GET_SIZE(found) == PyDict_GET_SIZE(wanted)) {
            break; /* what follows is not looked at, whatever it is */
        }
        items.at = following;
    }
    return done;
}

/* The message and the offset at which a section begins, as the first two arguments, and the classes of numbers; false
 * with an exception if they are none. Of a message that is streamed, `data` is NULL: its length is not that of its
 * bytes. */
static bool
message_of(PyObject *const *given, PyObject *classes, struct message *message)
{
    long long start = number_of(given[1], PY_SSIZE_T_MAX);
    if (start < 0) {
        return false;
    }
    if (!PyBytes_Check(given[0]) || !PyTuple_Check(classes) || PyTuple_GET_SIZE(classes) != CODES) {
        PyErr_SetString(PyExc_TypeError, "a message and a tuple of 256 classes are wanted");
        return false;
    }
    message->end = PyBytes_GET_SIZE(given[0]);
    message->start = (Py_ssize_t)start;
    bool is_whole = PyBytes_CheckExact(given[0]) && message->start <= message->end;
    message->data = is_whole ? (const unsigned char *)PyBytes_AS_STRING(given[0]) : NULL;
    return true;
}

/* The items of a section, none if the message does not have it; false if something is unusual. */
static bool
items_in(const struct message *message, int wanted, int narrow, struct items *items)
{
    Py_ssize_t section = message->data == NULL ? UNUSUAL : section_of(message, wanted);
    *items = (struct items){0, 0, 0};
    return section == ABSENT || (section >= 0 && items_of(message, section, narrow, items));
}

/* picked(data, start, section, wanted, classes): dict, or NotImplemented */
PyObject *
fields_picked(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    struct message message;
    long long wanted_section;
    if (!takes(count, 5, "picked") || !message_of(given, given[4], &message) ||
        (wanted_section = number_of(given[2], FOOTER)) < 0) {
        return NULL;
    }
    if (!PyDict_Check(given[3])) {
        PyErr_SetString(PyExc_TypeError, "picked takes a dict");
        return NULL;
    }
    struct items items;
    if (!items_in(&message, (int)wanted_section, MAP8, &items)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    PyObject *found = PyDict_New();
    int done = found == NULL ? -1 : pick(found, given[3], message.data, items, given[4]);
    if (done == 1) {
        return found;
    }
    Py_XDECREF(found);
    return done == 0 ? Py_NewRef(Py_NotImplemented) : NULL;
}

/* properties_field(data, start, position, classes): its value, None if it is absent, or NotImplemented */
PyObject *
fields_properties_field(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    struct message message;
    long long position;
    if (!takes(count, 4, "properties_field") || !message_of(given, given[3], &message) ||
        (position = number_of(given[2], UINT8_MAX)) < 0) {
        return NULL;
    }
    struct items items;
    if (!items_in(&message, PROPERTIES, LIST8, &items)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    if (items.count <= position) {
        Py_RETURN_NONE;
    }
    while (position-- > 0 && items.at >= 0) {
        items.at = behind(message.data, items.at, items.end);
    }
    Py_ssize_t following = items.at < 0 ? UNUSUAL : behind(message.data, items.at, items.end);
    if (following < 0) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    return value_of(message.data, items.at, following, given[3]);
}
