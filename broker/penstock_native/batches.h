/* What batches.c, deliveries.c, input.c and output.c share. */

#ifndef PENSTOCK_BATCHES_H
#define PENSTOCK_BATCHES_H

#include "pointers.h"
#include "sent.h"

#include <stdbool.h>

/* What a connection's deliveries are looked up in, and where its events go. */
struct reading {
    void *collector;
    sent_t *unsettled;
    PyObject *receivers, *aside, *unconfirmed, *out;
    bool is_heavy; /* a message came that costs as much as a frame of another kind */
};

enum { READING_ARGUMENTS = 6 };

enum { ACCEPTED = 0x24, TRANSACTIONAL = 0x34 }; /* AMQP 1.0 part 3, 3.4.2; part 4, 4.5.6 */

/* By what a plain socket is read and written: a tuple of its descriptor, the engine's transport and collector, the
 * bodies of output.c, what else `reading` has, and an object of the caller's. The references are borrowed. */
struct line {
    int descriptor;
    void *transport, *collector;
    PyObject *bodies;
};

enum { LINE_READING_AT = 4, LINE_FIELDS = 9 };

/* The fields of an event that is a run. */
enum { EVENT_KIND = 0, EVENT_LINK = 1, EVENT_BATCH = 2 };

/* Four bytes of a frame as a number. */
static inline uint32_t
big_endian(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* batches.c */
extern PyObject *messages_kind; /* EventKind.MESSAGES */
extern bool reading_of(PyObject *const *, struct reading *);
extern PyObject *drain(struct reading *);
extern bool is_one_run(PyObject *);
extern int transport_error; /* the type of event that `output` leaves in place */

/* input.c */
extern bool line_of(PyObject *, struct line *);

/* output.c */
extern void pop_event(void *collector, void *event);
extern Py_ssize_t keep_body(PyObject *, uint32_t, PyObject *);

#endif
