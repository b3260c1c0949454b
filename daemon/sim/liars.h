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
    LIE_COUNT, /* seeds take turns at these */
    LIE_TWO = LIE_COUNT,
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

/* LIE_TWO: what is said instead; the new length. */
int liars_two(struct sim *s,
              uint32_t from,
              uint32_t to,
              uint16_t message,
              uint8_t *bytes,
              uint32_t len,
              uint32_t cap);

/* What this kind of liar says is added to what its node says. */
bool liars_ask(const struct liar *g);

/* Rounds are longer than ballots, and there are fewer. */
void liars_ask_options(struct sim *s);

/* The node of the liar, and what is added; for sim_start(). */
struct core liars_core(struct liar *g, struct node *node);

/* A world_fn: counts rounds without the liar's questions, then with them. When
 * that is done `after` goes on. */
void liars_count_call(void *data, uint64_t arg);
void liars_strike_call(void *data, uint64_t arg);

#endif
