/* frame.c - see frame.h. */
#include "proto/frame.h"

#include <assert.h>
#include <string.h>

#include "proto/base/bytes.h"
#include "proto/base/err.h"

size_t frame_buffer_bytes(const struct frame_rule *rules, size_t n_rules)
{
    size_t max = 0;

    for (size_t i = 0; i < n_rules; i++) {
        if (rules[i].delivery == FRAME_WHOLE && rules[i].bytes_max > max) {
            max = rules[i].bytes_max;
        }
    }
    return max;
}

void frame_decoder_init(struct frame_decoder *d,
                        const struct frame_rule *rules,
                        size_t n_rules,
                        uint8_t *buf,
                        size_t cap)
{
    assert(n_rules <= 256);
    assert(cap >= frame_buffer_bytes(rules, n_rules));
    memset(d, 0, sizeof *d);
    d->rules = rules;
    d->n_rules = n_rules;
    d->buf = buf;
    d->cap = cap;
}

void frame_header_encode(const struct frame_header *h,
                         uint8_t out[FRAME_HEADER_BYTES])
{
    put_u32(out, h->len);
    out[4] = h->type;
    out[5] = h->flags;
    put_u16(out + 6, 0);
}

/* Check the complete header against its rule. */
static int header_check(struct frame_decoder *d)
{
    const struct frame_rule *rule;

    d->header.len = get_u32(d->head);
    d->header.type = d->head[4];
    d->header.flags = d->head[5];
    if (get_u16(d->head + 6) != 0 || d->header.type >= d->n_rules) {
        return LOCO_EPROTO;
    }
    rule = &d->rules[d->header.type];
    if (rule->delivery == FRAME_REFUSED || d->header.len > rule->bytes_max ||
        (d->header.flags & ~rule->flags_allowed) != 0) {
        return LOCO_EPROTO;
    }
    return 0;
}

/* Leave the payload: the next byte is a header's. */
static void payload_end(struct frame_decoder *d)
{
    d->n_head = 0;
    d->in_payload = false;
}

static size_t feed_whole(struct frame_decoder *d,
                         const uint8_t *bytes,
                         size_t len,
                         struct frame_event *event)
{
    size_t n = d->header.len - d->got;
    bool in_input = d->got == 0 && len >= n;

    if (n > len) {
        n = len;
    }
    if (!in_input && n > 0) {
        assert(d->got + n <= d->cap);
        memcpy(d->buf + d->got, bytes, n);
    }
    d->got += (uint32_t)n;
    if (d->got == d->header.len) {
        event->kind = FRAME_READY;
        event->last = true;
        event->bytes = in_input ? bytes : d->buf;
        event->len = d->header.len;
        payload_end(d);
    }
    return n;
}

static size_t feed_piece(struct frame_decoder *d,
                         const uint8_t *bytes,
                         size_t len,
                         struct frame_event *event)
{
    size_t n = d->header.len - d->got;

    if (n > len) {
        n = len;
    }
    if (n == 0 && d->header.len > 0) {
        return 0;
    }
    event->kind = FRAME_PIECE;
    event->bytes = bytes;
    event->len = (uint32_t)n;
    event->offset = d->got;
    d->got += (uint32_t)n;
    if (d->got == d->header.len) {
        event->last = true;
        payload_end(d);
    }
    return n;
}

/* Collect header bytes; 1 when the header is complete and allowed. */
static int feed_header(struct frame_decoder *d,
                       const uint8_t *bytes,
                       size_t len,
                       size_t *consumed)
{
    size_t n = (size_t)FRAME_HEADER_BYTES - d->n_head;

    if (n > len) {
        n = len;
    }
    if (n > 0) {
        memcpy(d->head + d->n_head, bytes, n);
    }
    d->n_head = (uint8_t)(d->n_head + n);
    *consumed = n;
    if (d->n_head < FRAME_HEADER_BYTES) {
        return 0;
    }
    if (header_check(d) != 0) {
        d->failed = true;
        return LOCO_EPROTO;
    }
    d->got = 0;
    d->in_payload = true;
    return 1;
}

int frame_feed(struct frame_decoder *d,
               const uint8_t *bytes,
               size_t len,
               size_t *consumed,
               struct frame_event *event)
{
    int rv;

    memset(event, 0, sizeof *event);
    *consumed = 0;
    if (d->failed) {
        return LOCO_EPROTO;
    }
    if (!d->in_payload) {
        rv = feed_header(d, bytes, len, consumed);
        if (rv <= 0) {
            return rv;
        }
        event->header = d->header;
        if (d->rules[d->header.type].delivery == FRAME_PIECES) {
            event->kind = FRAME_BEGIN;
            return 0;
        }
        if (*consumed > 0) { /* NULL + 0 is not C */
            bytes += *consumed;
            len -= *consumed;
        }
    }
    event->header = d->header;
    if (d->rules[d->header.type].delivery == FRAME_PIECES) {
        *consumed += feed_piece(d, bytes, len, event);
    } else {
        *consumed += feed_whole(d, bytes, len, event);
    }
    return 0;
}
