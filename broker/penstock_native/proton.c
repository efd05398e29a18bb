/* penstock_native.proton: the functions of proton's engine without cffi, the batches of batches.c,
 * and output.c.
 *
 * Each function has the name and the arguments that it has in C. Pointers are integers; NULL is 0 as a result, and is
 * not taken as an argument. A call costs about 30 ns where one through cffi costs 45, because the interpreter's lock is
 * not given up: nothing here waits, but what frees a connection.
 */

#include "modules.h"
#include "pointers.h"
#include "sent.h"

#include <dlfcn.h>

#include "proton_functions.h"

struct proton_functions proton;

static PyObject *
load(PyObject *Py_UNUSED(module), PyObject *path)
{
    struct proton_functions found;
    const char *name = PyUnicode_AsUTF8(path);
    if (name == NULL) {
        return NULL;
    }
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        PyErr_Format(PyExc_ImportError, "proton's library can't be opened: %s", dlerror());
        return NULL;
    }
#define FIND(result, name, arguments) \
    *(void **)&found.name = dlsym(library, #name); \
    if (found.name == NULL) { \
        PyErr_SetString(PyExc_ImportError, "proton's library has no function " #name); \
        dlclose(library); \
        return NULL; \
    }
    PROTON_ALL(FIND)
    proton = found;
    Py_RETURN_NONE;
}

#define MAKER(result, name, arguments) \
    static PyObject *call_##name(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none)) \
    { \
        return PyLong_FromVoidPtr(proton.name()); \
    }
PROTON_MAKERS(MAKER)

/* A function of one object. */
#define OF_OBJECT(name) \
    static PyObject *call_##name(PyObject *Py_UNUSED(module), PyObject *object) \
    { \
        void *pointer = pointer_of(object); \
        if (pointer == NULL) { \
            return NULL; \
        }

#define PART(result, name, arguments) \
    OF_OBJECT(name) \
        return PyLong_FromVoidPtr(proton.name(pointer)); \
    }
PROTON_PARTS(PART)

#define ACT(result, name, arguments) \
    OF_OBJECT(name) \
        proton.name(pointer); \
        Py_RETURN_NONE; \
    }
PROTON_ACTS(ACT)

#define RELEASE(result, name, arguments) \
    OF_OBJECT(name) \
        Py_BEGIN_ALLOW_THREADS \
        proton.name(pointer); \
        Py_END_ALLOW_THREADS \
        Py_RETURN_NONE; \
    }
PROTON_RELEASES(RELEASE)

#define NUMBER(result, name, arguments) \
    OF_OBJECT(name) \
        result number = proton.name(pointer); \
        return (result)-1 > 0 ? PyLong_FromUnsignedLongLong((unsigned long long)number) \
                              : PyLong_FromLongLong((long long)number); \
    }
PROTON_NUMBERS(NUMBER)

#define TRUTH(result, name, arguments) \
    OF_OBJECT(name) \
        return PyBool_FromLong(proton.name(pointer)); \
    }
PROTON_TRUTHS(TRUTH)

#define TEXT(result, name, arguments) \
    OF_OBJECT(name) \
        const char *text = proton.name(pointer); \
        return PyBytes_FromString(text == NULL ? "" : text); \
    }
PROTON_TEXTS(TEXT)

/* An argument whose type has other numbers is refused, as cffi refuses it: C would take a part of its bits. */
#define SECOND(first, second) second
#define SETTER_BEGIN(name, arguments) \
    static PyObject *call_##name(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count) \
    { \
        void *pointer; \
        if (!takes(count, 2, #name) || (pointer = pointer_of(given[0])) == NULL) { \
            return NULL; \
        } \
        long long number = PyLong_AsLongLong(given[1]); \
        if (number == -1 && PyErr_Occurred()) { \
            return NULL; \
        } \
        if ((long long)(SECOND arguments)number != number || ((SECOND arguments)-1 > 0 && number < 0)) { \
            PyErr_Format(PyExc_OverflowError, #name " does not take the number %lld", number); \
            return NULL; \
        }
#define SETTER(result, name, arguments) \
    SETTER_BEGIN(name, arguments) \
        proton.name(pointer, (SECOND arguments)number); \
        Py_RETURN_NONE; \
    }
PROTON_SETTERS(SETTER)

#define ANSWERING_SETTER(result, name, arguments) \
    SETTER_BEGIN(name, arguments) \
        return PyLong_FromLongLong(proton.name(pointer, (SECOND arguments)number)); \
    }
PROTON_ANSWERING_SETTERS(ANSWERING_SETTER)

#define NAMING_BEGIN(name) \
    static PyObject *call_##name(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count) \
    { \
        void *pointer; \
        char *text; \
        if (!takes(count, 2, #name) || (pointer = pointer_of(given[0])) == NULL) { \
            return NULL; \
        } \
        if (PyBytes_AsStringAndSize(given[1], &text, NULL) < 0) { \
            return NULL; \
        }
#define NAMING(result, name, arguments) \
    NAMING_BEGIN(name) \
        return PyLong_FromLong(proton.name(pointer, text)); \
    }
PROTON_NAMINGS(NAMING)

NAMING_BEGIN(pn_connection_set_container)
    proton.pn_connection_set_container(pointer, text);
    Py_RETURN_NONE;
}

/* The first `size` bytes of a buffer; -1 with an exception if it has fewer. */
static Py_ssize_t
view_of(PyObject *given, PyObject *size, Py_buffer *view, int flags)
{
    Py_ssize_t wanted = PyLong_AsSsize_t(size);
    if (wanted == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (PyObject_GetBuffer(given, view, flags) < 0) {
        return -1;
    }
    if (wanted < 0 || wanted > view->len) {
        PyErr_Format(PyExc_ValueError, "a buffer of %zd bytes has no first %zd bytes", view->len, wanted);
        PyBuffer_Release(view);
        return -1;
    }
    return wanted;
}

#define BUFFERED(name, flags) \
    static PyObject *call_##name(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count) \
    { \
        void *pointer; \
        Py_buffer view; \
        Py_ssize_t size; \
        if (!takes(count, 3, #name) || (pointer = pointer_of(given[0])) == NULL || \
            (size = view_of(given[1], given[2], &view, flags)) < 0) { \
            return NULL; \
        } \
        ssize_t done = proton.name(pointer, view.buf, (size_t)size); \
        PyBuffer_Release(&view); \
        return PyLong_FromSsize_t(done); \
    }
#define READER(result, name, arguments) BUFFERED(name, PyBUF_SIMPLE)
PROTON_READERS(READER)
#define WRITER(result, name, arguments) BUFFERED(name, PyBUF_WRITABLE)
PROTON_WRITERS(WRITER)

/* A function of two objects. */
#define OF_TWO(name) \
    static PyObject *call_##name(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count) \
    { \
        void *first, *second; \
        if (!takes(count, 2, #name) || (first = pointer_of(given[0])) == NULL || \
            (second = pointer_of(given[1])) == NULL) { \
            return NULL; \
        }

OF_TWO(pn_connection_collect)
    proton.pn_connection_collect(first, second);
    Py_RETURN_NONE;
}

OF_TWO(pn_transport_bind)
    return PyLong_FromLong(proton.pn_transport_bind(first, second));
}

/* pn_delivery(link, tag): the tag is bytes. */
static PyObject *
call_pn_delivery(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    void *link;
    Py_buffer tag;
    if (!takes(count, 2, "pn_delivery") || (link = pointer_of(given[0])) == NULL ||
        PyObject_GetBuffer(given[1], &tag, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    void *delivery = proton.pn_delivery(link, (proton_bytes){(size_t)tag.len, tag.buf});
    PyBuffer_Release(&tag);
    return PyLong_FromVoidPtr(delivery);
}

OF_OBJECT(pn_delivery_tag)
    proton_bytes tag = proton.pn_delivery_tag(pointer);
    return PyBytes_FromStringAndSize(tag.size ? tag.start : "", (Py_ssize_t)tag.size);
}

#define ONE(result, name, arguments) {#name, call_##name, METH_O, NULL},
#define NONE(result, name, arguments) {#name, call_##name, METH_NOARGS, NULL},
#define MANY(result, name, arguments) {#name, FAST(call_##name), METH_FASTCALL, NULL},

static PyMethodDef methods[] = {
    {"load", load, METH_O, NULL},
    {"use", FAST(batches_use), METH_FASTCALL, NULL},
    {"drain", FAST(batches_drain), METH_FASTCALL, NULL},
    {"push_plain", FAST(input_push_plain), METH_FASTCALL, NULL},
    {"read_plain", FAST(input_read_plain), METH_FASTCALL, NULL},
    {"read_together", FAST(input_read_together), METH_FASTCALL, NULL},
    {"send", FAST(deliveries_send), METH_FASTCALL, NULL},
    {"accept", deliveries_accept, METH_O, NULL},
    {"settle", deliveries_settle, METH_O, NULL},
    {"any_in_state", FAST(deliveries_any_in_state), METH_FASTCALL, NULL},
    {"output", FAST(output_fill), METH_FASTCALL, NULL},
    {"pop_event", output_pop_event, METH_O, NULL},
    {"send_output", FAST(output_send), METH_FASTCALL, NULL},
    {"send_outputs", FAST(output_send_all), METH_FASTCALL, NULL},
    PROTON_MAKERS(NONE) PROTON_PARTS(ONE) PROTON_ACTS(ONE) PROTON_RELEASES(ONE) PROTON_NUMBERS(ONE)
    PROTON_TRUTHS(ONE) PROTON_TEXTS(ONE) PROTON_SETTERS(MANY) PROTON_ANSWERING_SETTERS(MANY) PROTON_NAMINGS(MANY)
    PROTON_READERS(MANY) PROTON_WRITERS(MANY)
    MANY(, pn_connection_collect, ) MANY(, pn_transport_bind, ) MANY(, pn_connection_set_container, )
    MANY(, pn_delivery, ) ONE(, pn_delivery_tag, )
    END_OF_METHODS,
};

static struct PyModuleDef definition = MODULE("proton", "Proton's engine");

PyMODINIT_FUNC
PyInit_proton(void)
{
    if (batches_prepare() < 0 || PyType_Ready(&sent_type) < 0) {
        return NULL;
    }
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && PyModule_AddObjectRef(module, "Sent", (PyObject *)&sent_type) < 0) {
        Py_CLEAR(module);
    }
    return module;
}
