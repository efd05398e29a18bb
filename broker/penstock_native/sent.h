/* The deliveries that an engine has sent and that are not settled: sent.c. */

#ifndef PENSTOCK_SENT_H
#define PENSTOCK_SENT_H

#include "numbers.h"

typedef struct sent sent_t;

/* The object as what it is; NULL with an exception if it is something else. */
extern sent_t *sent_of(PyObject *);

/* Note a delivery, as the tuple of three fields that it is when it is asked for, or, if there is no second one, as the
 * first. */
extern bool sent_add(sent_t *, void *delivery, PyObject *first, PyObject *second, PyObject *third);

/* What was noted of a delivery, which is forgotten; NULL: nothing, if there is no exception. */
extern PyObject *sent_take(sent_t *, void *delivery);

/* Note again what was taken, while an exception is on its way; the reference to `held` is given up. */
extern void sent_put_back(sent_t *, void *delivery, PyObject *held);

extern PyTypeObject sent_type;

#endif
