/* The client of the benchmarks: producers and consumers of AMQP 1.0 in one process, one epoll loop and no library.
 *
 *     load KEY=VALUE...        the keys are those of `struct Options`; what is measured is printed as JSON
 *
 * Frames are encoded by hand, so that a message costs this client a fraction of what it costs any broker. Each producer
 * and consumer has a connection, a session and a link of its own. Once all are attached the load runs for `warmup`
 * seconds unmeasured and for `seconds` measured (`window`). Then nothing more is sent, and what is under way is waited
 * for; `whole` goes from the first message to the last one accepted and received.
 *
 * rate=0 is a closed loop: a producer sends as long as it has credit and fewer than `window` messages unanswered.
 * rate=N is an open loop: message number k is due k/N seconds after the start whatever the broker does, and carries
 * that moment, from which its latency is counted. A broker that stalls is charged for every message that became due
 * while it did (no coordinated omission); what is still to be sent when the time is over is sent then.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "amqp_frames.h"
#include "histogram.h"
#include "load_options.h"
#include "load_socket.h"

enum { MAX_FRAME = 65536, HELD_BACK = 1 << 17 };
static const uint32_t WIDE_OPEN = 0x7fffffff; /* a session window that never limits */
static const double ATTACH_SECONDS = 60, HEARTBEAT_SECONDS = 5, OVERTIME_SECONDS = 2;

static Peer *peers;
static int peer_count, sender_count;
static Histogram latencies, lateness, answers;
static uint64_t sent, accepted, received, refused, earlier;
static int64_t started_at, measured_from = INT64_MAX, measured_to = INT64_MAX;
static double rate;
static int64_t patience;
static uint32_t window, granted, body_size;
static bool settled;
static Buffer transfer; /* one encoded, but for its delivery id, tag and stamp */
static size_t id_at, tag_at, stamp_at;

static int64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

/* ---- what is sent ---- */

static void put_attach(Peer *peer) {
    Buffer *out = &peer->out;
    const char *name = numbered(peer->sends ? "to-%d" : options.name, peer->number);
    const char *selector = peer->number && options.others ? options.others : options.selector;
    size_t frame = put_frame(out, 0, ATTACH), part;
    put_text(out, STRING, name);
    put_uint(out, 0);
    put_byte(out, peer->sends ? FALSE_ : TRUE_);
    put(out, (uint8_t[]){0x50, peer->sends && settled}, 2);
    put(out, (uint8_t[]){0x50, 0}, 2);
    part = put_list(out, SOURCE);
    put_text(out, STRING, peer->sends ? name : numbered(options.from, peer->number));
    bool lasting = !peer->sends && atoi(options.lasting);
    put_uint(out, lasting ? 2 : 0);
    put_text(out, SYMBOL, lasting ? "never" : NULL);
    put_nulls(out, 4);
    if (!peer->sends && selector) {
        static const char *filter = "apache.org:selector-filter:string";
        selector = numbered(selector, peer->number);
        put(out, (uint8_t[]){0xc1, (uint8_t)(1 + 2 + strlen(filter) + 10 + 2 + strlen(selector)), 2}, 3);
        put_text(out, SYMBOL, filter);
        put(out, "\0\x80\0\0\x46\x8c\0\0\0\x04", 10);
        put_text(out, STRING, selector);
    } else put_byte(out, NONE);
    put_nulls(out, 2);
    put_symbols(out, peer->sends ? "" : options.fromcap);
    put_list_end(out, part, 11);
    part = put_list(out, TARGET);
    put_text(out, STRING, peer->sends ? numbered(options.to, peer->number) : name);
    put_nulls(out, 5);
    put_symbols(out, peer->sends ? options.tocap : "");
    put_list_end(out, part, 7);
    put_nulls(out, 2);
    if (peer->sends) put_uint(out, 0);
    put_frame_end(out, frame, peer->sends ? 10 : 9);
}

static void put_flow(Peer *peer) {
    size_t frame = put_frame(&peer->out, 0, FLOW);
    put_uint(&peer->out, peer->next_incoming);
    put_uint(&peer->out, WIDE_OPEN);
    put_uint(&peer->out, peer->next_outgoing);
    put_uint(&peer->out, WIDE_OPEN);
    if (!peer->sends) {
        put_uint(&peer->out, 0);
        put_uint(&peer->out, peer->delivery_count);
        put_uint(&peer->out, granted);
    }
    put_frame_end(&peer->out, frame, peer->sends ? 4 : 7);
    peer->used = 0;
}

static void put_accepts(Peer *peer) {
    size_t frame = put_frame(&peer->out, 0, DISPOSITION);
    put_byte(&peer->out, TRUE_);
    put_uint(&peer->out, peer->first);
    put_uint(&peer->out, peer->first + peer->unsettled - 1);
    put_byte(&peer->out, TRUE_);
    put(&peer->out, (uint8_t[]){0, 0x53, ACCEPTED, 0x45}, 4);
    put_frame_end(&peer->out, frame, 5);
    peer->unsettled = 0;
}

/* {"colour": "red", "number": 12345678} as application properties, and one data section. */
static void make_transfer(void) {
    static const char properties[] = "\0\x53\x74\xc1\x1b\x04"
                                     "\xa1\x06" "colour" "\xa1\x03" "red" "\xa1\x06" "number" "\x71\0\xbc\x61\x4e";
    size_t frame = put_frame(&transfer, 0, TRANSFER);
    put_byte(&transfer, 0x43);
    put_uint(&transfer, 0);
    id_at = transfer.end - 4;
    put(&transfer, (uint8_t[]){0xa0, 4, 0, 0, 0, 0, 0x43, settled ? TRUE_ : FALSE_}, 8);
    tag_at = transfer.end - 6;
    put_list_end(&transfer, frame, 5);
    if (atoi(options.durable)) put(&transfer, (uint8_t[]){0, 0x53, 0x70, 0xc0, 2, 1, TRUE_}, 7);
    put(&transfer, properties, sizeof properties - 1);
    put(&transfer, (uint8_t[]){0, 0x53, 0x75, 0xb0}, 4);
    put_32(reserve(&transfer, 4 + body_size), body_size);
    stamp_at = transfer.end += 4;
    memset(transfer.at + transfer.end, 'x', body_size);
    transfer.end += body_size;
    put_32(transfer.at, (uint32_t)transfer.end);
}

static void refuse(const Peer *peer, const char *what, const uint8_t *from, const uint8_t *to) {
    fprintf(stderr, "the broker sent %s to %s %d:", what, peer->sends ? "producer" : "consumer", peer->number);
    for (; from < to; from++) fputc(*from >= 32 && *from < 127 ? *from : ' ', stderr);
    fail("");
}

/* ---- what arrives ---- */

static void on_transfer(Peer *peer, const uint8_t **fields, const uint8_t *end, int64_t now) {
    peer->next_incoming++;
    if (*fields[1] != NONE && !get_bool(fields[4])) {
        uint32_t id = get_uint(fields[1], 0);
        if (peer->unsettled && id != peer->first + peer->unsettled) put_accepts(peer);
        if (!peer->unsettled) peer->first = id;
        peer->unsettled++;
    }
    if (get_bool(fields[5])) return; /* more of this message follows */
    int64_t stamp;
    memcpy(&stamp, end - body_size, 8);
    peer->delivery_count++;
    peer->used++;
    if (stamp < started_at && sender_count) earlier++; /* of another run; who only receives takes them all */
    else received++;
    if (stamp >= measured_from && stamp < measured_to) count(&latencies, now - stamp);
}

static void on_disposition(Peer *peer, const uint8_t **fields, int64_t now) {
    uint32_t first = get_uint(fields[1], 0), number = get_uint(fields[2], first) - first + 1;
    const uint8_t *state = fields[4];
    if (!get_bool(fields[0]) || *state == NONE) return; /* about deliveries to us, or without an outcome */
    if (after(state + 1)[-1] == ACCEPTED) accepted += number;
    else refused += number;
    peer->unanswered -= number;
    if (window == 1 && peer->sent_at >= measured_from) count(&answers, now - peer->sent_at);
}

static void on_frame(Peer *peer, const uint8_t *frame, uint32_t size, int64_t now) {
    const uint8_t *fields[FIELDS], *body = frame + 4 * frame[4], *end = frame + size;
    if (body == end) return; /* a heartbeat */
    const uint8_t *rest = get_fields(body, fields);
    switch (after(body + 1)[-1]) {
    case OPEN:
        if (peer->sends && transfer.end > get_uint(fields[2], UINT32_MAX)) fail("the broker's frames are too small");
        break;
    case BEGIN:
        peer->next_incoming = get_uint(fields[1], 0);
        peer->remote_window = get_uint(fields[2], 0);
        break;
    case ATTACH:
        peer->attached = true;
        if (!peer->sends) {
            peer->delivery_count = get_uint(fields[9], 0);
            put_flow(peer);
        }
        break;
    case FLOW:
        peer->remote_window = get_uint(fields[0], 0) + get_uint(fields[1], 0) - peer->next_outgoing;
        if (peer->sends && *fields[4] != NONE)
            peer->credit = get_uint(fields[5], 0) + get_uint(fields[6], 0) - peer->delivery_count;
        if (get_bool(fields[9]) && peer->attached) put_flow(peer);
        break;
    case TRANSFER: on_transfer(peer, fields, end, now); break;
    case DISPOSITION: on_disposition(peer, fields, now); break;
    case DETACH: refuse(peer, "detach", body, end); break;
    case END: refuse(peer, "end", body, end); break;
    case CLOSE:
        if (!closing) refuse(peer, "close", body, rest);
        peer->attached = false;
        break;
    }
}

/* ---- the socket ---- */

static void connect_peer(Peer *peer, const struct addrinfo *address) {
    char container[128];
    peer->fd = socket(address->ai_family, SOCK_STREAM, 0);
    if (peer->fd < 0 || connect(peer->fd, address->ai_addr, address->ai_addrlen)) fail("connect: %s", strerror(errno));
    setsockopt(peer->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (atoi(options.tls)) peer->tls = new_tls(peer->fd);
    log_in(peer);
    if (options.container) snprintf(container, sizeof container, "%s", options.container);
    else snprintf(container, sizeof container, "load-%d-%d", getpid(), (int)(peer - peers));
    put(&peer->out, "AMQP\0\1\0\0", 8);
    size_t frame = put_frame(&peer->out, 0, OPEN);
    put_text(&peer->out, STRING, container);
    put_text(&peer->out, STRING, options.vhost);
    put_uint(&peer->out, MAX_FRAME);
    put_frame_end(&peer->out, frame, 3);
    frame = put_frame(&peer->out, 0, BEGIN);
    put_nulls(&peer->out, 1);
    put_uint(&peer->out, 0);
    put_uint(&peer->out, WIDE_OPEN);
    put_uint(&peer->out, WIDE_OPEN);
    put_frame_end(&peer->out, frame, 4);
    put_attach(peer);
    fcntl(peer->fd, F_SETFL, O_NONBLOCK);
}

static void take(Peer *peer) {
    Buffer *in = &peer->in;
    for (bool full = true; full;) {
        size_t room = 4 * MAX_FRAME;
        reserve(in, room);
        while (room) {
            ssize_t done = transport(peer, false, in->at + in->end, room);
            if (done < 0) break;
            in->end += (size_t)done;
            room -= (size_t)done;
            if (!peer->tls) break; /* the rest shows in the next turn; what TLS holds back would not */
        }
        full = peer->tls && !room;
        int64_t now = now_ns();
        if (!peer->greeted && in->end - in->start >= 8) {
            in->start += 8;
            peer->greeted = true;
        }
        while (peer->greeted && in->end - in->start >= 8) {
            uint32_t size = get_32(in->at + in->start);
            if (in->end - in->start < size) break;
            on_frame(peer, in->at + in->start, size, now);
            in->start += size;
        }
    }
    if (peer->unsettled) put_accepts(peer);
    if (peer->used * 2 >= granted) put_flow(peer);
}

static uint64_t due_until(int64_t moment) { return (uint64_t)((double)(moment - started_at) * rate / 1e9); }

/* Send what may be sent: what credit and window allow, of that which is due. */
static void send_more(Peer *peer, int64_t now) {
    uint64_t due = rate ? due_until(now < measured_to ? now : measured_to) : UINT64_MAX;
    while (sent < due && peer->credit && peer->remote_window && peer->unanswered < window &&
           peer->out.end - peer->out.start < HELD_BACK) {
        int64_t stamp = rate ? started_at + (int64_t)((double)sent * 1e9 / rate) : now;
        uint8_t *made = reserve(&peer->out, transfer.end);
        memcpy(made, transfer.at, transfer.end);
        put_32(made + id_at, peer->next_outgoing);
        put_32(made + tag_at, peer->next_outgoing);
        memcpy(made + stamp_at, &stamp, 8);
        peer->out.end += transfer.end;
        if (rate && stamp >= measured_from && stamp < measured_to) count(&lateness, now - stamp);
        peer->next_outgoing++;
        peer->delivery_count++;
        peer->credit--;
        peer->remote_window--;
        peer->unanswered += !settled;
        peer->sent_at = now;
        sent++;
    }
}

/* ---- the run ---- */

typedef struct { uint64_t accepted, received, sent; double broker, client, at; } Snapshot;

static Snapshot snapshot(int64_t now) {
    Snapshot taken = {accepted, received, sent, 0, 0, (double)now / 1e9};
    for (const char *pid = options.pids; *pid; pid += strcspn(pid, ","), pid += *pid == ',') {
        char path[64], line[1024] = "";
        unsigned long user = 0, kernel = 0;
        snprintf(path, sizeof path, "/proc/%d/stat", atoi(pid));
        FILE *file = fopen(path, "r");
        if (!file || !fgets(line, sizeof line, file)) fail("the broker's process %d is gone", atoi(pid));
        fclose(file);
        sscanf(strrchr(line, ')') + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &kernel);
        taken.broker += (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
    }
    struct rusage own;
    getrusage(RUSAGE_SELF, &own);
    taken.client = (double)(own.ru_utime.tv_sec + own.ru_stime.tv_sec) +
                   (double)(own.ru_utime.tv_usec + own.ru_stime.tv_usec) / 1e6;
    return taken;
}

static void print_part(const char *name, const Snapshot *from, const Snapshot *to) {
    printf("\"%s\": {\"seconds\": %.6f, \"sent\": %llu, \"accepted\": %llu, \"received\": %llu, \"broker_cpu\": %.3f, "
           "\"client_cpu\": %.6f}",
           name, to->at - from->at, (unsigned long long)(to->sent - from->sent),
           (unsigned long long)(to->accepted - from->accepted), (unsigned long long)(to->received - from->received),
           to->broker - from->broker, to->client - from->client);
}

static void turn(int poll, int timer, int64_t until, bool sending) {
    static int64_t beat;
    struct epoll_event events[256];
    int64_t left = (until - now_ns()) / 1000000 + 1;
    int found = epoll_wait(poll, events, 256, left < 0 ? 0 : left > 100 ? 100 : (int)left);
    int64_t now = now_ns();
    for (int at = 0; at < found; at++) {
        Peer *peer = events[at].data.ptr;
        if (!peer) {
            uint64_t expired;
            if (read(timer, &expired, 8) < 0) continue;
            for (int sender = 0; sending && sender < sender_count; sender++) {
                send_more(&peers[sender], now);
                flush(poll, &peers[sender]);
            }
            continue;
        }
        if (events[at].events & ~EPOLLOUT) take(peer);
        if (peer->sends && sending) send_more(peer, rate ? now : now_ns());
        flush(poll, peer);
    }
    if (now - beat > (int64_t)(HEARTBEAT_SECONDS * 1e9)) { /* no broker may take us for dead */
        beat = now;
        for (int at = 0; at < peer_count; at++) {
            if (peers[at].fd < 0) continue;
            put(&peers[at].out, (uint8_t[]){0, 0, 0, 8, 2, 0, 0, 0}, 8);
            flush(poll, &peers[at]);
        }
    }
}

/* A connection that is cut with bytes unread takes the last accepts with it: so the broker's close is waited for. */
static void close_all(int poll, int timer) {
    int left = peer_count;
    closing = true;
    for (int at = 0; at < peer_count; at++) {
        put_frame_end(&peers[at].out, put_frame(&peers[at].out, 0, CLOSE), 0);
        flush(poll, &peers[at]);
    }
    for (int64_t limit = now_ns() + patience; left && now_ns() < limit;) {
        turn(poll, timer, limit, false);
        for (int at = 0; at < peer_count; at++) {
            if (peers[at].attached || peers[at].fd < 0) continue;
            close(peers[at].fd);
            peers[at].fd = -1;
            left--;
        }
    }
}

static bool all_ready(void) {
    for (int at = 0; at < peer_count; at++)
        if (!peers[at].attached || (peers[at].sends && !peers[at].credit)) return false;
    return true;
}

static void prepare(void) {
    patience = (int64_t)(atof(options.patience) * 1e9);
    rate = atof(options.rate), window = (uint32_t)atoi(options.window), granted = (uint32_t)atoi(options.credit);
    body_size = (uint32_t)atoi(options.size), settled = atoi(options.settled);
    if (body_size < 8 || body_size > 30000) fail("size: 8 to 30000");
    if (!window || !granted) fail("window and credit: at least 1");
    make_transfer();
}

static void connect_all(int poll, int timer) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *address;
    if (getaddrinfo(options.host, options.port, &hints, &address)) fail("%s: no such host", options.host);
    sender_count = atoi(options.senders);
    peer_count = sender_count + atoi(options.receivers);
    peers = calloc((size_t)peer_count, sizeof *peers);
    for (int made = 0; made < peer_count; made++) { /* consumers first: a topic keeps nothing for those to come */
        int at = (made + sender_count) % peer_count;
        Peer *peer = &peers[at];
        peer->sends = at < sender_count;
        peer->number = peer->sends ? at : at - sender_count;
        connect_peer(peer, address);
        struct epoll_event event = {EPOLLIN, {.ptr = peer}};
        epoll_ctl(poll, EPOLL_CTL_ADD, peer->fd, &event);
        flush(poll, peer);
    }
    int64_t limit = now_ns() + (int64_t)(ATTACH_SECONDS * 1e9);
    while (!all_ready()) {
        if (now_ns() > limit) fail("the broker attached not all links, or gave no credit");
        turn(poll, timer, limit, false);
    }
}

/* Often enough that no message waits long for the timer, seldom enough to leave the processor alone. */
static void start_timer(int poll, int timer) {
    long step = 1e9 / rate > 50000 ? (long)(1e9 / rate) : 50000;
    struct timespec every = {step / 1000000000, step % 1000000000};
    struct itimerspec times = {every, every};
    struct epoll_event event = {EPOLLIN, {.ptr = NULL}};
    timerfd_settime(timer, 0, &times, NULL);
    epoll_ctl(poll, EPOLL_CTL_ADD, timer, &event);
}

static void await_the_rest(int poll, int timer, double copies) {
    int64_t overtime = measured_to + (int64_t)(OVERTIME_SECONDS * 1e9), limit = now_ns() + patience;
    while (rate && sent < due_until(measured_to) && now_ns() < overtime) turn(poll, timer, overtime, true);
    uint64_t before = received + accepted;
    while (((double)received < (double)sent * copies || (!settled && accepted + refused < sent)) && now_ns() < limit) {
        turn(poll, timer, limit, false);
        if (received + accepted != before) limit = now_ns() + patience;
        before = received + accepted;
    }
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    prepare();
    signal(SIGPIPE, SIG_IGN);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    int poll = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    connect_all(poll, timer);
    Snapshot begun = snapshot(started_at = now_ns());
    measured_from = started_at + (int64_t)(atof(options.warmup) * 1e9);
    measured_to = measured_from + (int64_t)(atof(options.seconds) * 1e9);
    if (rate) start_timer(poll, timer);
    for (int at = 0; at < sender_count; at++) {
        send_more(&peers[at], now_ns());
        flush(poll, &peers[at]);
    }
    while (now_ns() < measured_from) turn(poll, timer, measured_from, true);
    Snapshot from = snapshot(now_ns());
    while (now_ns() < measured_to) turn(poll, timer, measured_to, true);
    Snapshot to = snapshot(now_ns());
    double copies = atof(options.copies);
    await_the_rest(poll, timer, copies);
    Snapshot done = snapshot(now_ns());
    close_all(poll, timer);
    putchar('{');
    print_part("window", &from, &to);
    printf(", ");
    print_part("whole", &begun, &done);
    printf(", \"earlier\": %llu, \"refused\": %llu, \"unanswered\": %lld, \"missing\": %lld",
           (unsigned long long)earlier, (unsigned long long)refused,
           settled ? 0LL : (long long)(sent - accepted - refused),
           sender_count ? (long long)((double)sent * copies) - (long long)received : 0LL);
    print("latency", &latencies);
    print("late", &lateness);
    print("answer", &answers);
    printf("}\n");
    return 0;
}
