/* A connection of hack/benching/load.c: its bytes, with TLS or without, and its login. */
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "open_ssl.h"

typedef struct {
    int fd, number;
    bool sends, greeted, attached, blocked;
    void *tls;
    Buffer in, out;
    uint32_t next_outgoing, remote_window, next_incoming; /* the session */
    uint32_t delivery_count, credit, unanswered;          /* the link */
    uint32_t used, first, unsettled;                      /* a consumer's: credit used up; deliveries to be accepted */
    int64_t sent_at;
} Peer;

static bool closing; /* a connection that ends is none that is lost */

/* As read and write: how many bytes, -1 if none for the moment; a connection that is lost ends the program. */
static ssize_t transport(Peer *peer, bool writes, void *data, size_t size) {
    ssize_t done;
    if (peer->tls) {
        done = writes ? tls_write(peer->tls, data, (int)size) : tls_read(peer->tls, data, (int)size);
        int error = done > 0 ? 0 : tls_error(peer->tls, (int)done);
        if (error == 2 || error == 3) return -1; /* SSL_ERROR_WANT_READ, SSL_ERROR_WANT_WRITE */
    } else {
        done = writes ? write(peer->fd, data, size) : read(peer->fd, data, size);
        if (done < 0 && errno == EAGAIN) return -1;
    }
    if (done <= 0 && closing) {
        peer->attached = false;
        return -1;
    }
    if (done <= 0) fail("the connection of %s %d is lost", peer->sends ? "producer" : "consumer", peer->number);
    return done;
}

static void read_exactly(Peer *peer, uint8_t *into, size_t size) {
    while (size) {
        ssize_t done = transport(peer, false, into, size);
        into += done;
        size -= (size_t)done;
    }
}

static void log_in(Peer *peer) {
    char response[256];
    int length = 0;
    if (options.user) length = snprintf(response, sizeof response, "%c%s%c%s", 0, options.user, 0, options.password);
    put(&peer->out, "AMQP\3\1\0\0", 8);
    size_t frame = put_frame(&peer->out, 1, SASL_INIT);
    put_text(&peer->out, SYMBOL, options.user ? "PLAIN" : "ANONYMOUS");
    put(&peer->out, (uint8_t[]){0xa0, (uint8_t)length}, 2);
    put(&peer->out, response, (size_t)length);
    put_frame_end(&peer->out, frame, 2);
    transport(peer, true, peer->out.at, peer->out.end);
    peer->out.end = 0;
    uint8_t data[4096];
    read_exactly(peer, data, 8);
    if (memcmp(data, "AMQP\3", 5)) fail("the broker does not speak SASL");
    do {
        const uint8_t *fields[FIELDS];
        read_exactly(peer, data, 4);
        if (get_32(data) > sizeof data) fail("a SASL frame is too large");
        read_exactly(peer, data + 4, get_32(data) - 4);
        get_fields(data + 8, fields);
        if (data[10] == SASL_OUTCOME && get_uint(fields[0], 1)) fail("the broker refused the login");
    } while (data[10] != SASL_OUTCOME);
}

static void flush(int poll, Peer *peer) {
    bool blocked = false;
    while (!blocked && peer->out.start < peer->out.end) {
        ssize_t done = transport(peer, true, peer->out.at + peer->out.start, peer->out.end - peer->out.start);
        blocked = done < 0;
        if (!blocked) peer->out.start += (size_t)done;
    }
    if (!blocked) peer->out.start = peer->out.end = 0;
    if (blocked != peer->blocked) {
        struct epoll_event event = {EPOLLIN | (blocked ? EPOLLOUT : 0), {.ptr = peer}};
        epoll_ctl(poll, EPOLL_CTL_MOD, peer->fd, &event);
        peer->blocked = blocked;
    }
}
