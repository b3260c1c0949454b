/* history.c - see history.h. */
#include "daemon/control/history.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const kind_names[HISTORY_KIND_COUNT] = {
    [HISTORY_STATE] = "state",
    [HISTORY_PEER_IN] = "peer_in",
    [HISTORY_PEER_OUT] = "peer_out",
    [HISTORY_PEER_LOST] = "peer_lost",
    [HISTORY_ROUND_FAILED] = "round_failed",
    [HISTORY_FORK] = "fork",
    [HISTORY_HEALED] = "healed",
    [HISTORY_ROLLED_BACK] = "rolled_back",
    [HISTORY_CONVICTED] = "convicted",
    [HISTORY_EVALUATED] = "evaluated",
    [HISTORY_SETTING] = "setting",
    [HISTORY_REFUSED] = "setting_refused",
};

const char *history_kind_name(enum history_kind kind)
{
    return kind < HISTORY_KIND_COUNT ? kind_names[kind] : "?";
}

void history_init(struct history *h)
{
    memset(h, 0, sizeof *h);
    h->interval_ms = HISTORY_INTERVAL_MS;
}

const struct history_event *history_event_at(const struct history *h,
                                             uint64_t number)
{
    if (number == 0 || number > h->event_number ||
        number + HISTORY_EVENTS <= h->event_number) {
        return NULL;
    }
    return &h->event[(number - 1) % HISTORY_EVENTS];
}

uint64_t history_oldest(const struct history *h)
{
    return h->event_number > HISTORY_EVENTS
               ? h->event_number - HISTORY_EVENTS + 1
               : 1;
}

const struct history_sample *history_newest(const struct history *h)
{
    return h->n_samples == 0 ? NULL : &h->sample[h->n_samples - 1];
}

/* ---- samples ------------------------------------------------------------ */

static void sample_take(struct history *h, const struct history_look *look)
{
    const struct node_status *s = look->status;

    if (h->n_samples > 0 && look->now_ms < h->sampled_ms + h->interval_ms) {
        return;
    }
    if (h->n_samples == HISTORY_SAMPLES) {
        for (uint32_t i = 0; i < HISTORY_SAMPLES / 2; i++) {
            h->sample[i] = h->sample[2 * i];
        }
        h->n_samples = HISTORY_SAMPLES / 2;
        h->interval_ms *= 2;
    }
    h->sampled_ms = look->now_ms;
    h->sample[h->n_samples++] = (struct history_sample){
        .number = ++h->sample_number,
        .wall_s = look->wall_s,
        .round = s->round,
        .tokens = s->tokens,
        .run_tokens = s->run_tokens,
        .loss = s->inner_step == 0 ? (double)NAN : (double)s->loss,
        .bits_per_byte = s->bits_per_byte > 0 ? s->bits_per_byte : (double)NAN,
        .tokens_per_s = (double)s->tokens_per_s,
        .peers_alive = s->peers_alive,
        .bytes_sent = look->bytes_sent,
        .bytes_received = look->bytes_received,
    };
}

/* ---- events ------------------------------------------------------------- */

__attribute__((format(printf, 5, 6))) static void
say(struct history *h,
    const struct history_look *look,
    enum history_kind kind,
    const struct peer_id *peer,
    const char *fmt,
    ...)
{
    struct history_event *e = &h->event[h->event_number++ % HISTORY_EVENTS];
    va_list args;

    h->kinds[kind]++;
    *e = (struct history_event){
        .number = h->event_number,
        .wall_s = look->wall_s,
        .kind = kind,
        .has_peer = peer != NULL,
        .round = look->status->round,
    };
    if (peer != NULL) {
        e->peer = *peer;
    }
    va_start(args, fmt);
    (void)vsnprintf(e->text, sizeof e->text, fmt, args);
    va_end(args);
}

void history_note(struct history_notes *notes,
                  enum history_kind kind,
                  const char *fmt,
                  ...)
{
    va_list args;

    if (notes->n == HISTORY_NOTES) {
        return;
    }
    notes->note[notes->n].kind = kind;
    va_start(args, fmt);
    (void)vsnprintf(notes->note[notes->n].text, HISTORY_TEXT_MAX, fmt, args);
    va_end(args);
    /* What a person wrote goes to JSON. */
    for (char *c = notes->note[notes->n].text; *c != '\0'; c++) {
        *c = (unsigned char)*c < ' ' || (unsigned char)*c > '~' ? '?' : *c;
    }
    notes->n++;
}

static void take_notes(struct history *h, const struct history_look *look)
{
    for (uint32_t i = 0; look->notes != NULL && i < look->notes->n; i++) {
        say(h, look, look->notes->note[i].kind, NULL, "%s",
            look->notes->note[i].text);
    }
    if (look->notes != NULL) {
        look->notes->n = 0;
    }
}

/* A waiting peer's reason counts others ("2 of 4 are here"): with the state it
 * is said once, not again for each of them. */
static void look_at_state(struct history *h, const struct history_look *look)
{
    const struct node_status *s = look->status;

    /* Each round goes through both: the timeline shows that. */
    if (s->state != h->state &&
        !(h->started && s->state <= NODE_AVERAGING &&
          s->state >= NODE_TRAINING && h->state <= NODE_AVERAGING &&
          h->state >= NODE_TRAINING)) {
        say(h, look, HISTORY_STATE, NULL, "%s%s%s", node_state_name(s->state),
            look->reason[0] == '\0' ? "" : ": ", look->reason);
    }
    if (s->fork != h->fork) {
        say(h, look, s->fork ? HISTORY_FORK : HISTORY_HEALED, NULL, "%s",
            s->fork ? "this side of a cut goes on alone, marked as a fork"
                    : "the fork is healed");
    }
    if (s->bits_per_byte > 0 && s->bits_per_byte != h->bits_per_byte) {
        say(h, look, HISTORY_EVALUATED, NULL,
            "held out: %.4f bits per byte after round %llu", s->bits_per_byte,
            (unsigned long long)s->round);
    }
    if (s->rollbacks > h->rollbacks) {
        say(h, look, HISTORY_ROLLED_BACK, NULL,
            "the model became worse and was taken back to an earlier state "
            "(%llu times so far)",
            (unsigned long long)s->rollbacks);
    }
    h->rollbacks = s->rollbacks;
    h->state = s->state;
    h->fork = s->fork;
    h->bits_per_byte = s->bits_per_byte;
}

static const struct node_peer *
peer_find(const struct node_peer *list, uint32_t n, const struct peer_id *id)
{
    for (uint32_t i = 0; i < n; i++) {
        if (id_eq(&list[i].id, id)) {
            return &list[i];
        }
    }
    return NULL;
}

static const char *why_lost(const struct node_status *s,
                            const struct peer_id *id)
{
    uint32_t n = s->n_lost < NODE_LOST_MAX ? s->n_lost : NODE_LOST_MAX;

    for (uint32_t i = 0; i < n; i++) {
        if (id_eq(&s->lost[i].peer, id) && s->lost[i].reason != NULL) {
            return s->lost[i].reason;
        }
    }
    return "others say so";
}

static void look_at_peers(struct history *h, const struct history_look *look)
{
    char who[ID_SHORT_MAX];

    for (uint32_t i = 0; i < look->n_peers; i++) {
        const struct node_peer *p = &look->peer[i];
        const struct node_peer *was = peer_find(h->peer, h->n_peers, &p->id);
        bool here = p->state < PEER_DEAD;
        bool was_here = was != NULL && was->state < PEER_DEAD;

        if (p->convicted && (was == NULL || !was->convicted)) {
            id_short(&p->id, who);
            say(h, look, HISTORY_CONVICTED, &p->id,
                "peer %s is convicted: it lied about sums or about its work",
                who);
        }
        if (p->self || here == was_here) {
            continue;
        }
        id_short(&p->id, who);
        if (here) {
            say(h, look, HISTORY_PEER_IN, &p->id, "peer %s is here", who);
        } else if (was == NULL) {
            continue; /* it was gone before we came */
        } else if (p->state == PEER_LEFT) {
            say(h, look, HISTORY_PEER_OUT, &p->id, "peer %s said goodbye", who);
        } else {
            say(h, look, HISTORY_PEER_LOST, &p->id, "peer %s is lost: %s", who,
                why_lost(look->status, &p->id));
        }
    }
    memcpy(h->peer, look->peer, look->n_peers * sizeof *look->peer);
    h->n_peers = look->n_peers;
}

/* ---- rounds ------------------------------------------------------------- */

static struct history_share *share_slot(struct history *h,
                                        const struct peer_id *id)
{
    struct history_share *least = NULL;

    for (uint32_t i = 0; i < h->n_shares; i++) {
        struct history_share *s = &h->share[i];

        if (id_eq(&s->peer, id)) {
            return s;
        }
        if (least == NULL || s->tokens < least->tokens) {
            least = s;
        }
    }
    if (h->n_shares < HISTORY_SHARES) {
        least = &h->share[h->n_shares++];
    }
    *least = (struct history_share){.peer = *id};
    return least;
}

const struct history_share *history_share_of(const struct history *h,
                                             const struct peer_id *id)
{
    for (uint32_t i = 0; i < h->n_shares; i++) {
        if (id_eq(&h->share[i].peer, id)) {
            return &h->share[i];
        }
    }
    return NULL;
}

static void count_attempt(struct history *h,
                          const struct history_look *look,
                          const struct timeline_attempt *a)
{
    char reason[TIMELINE_REASON_MAX];
    uint64_t end_ms = a->at_ms[TIMELINE_DONE];

    if (end_ms == TIMELINE_NEVER) {
        end_ms = a->at_ms[TIMELINE_APPLY]; /* loaded instead of applied */
    }
    if (a->outcome == TIMELINE_COMMITTED) {
        for (uint32_t i = 0; i < a->n; i++) {
            if (a->member[i].planned) {
                struct history_share *s = share_slot(h, &a->member[i].id);

                s->tokens += a->member[i].tokens;
                s->rounds++;
            }
        }
        for (int i = 0; a->in_plan && i < TIMELINE_DONE; i++) {
            h->phase_ms[i] +=
                timeline_phase_ms(a, (enum timeline_phase)i, end_ms);
        }
    } else if (a->outcome == TIMELINE_ABORTED) {
        timeline_reason(a, reason);
        say(h, look, HISTORY_ROUND_FAILED,
            a->guilt == TIMELINE_NOBODY ? NULL : &a->member[a->culprit].id,
            "round %llu was given up: %s", (unsigned long long)a->round,
            reason);
    }
}

/* Attempts end in the order in which they began: only the newest runs. */
static void look_at_rounds(struct history *h, const struct history_look *look)
{
    const struct timeline *t = look->rounds;
    uint64_t serial = t->serial - t->n + 1;

    for (serial = serial > h->round_serial ? serial : h->round_serial + 1;
         serial <= t->serial; serial++) {
        const struct timeline_attempt *a =
            timeline_at(t, (uint32_t)(t->serial - serial));

        /* One that was just committed is still being applied, while the next
         * one runs. */
        if (a->outcome == TIMELINE_RUNNING ||
            (a->at_ms[TIMELINE_DONE] == TIMELINE_NEVER &&
             serial + 1 >= t->serial)) {
            return;
        }
        count_attempt(h, look, a);
        h->round_serial = serial;
    }
}

bool history_update(struct history *h, const struct history_look *look)
{
    uint64_t before = h->event_number;

    look_at_state(h, look);
    look_at_peers(h, look);
    look_at_rounds(h, look);
    take_notes(h, look);
    sample_take(h, look);
    h->started = true;
    return h->event_number != before;
}
