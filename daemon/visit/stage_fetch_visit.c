/* stage_fetch_visit.c - what a host says, and what of it can be believed; see
 * stage_fetch.h. */
#include <stdlib.h>
#include <string.h>

#include "daemon/node/node.h"
#include "daemon/visit/stage_fetch_internal.h"
#include "proto/base/clock.h"

#define ANSWER_MS 3000

/* ---- words -------------------------------------------------------------- */

/* Why the host lets us go; the link ends with it. */
static void note_refusal(struct fetching *f, const uint8_t *bytes, size_t len)
{
    struct refused m;

    if (msg_decode(&refused_schema, bytes, len, &m) == 0 &&
        m.reason > REFUSAL_NONE && m.reason < REFUSAL_COUNT) {
        f->refusal = (enum refusal)m.reason;
    }
}

/* The next message of that type into f->in; others pass by. */
static int
hear(struct fetching *f, struct fetch_host *h, enum message_type wanted)
{
    uint64_t until_ms = monotonic_ms() + ANSWER_MS;
    const uint8_t *bytes = NULL;
    uint8_t type;
    int n;

    do {
        n = dialogue_recv(h->control, until_ms, &type, &bytes);
        if (n >= 0 && type == MESSAGE_REFUSED) {
            note_refusal(f, bytes, (size_t)n);
        }
    } while (n >= 0 && type != (uint8_t)wanted);
    return n < 0 ? n
                 : msg_decode(message_schema((uint16_t)wanted), bytes,
                              (size_t)n, f->in);
}

bool stage_dial(struct fetching *f,
                struct fetch_host *h,
                bool bulk,
                struct dialogue **d)
{
    const struct dialogue_options opt = {
        .address = h->address,
        .run_id = f->run,
        .version = HANDSHAKE_VERSION,
        .signer = &f->signer,
        .expected = h->id,
        .bulk = bulk,
        .deadline_ms = f->deadline_ms,
    };
    int rc;

    return dialogue_open(d, &opt, &rc) == DIALOGUE_UP;
}

/* It speaks, and a version that we speak. */
static bool hear_hello(struct fetching *f, struct fetch_host *h)
{
    if (hear(f, h, MESSAGE_HELLO) != 0) {
        return false;
    }
    if (!hello_fits(f->in, PROTO_OLDEST, PROTO_NEWEST)) {
        f->refusal = REFUSAL_VERSION;
        return false;
    }
    return true;
}

/* Greet, and ask what it holds. */
bool stage_visit(struct fetching *f, struct fetch_host *h)
{
    const struct pulse ask = {.flags = PULSE_ASK};
    struct hello mine = {.oldest = PROTO_OLDEST, .newest = PROTO_NEWEST};

    if (!stage_dial(f, h, false, &h->control) ||
        (f->manifest->invited &&
         dialogue_say(h->control, MESSAGE_ADMISSION, &f->admission) != 0) ||
        !hear_hello(f, h)) {
        return false;
    }
    mine.life = monotonic_ms();
    if (dialogue_say(h->control, MESSAGE_HELLO, &mine) != 0 ||
        dialogue_say(h->control, MESSAGE_PULSE, &ask) != 0 ||
        hear(f, h, MESSAGE_HEARTBEAT) != 0) {
        return false;
    }
    h->beat = *(const struct heartbeat *)f->in;
    return h->beat.has_view && h->beat.stage > 0 &&
           h->beat.stage <= f->manifest->stages;
}

void stage_leave(struct fetching *f, struct fetch_host *h)
{
    dialogue_leave(h->control, &f->self.id);
    h->control = NULL;
}

/* ---- what can be believed ----------------------------------------------- */

/* Its view is one of its stage's group. */
static bool prove(struct fetching *f, struct fetch_host *h)
{
    const struct chain_rules rules = {
        .run = node_group_of(&f->run, h->beat.stage - 1U),
        .min_peers =
            node_group_share(f->manifest->round.min_peers, f->manifest->stages),
        .signer = &f->signer,
    };
    struct get_proof ask = {.view = h->beat.view};
    const struct proof *part = f->in;
    struct view_cert *cert = malloc(sizeof *cert);
    struct chain chain;
    uint32_t got = 0;

    do {
        ask.offset = got;
        if (cert == NULL ||
            dialogue_say(h->control, MESSAGE_GET_PROOF, &ask) != 0 ||
            hear(f, h, MESSAGE_PROOF) != 0 || part->offset != got ||
            part->total > CHAIN_BYTES_MAX || part->n_bytes == 0 ||
            part->total < got || part->n_bytes > part->total - got) {
            free(cert);
            return false;
        }
        memcpy(f->proof + got, part->bytes, part->n_bytes);
        got += part->n_bytes;
    } while (got < part->total);
    chain_init(&chain, f->chain);
    h->proven = chain_read(&chain, &rules, f->proof, got) == 0 &&
                chain_proves(&chain, &h->beat.view) && chain_last(&chain, cert);
    if (h->proven) {
        h->view = cert->body;
        h->view_hash = h->beat.view;
    }
    free(cert);
    return h->proven;
}

/* The record of that commit, with the votes of the view; NULL. */
static const struct commit *
record(struct fetching *f, struct fetch_host *h, uint64_t round)
{
    const struct get_commit ask = {.round = round};
    const struct commit *c = f->in;

    return dialogue_say(h->control, MESSAGE_GET_COMMIT, &ask) == 0 &&
                   hear(f, h, MESSAGE_COMMIT) == 0 &&
                   c->plan.body.round == round &&
                   chain_commit_valid(&h->view, &h->view_hash, 0, c, &f->signer)
               ? c
               : NULL;
}

/* What it held after `round`, as the records say. */
static bool name_state(struct fetching *f,
                       struct fetch_host *h,
                       uint64_t round,
                       struct hash32 *state)
{
    const struct commit *c;
    struct hash32 hash;

    if (!h->proven || h->beat.round < round) {
        return false;
    }
    if (h->beat.round > round) {
        c = record(f, h, round + 1);
        if (c != NULL) {
            *state = c->plan.body.state;
        }
        return c != NULL;
    }
    *state = h->beat.state_hash;
    if (hash32_eq(&h->view.commit, &h->beat.commit)) {
        return true;
    }
    c = record(f, h, round);
    if (c != NULL) {
        message_commit_hash(&c->plan.body, &c->result, &hash);
    }
    return c != NULL && hash32_eq(&hash, &h->beat.commit);
}

void stage_learn(struct fetching *f, struct fetch_host *h)
{
    f->deadline_ms = monotonic_ms() + STAGE_VISIT_MS;
    if (stage_visit(f, h) && prove(f, h)) {
        for (size_t i = 0; i < f->n_rounds; i++) {
            h->names[i] = name_state(f, h, f->rounds[i], &h->state[i]);
        }
    }
    stage_leave(f, h);
}
