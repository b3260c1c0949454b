/* frame.h - lengths on a byte stream: where one message ends.
 *
 * A *frame* is a header of 8 bytes {u32 length, u8 type, u8 flags, u16 zero},
 * little-endian, and `length` bytes of payload. The stream below is already
 * decrypted and authenticated (or the simulator's).
 *
 * The decoder is told by a *rule table*, indexed by type, how long a payload
 * may be and which flags exist; both are checked when the header is complete,
 * before a payload byte is looked at. It accumulates header bytes across any
 * cut, also 1-byte reads. Types with FRAME_WHOLE are handed over as one block
 * (straight from the input where it lies there whole, else copied into the
 * caller's buffer); types with FRAME_PIECES are handed over as they come
 * (bulk), never copied. Nothing is allocated.
 *
 * Fails with LOCO_EPROTO, and stays failed: a stream that lost its frame
 * boundary is closed, never resynchronised.
 */
#ifndef LOCO_PROTO_FRAME_H
#define LOCO_PROTO_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/limits.h"

#define FRAME_HEADER_BYTES 8

enum frame_delivery {
    FRAME_REFUSED, /* no such type here; what a zeroed row says */
    FRAME_WHOLE,
    FRAME_PIECES
};

struct frame_rule {
    uint32_t bytes_max; /* longest payload */
    enum frame_delivery delivery;
    uint8_t flags_allowed; /* bits that may be set */
    bool unbound;          /* rests on nothing that its sender must remember */
};

struct frame_header {
    uint32_t len; /* payload bytes */
    uint8_t type;
    uint8_t flags;
};

enum frame_event_kind {
    FRAME_NONE,  /* all input is consumed, feed more */
    FRAME_READY, /* a FRAME_WHOLE payload: bytes[len] */
    FRAME_BEGIN, /* the header of a FRAME_PIECES payload; no bytes */
    FRAME_PIECE  /* bytes[len] at `offset` of it; `last` on the final one */
};

struct frame_event {
    enum frame_event_kind kind;
    bool last;
    struct frame_header header;
    const uint8_t *bytes; /* valid until the next frame_feed() */
    uint32_t len;
    uint32_t offset;
};

struct frame_decoder {
    const struct frame_rule *rules; /* borrowed for the decoder's life */
    size_t n_rules;
    uint8_t *buf; /* borrowed for the decoder's life */
    size_t cap;
    /* private */
    struct frame_header header;
    uint32_t got; /* payload bytes so far */
    uint8_t head[FRAME_HEADER_BYTES];
    uint8_t n_head;
    bool in_payload;
    bool failed;
};

/* Largest bytes_max of the FRAME_WHOLE rules: what `cap` must be at least. */
size_t frame_buffer_bytes(const struct frame_rule *rules, size_t n_rules);

/* rules[n_rules] is indexed by frame type; types above are refused. */
void frame_decoder_init(struct frame_decoder *d,
                        const struct frame_rule *rules,
                        size_t n_rules,
                        uint8_t *buf,
                        size_t cap);

/* Take at most `len` bytes, set *consumed and one event. Call again with the
 * rest until the event is FRAME_NONE. A frame of length 0 gives its event like
 * any other. LOCO_EPROTO: close the stream. */
int frame_feed(struct frame_decoder *d,
               const uint8_t *bytes,
               size_t len,
               size_t *consumed,
               struct frame_event *event);

void frame_header_encode(const struct frame_header *h,
                         uint8_t out[FRAME_HEADER_BYTES]);

#endif
