/* Callgrind's client requests, for counted_run.py: they are instructions, which Python can't write. */
#include <valgrind/callgrind.h>

void start(void) { CALLGRIND_START_INSTRUMENTATION; }
void stop(void) { CALLGRIND_STOP_INSTRUMENTATION; }

/* Instructions are added up between one call and the next. */
void toggle(void) { CALLGRIND_TOGGLE_COLLECT; }
