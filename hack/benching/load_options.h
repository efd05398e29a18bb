/* What hack/benching/load.c is told to do: KEY=VALUE, for each key of `struct Options`. */
/* Every option is text; numbers are read where they are used. `%d` stands for the number of the link. */
static struct Options {
    const char *host, *port, *tls, *user, *password, *vhost, *container; /* where, and as whom (no user: ANONYMOUS) */
    const char *senders, *to, *tocap, *window, *rate, *size, *durable, *settled;
    const char *receivers, *from, *fromcap, *name, *credit, *lasting, *selector, *others, *copies;
    const char *patience; /* seconds without any answer after which what is missing is taken to be lost */
    const char *warmup, *seconds, *pids; /* pids: processes of the broker, whose processor time is measured */
} options = {.host = "127.0.0.1", .port = "5672", .tls = "0", .senders = "1", .to = "bench", .tocap = "",
             .window = "1000", .rate = "0", .size = "1024", .durable = "1", .settled = "0", .receivers = "1",
             .from = "bench", .fromcap = "", .name = "from-%d", .credit = "1000", .lasting = "0", .copies = "1",
             .patience = "10", .warmup = "1", .seconds = "5", .pids = ""};

static void read_options(int argc, char **argv) {
    static const struct { const char *key; const char **into; } known[] = {
#define KEY(name) {#name, &options.name}
        KEY(host), KEY(port), KEY(tls), KEY(user), KEY(password), KEY(vhost), KEY(container), KEY(senders), KEY(to),
        KEY(tocap), KEY(window), KEY(rate), KEY(size), KEY(durable), KEY(settled), KEY(receivers), KEY(from),
        KEY(fromcap), KEY(name), KEY(credit), KEY(lasting), KEY(selector), KEY(others), KEY(copies), KEY(patience),
        KEY(warmup), KEY(seconds), KEY(pids)};
    for (int at = 1; at < argc; at++) {
        size_t length = strcspn(argv[at], "="), key = 0, keys = sizeof known / sizeof *known;
        while (key < keys && (strlen(known[key].key) != length || strncmp(argv[at], known[key].key, length))) key++;
        if (key == keys || !argv[at][length]) fail("%s: there is no such option", argv[at]);
        *known[key].into = argv[at] + length + 1;
    }
}

static const char *numbered(const char *text, int number) {
    static char made[4][512];
    static int turn;
    char *into = made[turn = (turn + 1) % 4];
    const char *place = strstr(text, "%d");
    if (place) snprintf(into, sizeof *made, "%.*s%d%s", (int)(place - text), text, number, place + 2);
    return place ? into : text;
}
