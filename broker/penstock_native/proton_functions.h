/* The functions of proton 0.40 that are called, by the kind of their arguments and results.
 *
 * They are taken from the library that the Python package of proton brings (`cproton_ffi`), when the module is given
 * its path: nothing is linked against, and no header of proton is needed. Prototypes: proton/c/include/proton.
 *
 * X(result, name, (arguments))
 */

#ifndef PENSTOCK_PROTON_FUNCTIONS_H
#define PENSTOCK_PROTON_FUNCTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* `pn_bytes_t`, which is also a delivery-tag. */
typedef struct {
    size_t size;
    const char *start;
} proton_bytes;

/* Objects without arguments. */
#define PROTON_MAKERS(X) \
    X(void *, pn_collector, (void)) \
    X(void *, pn_transport, (void)) \
    X(void *, pn_connection, (void))

/* From an object to an object that belongs to it. */
#define PROTON_PARTS(X) \
    X(void *, pn_collector_peek, (void *)) \
    X(void *, pn_event_delivery, (void *)) \
    X(void *, pn_event_link, (void *)) \
    X(void *, pn_event_session, (void *)) \
    X(void *, pn_transport_condition, (void *)) \
    X(void *, pn_connection_condition, (void *)) \
    X(void *, pn_connection_remote_condition, (void *)) \
    X(void *, pn_connection_remote_properties, (void *)) \
    X(void *, pn_connection_remote_desired_capabilities, (void *)) \
    X(void *, pn_connection_offered_capabilities, (void *)) \
    X(void *, pn_connection_properties, (void *)) \
    X(void *, pn_incref, (void *)) \
    X(void *, pn_link_session, (void *)) \
    X(void *, pn_link_current, (void *)) \
    X(void *, pn_link_condition, (void *)) \
    X(void *, pn_link_remote_condition, (void *)) \
    X(void *, pn_link_source, (void *)) \
    X(void *, pn_link_target, (void *)) \
    X(void *, pn_terminus_capabilities, (void *)) \
    X(void *, pn_terminus_filter, (void *)) \
    X(void *, pn_terminus_outcomes, (void *)) \
    X(void *, pn_terminus_properties, (void *)) \
    X(void *, pn_delivery_link, (void *)) \
    X(void *, pn_delivery_local, (void *)) \
    X(void *, pn_delivery_remote, (void *)) \
    X(void *, pn_disposition_data, (void *)) \
    X(void *, pn_disposition_condition, (void *)) \
    X(void *, pn_disposition_annotations, (void *)) \
    X(void *, pn_condition_info, (void *))

/* What is done to an object, quickly. */
#define PROTON_ACTS(X) \
    X(void, pn_transport_set_server, (void *)) \
    X(void, pn_connection_open, (void *)) \
    X(void, pn_connection_close, (void *)) \
    X(void, pn_session_open, (void *)) \
    X(void, pn_session_close, (void *)) \
    X(void, pn_session_free, (void *)) \
    X(void, pn_link_open, (void *)) \
    X(void, pn_link_close, (void *)) \
    X(void, pn_link_detach, (void *)) \
    X(void, pn_link_free, (void *)) \
    X(void, pn_delivery_settle, (void *)) \
    X(void, pn_delivery_abort, (void *)) \
    X(void, pn_condition_clear, (void *)) \
    X(void, pn_data_clear, (void *)) \
    X(void, pn_data_rewind, (void *))

/* What frees a connection: it may take milliseconds, so other threads go on meanwhile. */
#define PROTON_RELEASES(X) \
    X(void, pn_collector_release, (void *)) \
    X(void, pn_collector_free, (void *)) \
    X(void, pn_connection_release, (void *)) \
    X(int, pn_transport_unbind, (void *)) \
    X(int, pn_decref, (void *))

/* Numbers and truths of an object. */
#define PROTON_NUMBERS(X) \
    X(ssize_t, pn_transport_capacity, (void *)) \
    X(uint32_t, pn_transport_get_remote_max_frame, (void *)) \
    X(size_t, pn_session_incoming_bytes, (void *)) \
    X(size_t, pn_session_outgoing_bytes, (void *)) \
    X(int, pn_link_credit, (void *)) \
    X(int, pn_link_queued, (void *)) \
    X(int, pn_link_unsettled, (void *)) \
    X(int, pn_link_drained, (void *)) \
    X(uint64_t, pn_delivery_remote_state, (void *)) \
    X(size_t, pn_delivery_pending, (void *)) \
    X(int, pn_event_type, (void *)) \
    X(int, pn_session_state, (void *)) \
    X(ssize_t, pn_data_encoded_size, (void *))

#define PROTON_TRUTHS(X) \
    X(bool, pn_collector_pop, (void *)) \
    X(bool, pn_link_is_sender, (void *)) \
    X(bool, pn_link_get_drain, (void *)) \
    X(bool, pn_link_advance, (void *)) \
    X(bool, pn_delivery_readable, (void *)) \
    X(bool, pn_delivery_partial, (void *)) \
    X(bool, pn_delivery_aborted, (void *)) \
    X(bool, pn_delivery_settled, (void *)) \
    X(bool, pn_disposition_is_failed, (void *)) \
    X(bool, pn_disposition_is_undeliverable, (void *)) \
    X(bool, pn_condition_is_set, (void *))

/* Names. */
#define PROTON_TEXTS(X) \
    X(const char *, pn_connection_remote_container, (void *)) \
    X(const char *, pn_connection_remote_hostname, (void *)) \
    X(const char *, pn_link_name, (void *)) \
    X(const char *, pn_condition_get_name, (void *)) \
    X(const char *, pn_condition_get_description, (void *))

/* An object is given a number; the type of the number is that of the argument. */
#define PROTON_SETTERS(X) \
    X(void, pn_transport_require_auth, (void *, bool)) \
    X(void, pn_transport_set_max_frame, (void *, uint32_t)) \
    X(void, pn_transport_set_idle_timeout, (void *, uint32_t)) \
    X(void, pn_transport_pop, (void *, size_t)) \
    X(void, pn_session_set_incoming_capacity, (void *, size_t)) \
    X(void, pn_link_flow, (void *, int)) \
    X(void, pn_link_set_max_message_size, (void *, uint64_t)) \
    X(void, pn_link_set_snd_settle_mode, (void *, int)) \
    X(void, pn_link_set_rcv_settle_mode, (void *, int)) \
    X(void, pn_delivery_update, (void *, uint64_t)) \
    X(void, pn_disposition_set_failed, (void *, bool)) \
    X(void, pn_disposition_set_undeliverable, (void *, bool))

#define PROTON_ANSWERING_SETTERS(X) \
    X(int, pn_transport_set_channel_max, (void *, uint16_t)) \
    X(int64_t, pn_transport_tick, (void *, int64_t)) \
    X(int, pn_terminus_set_type, (void *, int)) \
    X(int, pn_terminus_set_durability, (void *, int)) \
    X(int, pn_terminus_set_expiry_policy, (void *, int)) \
    X(int, pn_terminus_set_timeout, (void *, uint32_t)) \
    X(int, pn_terminus_set_dynamic, (void *, bool)) \
    X(int, pn_terminus_set_distribution_mode, (void *, int))

/* An object is given a text. */
#define PROTON_NAMINGS(X) \
    X(int, pn_terminus_set_address, (void *, const char *)) \
    X(int, pn_condition_set_name, (void *, const char *)) \
    X(int, pn_condition_set_description, (void *, const char *))

/* Bytes that proton reads, or writes to. */
#define PROTON_READERS(X) \
    X(ssize_t, pn_transport_push, (void *, const char *, size_t)) \
    X(ssize_t, pn_link_send, (void *, const char *, size_t)) \
    X(ssize_t, pn_data_decode, (void *, const char *, size_t))

#define PROTON_WRITERS(X) \
    X(ssize_t, pn_transport_peek, (void *, char *, size_t)) \
    X(ssize_t, pn_link_recv, (void *, char *, size_t)) \
    X(ssize_t, pn_data_encode, (void *, char *, size_t))

/* Those that are wrapped one by one. */
#define PROTON_OTHERS(X) \
    X(ssize_t, pn_transport_pending, (void *)) \
    X(const char *, pn_transport_head, (void *)) \
    X(void, pn_connection_collect, (void *, void *)) \
    X(int, pn_transport_bind, (void *, void *)) \
    X(void, pn_connection_set_container, (void *, const char *)) \
    X(void *, pn_delivery, (void *, proton_bytes)) \
    X(proton_bytes, pn_delivery_tag, (void *))

#define PROTON_ALL(X) \
    PROTON_MAKERS(X) PROTON_PARTS(X) PROTON_ACTS(X) PROTON_RELEASES(X) PROTON_NUMBERS(X) PROTON_TRUTHS(X) \
    PROTON_TEXTS(X) PROTON_SETTERS(X) PROTON_ANSWERING_SETTERS(X) PROTON_NAMINGS(X) PROTON_READERS(X) \
    PROTON_WRITERS(X) PROTON_OTHERS(X)

/* The functions themselves, once `load` has found them. */
#define PROTON_FIELD(result, name, arguments) result(*name) arguments;
struct proton_functions {
    PROTON_ALL(PROTON_FIELD)
};
extern struct proton_functions proton;

#endif
