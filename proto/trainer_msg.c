/* trainer_msg.c - see trainer_msg.h. */
#include "proto/trainer_msg.h"

#include <string.h>

#include "proto/base/err.h"

/* clang-format off */
MSG_PART(trainer_hello,
    MSG_FIELD_U16(struct trainer_hello, version),
    MSG_FIELD_U32(struct trainer_hello, pid),
    MSG_FIELD_BOOL(struct trainer_hello, measures),
    MSG_FIELD_BYTES(struct trainer_hello, name, n_name));

MSG_PART(trainer_welcome,
    MSG_FIELD_U16(struct trainer_welcome, version),
    MSG_FIELD_FIXED(struct trainer_welcome, run_id),
    MSG_FIELD_U64(struct trainer_welcome, bytes),
    MSG_FIELD_U64(struct trainer_welcome, n),
    MSG_FIELD_U32(struct trainer_welcome, n_tensors),
    MSG_FIELD_U64(struct trainer_welcome, layout_at),
    MSG_FIELD_U64(struct trainer_welcome, layout_bytes),
    MSG_FIELD_U64(struct trainer_welcome, theta_at),
    MSG_FIELD_U64(struct trainer_welcome, tokens_at),
    MSG_FIELD_U64(struct trainer_welcome, targets_at),
    MSG_FIELD_U32(struct trainer_welcome, batch),
    MSG_FIELD_U32(struct trainer_welcome, seq),
    MSG_FIELD_U32(struct trainer_welcome, vocab),
    MSG_FIELD_U64(struct trainer_welcome, tokens_most),
    MSG_FIELD_U32(struct trainer_welcome, period),
    MSG_FIELD_BYTES(struct trainer_welcome, run_name, n_run_name),
    MSG_FIELD_BYTES(struct trainer_welcome, preset, n_preset));

MSG_PART(trainer_refused,
    MSG_FIELD_BYTES(struct trainer_refused, text, n_text));

MSG_PART(trainer_go,
    MSG_FIELD_U64(struct trainer_go, steps),
    MSG_FIELD_U64(struct trainer_go, inner_step));

MSG_PART(trainer_give,
    MSG_FIELD_U64(struct trainer_give, round));

MSG_PART(trainer_take,
    MSG_FIELD_U64(struct trainer_take, round),
    MSG_FIELD_BOOL(struct trainer_take, reset),
    MSG_FIELD_U64(struct trainer_take, clock),
    MSG_FIELD_U64(struct trainer_take, tokens));

MSG_PART(trainer_step,
    MSG_FIELD_U64(struct trainer_step, tokens),
    MSG_FIELD_U64(struct trainer_step, loss));

MSG_PART(trainer_empty,
    MSG_FIELD_U8(struct trainer_empty, zero));

MSG_PART(trainer_rows,
    MSG_FIELD_U64(struct trainer_rows, position),
    MSG_FIELD_U32(struct trainer_rows, rows),
    MSG_FIELD_BOOL(struct trainer_rows, own));

MSG_PART(trainer_windows,
    MSG_FIELD_U32(struct trainer_windows, rows));

MSG_PART(trainer_scored,
    MSG_FIELD_U64(struct trainer_scored, nats));

MSG_PART(trainer_stop,
    MSG_FIELD_U32(struct trainer_stop, code),
    MSG_FIELD_BYTES(struct trainer_stop, text, n_text));
/* clang-format on */

static const struct kind {
    const struct msg_schema *schema;
    enum trainer_msg_sender sender;
} kinds[] = {
#define X(number, name, type, who)                                             \
    [number] = {&type##_schema, TRAINER_SENDER_##who},
    TRAINER_MESSAGES(X)
#undef X
};

/* NULL: there is no such message. */
static const struct kind *kind_of(unsigned type)
{
    return type < sizeof kinds / sizeof kinds[0] && kinds[type].schema != NULL
               ? &kinds[type]
               : NULL;
}

int trainer_msg_encode(const struct trainer_msg *m,
                       uint8_t out[TRAINER_PACKET_MAX])
{
    const struct kind *k = kind_of((unsigned)m->type);
    int n;

    if (k == NULL) {
        return LOCO_EINVAL;
    }
    out[0] = (uint8_t)m->type;
    n = msg_encode(k->schema, &m->hello, out + 1, TRAINER_PACKET_MAX - 1);
    return n < 0 ? n : n + 1;
}

int trainer_msg_decode(const uint8_t *in,
                       size_t len,
                       enum trainer_msg_sender sender,
                       struct trainer_msg *m)
{
    const struct kind *k = len == 0 ? NULL : kind_of(in[0]);

    memset(m, 0, sizeof *m);
    if (k == NULL || k->sender != sender) {
        return LOCO_EPROTO;
    }
    m->type = (enum trainer_msg_type)in[0];
    return msg_decode(k->schema, in + 1, len - 1, &m->hello);
}
