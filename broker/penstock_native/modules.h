/* What every compiled module ends with: its table of functions, and what Python makes the module of. */

#ifndef PENSTOCK_MODULES_H
#define PENSTOCK_MODULES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* A function with METH_FASTCALL as the table wants it. */
#define FAST(function) ((PyCFunction)(void (*)(void))(function))

#define END_OF_METHODS {NULL, NULL, 0, NULL}

/* The module `name`, which does what `about` says; its functions are in `methods`. */
#define MODULE(name, about)                                                                                            \
    {                                                                                                                  \
        PyModuleDef_HEAD_INIT, "penstock_native." name, about ": see " name ".pyi.", -1, methods, NULL, NULL, NULL,    \
            NULL,                                                                                                      \
    }

#endif
