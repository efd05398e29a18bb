/* AMQP 1.0 frames by hand, as far as hack/benching/load.c needs them: buffers, values, performatives. */
#include <arpa/inet.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPEN = 0x10, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE, SOURCE = 0x28, TARGET };
enum { SASL_INIT = 0x41, SASL_OUTCOME = 0x44, ACCEPTED = 0x24, FIELDS = 12 };
enum { NONE = 0x40, TRUE_ = 0x41, FALSE_ = 0x42, STRING = 0xa1, SYMBOL = 0xa3 };

typedef struct {
    uint8_t *at;
    size_t start, end, room;
} Buffer;

static void fail(const char *format, ...) {
    va_list rest;
    va_start(rest, format);
    vfprintf(stderr, format, rest);
    fputc('\n', stderr);
    exit(1);
}

static uint8_t *reserve(Buffer *buffer, size_t size) {
    if (buffer->end + size > buffer->room) {
        memmove(buffer->at, buffer->at + buffer->start, buffer->end - buffer->start);
        buffer->end -= buffer->start;
        buffer->start = 0;
        while (buffer->end + size > buffer->room) {
            buffer->room = buffer->room ? buffer->room * 2 : 4096;
            if (!(buffer->at = realloc(buffer->at, buffer->room))) fail("out of memory");
        }
    }
    return buffer->at + buffer->end;
}

static void put(Buffer *buffer, const void *data, size_t size) {
    memcpy(reserve(buffer, size), data, size);
    buffer->end += size;
}

static void put_byte(Buffer *buffer, uint8_t value) { put(buffer, &value, 1); }

static void put_32(uint8_t *at, uint32_t value) {
    value = htonl(value);
    memcpy(at, &value, 4);
}

static void put_uint(Buffer *buffer, uint32_t value) {
    put_byte(buffer, 0x70);
    put_32(reserve(buffer, 4), value);
    buffer->end += 4;
}

static void put_text(Buffer *buffer, uint8_t type, const char *text) {
    if (!text) {
        put_byte(buffer, NONE);
        return;
    }
    put_byte(buffer, type);
    put_byte(buffer, (uint8_t)strlen(text));
    put(buffer, text, strlen(text));
}

static void put_nulls(Buffer *buffer, int number) {
    while (number--) put_byte(buffer, NONE);
}

static void put_symbols(Buffer *buffer, const char *separated) {
    char copy[256], *rest = copy, *each;
    Buffer items = {0};
    int number = 0;
    snprintf(copy, sizeof copy, "%s", separated);
    while (*copy && (each = strsep(&rest, ","))) {
        put_byte(&items, (uint8_t)strlen(each));
        put(&items, each, strlen(each));
        number++;
    }
    if (!number) {
        put_byte(buffer, NONE);
        return;
    }
    put(buffer, (uint8_t[]){0xe0, (uint8_t)(items.end + 2), (uint8_t)number, SYMBOL}, 4);
    put(buffer, items.at, items.end);
    free(items.at);
}

/* A described list; what is returned is given to put_list_end with the number of its items. */
static size_t put_list(Buffer *buffer, uint8_t code) {
    put(buffer, (uint8_t[]){0, 0x53, code, 0xd0, 0, 0, 0, 0, 0, 0, 0, 0}, 12);
    return buffer->end - buffer->start;
}

static void put_list_end(Buffer *buffer, size_t begun, uint32_t items) {
    uint8_t *at = buffer->at + buffer->start + begun;
    put_32(at - 8, (uint32_t)(buffer->end - buffer->start - begun + 4));
    put_32(at - 4, items);
}

static size_t put_frame(Buffer *buffer, uint8_t type, uint8_t code) {
    put(buffer, (uint8_t[]){0, 0, 0, 0, 2, type, 0, 0}, 8);
    return put_list(buffer, code);
}

static void put_frame_end(Buffer *buffer, size_t begun, uint32_t items) {
    put_list_end(buffer, begun, items);
    uint8_t *at = buffer->at + buffer->start + begun - 20;
    put_32(at, (uint32_t)(buffer->at + buffer->end - at));
}

static uint32_t get_32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return ntohl(value);
}

static const uint8_t *after(const uint8_t *at) {
    static const uint8_t widths[16] = {0, 0, 0, 0, 0, 1, 2, 4, 8, 16};
    if (*at == 0) return after(after(at + 1));
    int kind = *at >> 4;
    if (kind < 10) return at + 1 + widths[kind];
    return kind % 2 ? at + 5 + get_32(at + 1) : at + 2 + at[1];
}

/* The fields of a performative, those that are missing as null; returns where it ends. */
static const uint8_t *get_fields(const uint8_t *at, const uint8_t *fields[FIELDS]) {
    static const uint8_t null = NONE;
    const uint8_t *end = after(at), *list = after(at + 1);
    uint32_t items = *list == 0x45 ? 0 : *list == 0xc0 ? list[2] : get_32(list + 5);
    list += *list == 0x45 ? 1 : *list == 0xc0 ? 3 : 9;
    for (uint32_t field = 0; field < FIELDS; field++) {
        fields[field] = field < items ? list : &null;
        if (field < items) list = after(list);
    }
    return end;
}

static uint32_t get_uint(const uint8_t *at, uint32_t otherwise) {
    return *at == 0x70 ? get_32(at + 1) : *at == 0x52 || *at == 0x50 ? at[1] : *at == 0x43 ? 0 : otherwise;
}

static bool get_bool(const uint8_t *at) { return *at == TRUE_ || (*at == 0x56 && at[1]); }
