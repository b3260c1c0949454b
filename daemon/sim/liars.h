/* liars.h - what the files of `loco sim liars` share. */
#ifndef LOCO_DAEMON_SIM_LIARS_H
#define LOCO_DAEMON_SIM_LIARS_H

#include "daemon/sim/sim_internal.h"

enum lie {
    LIE_FRIENDS,
    LIE_CLAIMS,
    LIE_COMMITS,
    LIE_DEAF,
    LIE_ASKS,
    LIE_BALLOTS,
    LIE_PICKS,
    LIE_SILENT,
    LIE_PLANS,
    LIE_TWO_PLANS,
    LIE_OMITS,
    LIE_RELAYS,
    LIE_COUNT, /* seeds take turns at these */
    LIE_TWO_VIEWS = LIE_COUNT,
    LIE_ALL
};

struct liar {
    struct sim *s;
    enum lie kind;
    uint32_t who, ignored; /* the liar; whom it does not hear (DEAF) */
    uint64_t n_lies;
    uint32_t n_strikes;
    struct accept accept; /* while it is changed */
    struct promise promise;
    struct plan plan;
    struct ready ready;
    struct forward forward;
    struct pulse pulse;

    /* liars_two.c: the second view, while it is signed, and any other */
    struct view_cert other, cert;
    struct hash32 other_hash;

    /* liars_ask.c */
    struct node *node; /* of the liar, while it lives */
    uint64_t due_ms, now_ms;
    uint64_t first_ms, first_round; /* rounds without it are counted from.. */
    uint64_t began_ms, began_round; /* ..until it began; 0: not yet */
    double percent;                 /* of those, that are left */
};

void liars_sign(const struct sim *s,
                const struct msg_schema *schema,
                const void *body,
                uint8_t *sig);

/* ---- liars_two.c: what becomes of a message: its length ----------------- */
int liars_two(struct sim *s,
              uint32_t from,
              uint32_t to,
              uint16_t message,
              uint8_t *bytes,
              uint32_t len,
              uint32_t cap);

/* ---- liars_ask.c: views that nobody needs -------------------------------- */

/* What this kind of liar says is added to what its node says. */
bool liars_ask(const struct liar *g);

/* The node of the liar, and what is added; for sim_start(). */
struct core liars_core(struct liar *g, struct node *node);

/* ---- liars_round.c: plans, and what goes over it ------------------------ */

bool liars_round(const struct liar *g);
void liars_round_options(struct sim *s);

/* What becomes of a message: its length. */
int liars_round_lie(struct sim *s,
                    uint32_t from,
                    uint32_t to,
                    uint16_t message,
                    uint8_t *bytes,
                    uint32_t len,
                    uint32_t cap);

/* ---- liars_count.c: rounds without lies and with them -------------------- */

/* Rounds are longer than ballots, and there are fewer. */
void liars_count_options(struct sim *s);

/* A world_fn: counts rounds without lies, then with them. When that is done
 * liars_strike_call() goes on. */
void liars_count_call(void *data, uint64_t arg);

/* scenarios_liars.c */
void liars_strike_call(void *data, uint64_t arg);

#endif
