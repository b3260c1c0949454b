/* scenarios_silence.c - a member that sums wrong, while nobody can repeat it.
 *
 * The victim sums wrong from a round on, as in scenarios_audit.c. A *mute*
 * member, in three of four seeds the victim itself, else a friend of it,
 * answers no FETCH of its contribution; in odd seeds it refuses each of them
 * instead. In every fourth seed an honest member dies and comes back.
 *
 * In every fifth seed nobody sums wrong and all serve, but one keeps its votes
 * from another one and claims to hold a commit that it does not tell, so that
 * this one has a commit later than those that ask it for its contribution.
 *
 * S: from then on the mute member has a part in at most a third of the rounds,
 * and in no six that follow each other, and its status says why. Nobody finds
 * an honest member silent that most of the others find so, but one that died.
 * Nobody is convicted, as no sum was repeated (A), where the victim is mute
 * itself.
 */
#include <string.h>

#include "daemon/node/audit.h"
#include "daemon/node/inspect.h"
#include "daemon/sim/sim_internal.h"
#include "daemon/sim/world/internal.h"

#define LOOK_MS 100
/* In rounds of a second nobody is found silent in time. */
#define STEP_TIMES 6
#define ROW_MAX    5  /* rounds with it that follow each other */
#define LEAST      20 /* rounds that are needed to judge */

static bool refuses(const struct sim *s)
{
    return s->opt.seed % 2 == 1;
}

/* For the one that it means harm its votes are of no attempt, and it always
 * holds one more commit, of which it tells nothing. */
static int hide(struct sim *s,
                uint32_t from,
                uint32_t to,
                uint16_t message,
                uint8_t *bytes,
                uint32_t len,
                uint32_t cap)
{
    uint32_t harmed = (s->silence.mute + 1) % s->n;
    struct heartbeat beat;
    struct get_commit ask;
    struct vote vote;

    if (message == MESSAGE_VOTE && from == s->silence.mute && to == harmed &&
        msg_decode(&vote_schema, bytes, len, &vote) == 0) {
        vote.body.epoch = ~vote.body.epoch;
        return msg_encode(&vote_schema, &vote, bytes, cap);
    }
    if (message == MESSAGE_HEARTBEAT && from == s->silence.mute &&
        to == harmed && msg_decode(&heartbeat_schema, bytes, len, &beat) == 0) {
        beat.round++;
        return msg_encode(&heartbeat_schema, &beat, bytes, cap);
    }
    if (message == MESSAGE_GET_COMMIT && from == harmed &&
        to == s->silence.mute &&
        msg_decode(&get_commit_schema, bytes, len, &ask) == 0) {
        ask.round = UINT64_MAX;
        return msg_encode(&get_commit_schema, &ask, bytes, cap);
    }
    return -1;
}

/* What it is asked for it does not have; and, if it is silent, what it says
 * about that is of no attempt. */
static uint32_t mute(void *self,
                     uint32_t from,
                     uint32_t to,
                     uint16_t message,
                     uint8_t *bytes,
                     uint32_t len,
                     uint32_t cap)
{
    struct sim *s = self;
    struct fetch ask;
    struct fetch_no no;
    int n = -1;

    if (!s->silence.begun) {
        return len;
    }
    if (s->silence.hides) {
        n = hide(s, from, to, message, bytes, len, cap);
    } else if (message == MESSAGE_FETCH && to == s->silence.mute &&
               msg_decode(&fetch_schema, bytes, len, &ask) == 0 &&
               ask.buffer == BUFFER_OFFER) {
        ask.index = UINT64_MAX;
        n = msg_encode(&fetch_schema, &ask, bytes, cap);
    } else if (message == MESSAGE_FETCH_NO && from == s->silence.mute &&
               !refuses(s) &&
               msg_decode(&fetch_no_schema, bytes, len, &no) == 0) {
        no.attempt = ~no.attempt;
        n = msg_encode(&fetch_no_schema, &no, bytes, cap);
    }
    return n < 0 ? len : (uint32_t)n;
}

const struct node_commit *sim_newest_but(const struct sim *s, uint32_t peer)
{
    const struct node_commit *best = NULL;

    for (uint32_t q = 0; q < s->n; q++) {
        const struct node_commit *c = q == peer || s->nodes[q] == NULL
                                          ? NULL
                                          : node_last_commit(s->nodes[q]);

        if (c != NULL && (best == NULL || c->round > best->round)) {
            best = c;
        }
    }
    return best;
}

/* Its owner reads why rounds are made without it. */
static bool is_told(const struct sim *s)
{
    struct node_status status;

    if (s->nodes[s->silence.mute] == NULL) {
        return false;
    }
    node_status(s->nodes[s->silence.mute], &status);
    return strstr(status.reason, "waited in vain") != NULL;
}

/* Count the rounds that the mute member has a part in. */
static void look_call(void *data, uint64_t arg)
{
    struct sim *s = data;
    const struct node_commit *c = sim_newest_but(s, s->silence.mute);
    bool in = false;

    (void)arg;
    if (c != NULL && c->round > s->silence.round) {
        for (uint32_t k = 0; k < c->n; k++) {
            in |= world_find(s->world, &c->member[k]) == s->silence.mute;
        }
        s->silence.round = c->round;
        s->silence.n_rounds++;
        s->silence.n_with += in;
        s->silence.n_told += !in && is_told(s);
        s->silence.row = in ? s->silence.row + 1 : 0;
        if (s->silence.row > s->silence.row_max) {
            s->silence.row_max = s->silence.row;
        }
    }
    if (!s->done) {
        world_call(s->world, world_now(s->world) + LOOK_MS, look_call, s, 0);
    }
}

static void begin_call(void *data, uint64_t arg)
{
    struct sim *s = data;

    s->silence.begun = true;
    if (!s->silence.hides) {
        local_missum(s->local, s->victim, true);
    }
    sim_fault(s);
    look_call(s, arg);
}

void options_silence(struct sim *s)
{
    s->local_opt.audits = 1;
    s->local_opt.step_ms *= STEP_TIMES;
    s->silence.hides = s->opt.seed % 5 == 4;
    s->missums = !s->silence.hides;
    s->silence.on = true;
    s->world_opt.tamper = mute;
    s->world_opt.tamper_self = s;
    s->world_opt.frames_contradict = true;
}

void setup_silence(struct sim *s)
{
    uint64_t at = sim_after_rounds(s, 2, 6);

    s->silence.mute = s->opt.seed % 4 == 2 ? (s->victim + 1) % s->n : s->victim;
    s->calm_ms = at;
    world_call(s->world, at, begin_call, s, 0);
    if (s->opt.seed % 4 == 3) {
        s->restart_after_ms = sim_draw(s, 1000, 12000);
        s->calm_ms += 5000 + s->restart_after_ms;
        world_call(s->world, at + sim_draw(s, 0, 5000), sim_strike_call, s,
                   (s->victim + 2) % s->n);
    }
}

/* How many of the others found that peer silent. */
uint32_t sim_n_finding(const struct sim *s, uint32_t peer)
{
    const struct peer_id *id = &world_identity(s->world, peer)->id;
    uint32_t n = 0;

    for (uint32_t q = 0; q < s->n; q++) {
        const struct node_audit *a = s->nodes[q] == NULL || q == peer
                                         ? NULL
                                         : node_parts(s->nodes[q]).audit;

        for (uint32_t k = 0; a != NULL && k < a->silence.n; k++) {
            n += id_eq(&a->silence.row[k].id, id);
        }
    }
    return n;
}

void check_silence(struct sim *s)
{
    if (!s->silence.on || !s->silence.begun) {
        return;
    }
    for (uint32_t q = 0; q < s->n; q++) {
        if (q != s->silence.mute && s->lives[q] == 1 &&
            2 * sim_n_finding(s, q) > s->n) {
            check_fail(s->check, "S: most find peer %u silent, which is honest",
                       q);
        }
    }
    if (!s->silence.hides && s->silence.n_rounds >= LEAST &&
        (3 * s->silence.n_with > s->silence.n_rounds ||
         s->silence.row_max > ROW_MAX)) {
        check_fail(s->check,
                   "S: the mute member has a part in %u of %u rounds, %u of "
                   "them in a row",
                   s->silence.n_with, s->silence.n_rounds, s->silence.row_max);
    }
    if (!s->silence.hides && s->silence.n_rounds >= LEAST &&
        2 * s->silence.n_told < s->silence.n_rounds - s->silence.n_with) {
        check_fail(s->check,
                   "S: the mute member's status says of %u of %u rounds that "
                   "they are made without it",
                   s->silence.n_told, s->silence.n_rounds - s->silence.n_with);
    }
}
