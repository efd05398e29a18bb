/* What the sockets and the disk of this machine allow to producers that each wait: a server that does nothing but
   receive messages of 1 KiB, write those that came together at once, sync them, and answer each with a byte; and its
   clients, one process as the load of the benchmarks is. Arguments: file, connections, seconds. Prints JSON. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <netinet/tcp.h>

#include "histogram.h"

enum { MESSAGE = 1024, MOST = 1024, BLOCK = 4096, FILE_BYTES = 64 << 20 };

static void check(bool is_fine, const char *what) {
    if (is_fine) return;
    perror(what);
    exit(1);
}

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void watch(int epoll, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    check(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
}

static void serve(int listener, const char *path, int connections) {
    static uint8_t data[MOST * MESSAGE + BLOCK], zeros[1 << 20];
    static int held[1 << 16], asked[MOST]; /* bytes of a message that came so far, by descriptor; nobody reads them */
    int file = open(path, O_RDWR | O_CREAT, 0600), epoll = epoll_create1(0);
    check(file >= 0, path);
    for (off_t at = 0; at < FILE_BYTES; at += sizeof zeros)
        check(pwrite(file, zeros, sizeof zeros, at) == sizeof zeros, "pwrite");
    check(fsync(file) == 0, "fsync");
    for (int number = 0; number < connections; number++) {
        int fd = accept(listener, NULL, NULL), on = 1;
        check(fd >= 0 && fd < 1 << 16, "accept");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        watch(epoll, fd);
    }
    for (off_t place = 0;;) {
        struct epoll_event events[MOST];
        int ready = epoll_wait(epoll, events, MOST, -1), whole = 0;
        for (int at = 0; at < ready; at++) {
            int fd = events[at].data.fd;
            ssize_t came = read(fd, data + (size_t)whole * MESSAGE + held[fd], (size_t)(MESSAGE - held[fd]));
            if (came <= 0) exit(0); /* the clients have ended */
            held[fd] += (int)came;
            if (held[fd] < MESSAGE) continue;
            held[fd] = 0;
            asked[whole++] = fd;
        }
        if (!whole) continue;
        size_t size = ((size_t)whole * MESSAGE + BLOCK - 1) / BLOCK * BLOCK;
        if (place + (off_t)size > FILE_BYTES) place = 0;
        check(pwrite(file, data, size, place) == (ssize_t)size && fdatasync(file) == 0, "fdatasync");
        place += (off_t)size;
        for (int at = 0; at < whole; at++) check(write(asked[at], "", 1) == 1, "write");
    }
}

int main(int count_of, char **arguments) {
    check(count_of == 4, "usage: sync_echo FILE CONNECTIONS SECONDS");
    int connections = atoi(arguments[2]);
    check(connections > 0 && connections <= MOST, "CONNECTIONS is between 1 and 1024");
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), epoll = epoll_create1(0);
    check(bind(listener, (struct sockaddr *)&address, length) == 0 && listen(listener, MOST) == 0, "listen");
    getsockname(listener, (struct sockaddr *)&address, &length);
    pid_t server = fork();
    check(server >= 0, "fork");
    if (!server) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve(listener, arguments[1], connections);
    }
    close(listener); /* if the server ends, so do the clients */
    static int64_t sent_at[1 << 16];
    static Histogram latency;
    uint8_t message[MESSAGE] = {0}, answer;
    for (int number = 0; number < connections; number++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
        check(fd < 1 << 16 && connect(fd, (struct sockaddr *)&address, length) == 0, "connect");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        watch(epoll, fd);
        sent_at[fd] = now();
        check(write(fd, message, MESSAGE) == MESSAGE, "write");
    }
    int64_t begin = 0, end = 0, answered = 0;
    while (!end || now() < end) {
        struct epoll_event events[MOST];
        int ready = epoll_wait(epoll, events, MOST, -1);
        for (int at = 0; at < ready; at++) {
            int fd = events[at].data.fd;
            check(read(fd, &answer, 1) == 1, "read");
            int64_t moment = now();
            if (!end) { /* the file is written and synced: the measured time begins */
                begin = moment;
                end = begin + (int64_t)(atof(arguments[3]) * 1e9);
            } else {
                answered++;
                count(&latency, moment - sent_at[fd]);
            }
            sent_at[fd] = now();
            check(write(fd, message, MESSAGE) == MESSAGE, "write");
        }
    }
    printf("{\"rate\": %f", (double)answered * 1e9 / (double)(now() - begin));
    print("latency", &latency);
    printf("}\n");
    kill(server, SIGKILL);
    unlink(arguments[1]);
    return 0;
}
