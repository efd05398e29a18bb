/* TLS by OpenSSL 3, which is looked up when it is needed, so that nothing has to be installed to compile this. */
#include <dlfcn.h>

static void *(*tls_context)(const void *), *(*tls_new)(void *);
static const void *(*tls_method)(void);
static long (*tls_control)(void *, int, long, void *);
static int (*tls_descriptor)(void *, int), (*tls_connect)(void *), (*tls_error)(const void *, int);
static int (*tls_read)(void *, void *, int), (*tls_write)(void *, const void *, int);

static void *new_tls(int fd) {
    static void *context;
    if (!context) {
        void *library = dlopen("libssl.so.3", RTLD_NOW);
        if (!library) fail("tls=1 needs OpenSSL 3: %s", dlerror());
        struct { void *into; const char *name; } wanted[] = {
            {&tls_context, "SSL_CTX_new"}, {&tls_new, "SSL_new"}, {&tls_method, "TLS_client_method"},
            {&tls_control, "SSL_CTX_ctrl"}, {&tls_descriptor, "SSL_set_fd"}, {&tls_connect, "SSL_connect"},
            {&tls_error, "SSL_get_error"}, {&tls_read, "SSL_read"}, {&tls_write, "SSL_write"}};
        for (size_t at = 0; at < sizeof wanted / sizeof *wanted; at++)
            if (!(*(void **)wanted[at].into = dlsym(library, wanted[at].name))) fail("no %s", wanted[at].name);
        context = tls_context(tls_method());
        tls_control(context, 33, 1 | 2, NULL); /* SSL_CTRL_MODE: partial writes, and from where the buffer went */
    }
    void *made = tls_new(context);
    tls_descriptor(made, fd);
    if (tls_connect(made) != 1) fail("the TLS handshake failed");
    return made;
}
