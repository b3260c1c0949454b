/* pipeline_world.h - pipelines alone, in virtual time: hosts that are nothing
 * but a p2p/pipeline core, a trainer that takes commands one after the other,
 * and an uplink that sends one thing after the other.
 *
 * Times of computing and of messages are log-normal (median, sigma), drawn
 * anew each time, as NoLoCo's section 5.3 has them. A message that left
 * arrives after those before it on its link. Hosts die, freeze (what comes
 * meanwhile waits) and lose the edge between two of them; the others are told
 * within `notice_ms`.
 *
 * The world keeps for each host what its sum of gradients holds, as a set of
 * micro-batches, and for each step what was counted: pipeline.c's
 * oracle reads that. A contradiction that shows at once (a micro-batch twice
 * in a sum, a slot that is none) is a violation in `why`.
 *
 * One seed, one run. Memory grows with hosts, steps and what is under way.
 */
#ifndef LOCO_DAEMON_SIM_PIPELINE_WORLD_H
#define LOCO_DAEMON_SIM_PIPELINE_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/sim/world/agenda.h"
#include "daemon/sim/world/scenario.h"
#include "p2p/pipeline/pipeline.h"

#define PW_SET_WORDS (PIPELINE_MICRO_MAX / 64)

/* A set of micro-batches of one step. */
struct pw_set {
    uint64_t word[PW_SET_WORDS];
};

struct pw_options {
    uint64_t seed;
    uint32_t hosts, stages, micro_batches, steps, slots, fixed;
    double compute_ms, compute_sigma; /* one forward pass */
    double backward;                  /* a backward pass is so many of it */
    double link_ms, link_sigma;       /* one way */
    double transfer_ms;               /* of the uplink, activations of one */
    double unequal; /* sigma of the hosts' speeds; 0: all alike */
    uint32_t blind; /* 1: no host knows its speed; 0: a round before said it */
    uint32_t gather_ms, notice_ms;
    uint32_t lose;   /* of a thousand messages */
    uint64_t end_ms; /* virtual time that is too long */
};

/* What a host counted for one step. */
struct pw_record {
    bool counted;
    uint32_t attempt; /* that made the sum */
    uint64_t layout;  /* hosts of that attempt */
    struct pw_set set;
};

/* A segment that is expected. */
struct pw_post {
    bool back;
    uint64_t tag;
    uint32_t micro, from;
};

struct pw_host {
    struct pipeline p;
    bool dead, frozen, ended;
    double slowness;
    uint64_t busy_until_us, uplink_until_us;
    uint64_t busy_us;  /* computed, all told */
    uint64_t ended_us; /* when the round was over here */
    uint64_t ticked;
    uint64_t cancelled; /* tags up to this are dropped */
    uint32_t sum_attempt;
    uint64_t sum_layout;
    struct pw_set sum;
    struct pw_post *posts;
    uint32_t n_posts, room_posts;
    struct pw_record *steps; /* (steps) */
    uint64_t passes, wasted; /* gradients summed; of them thrown away */
    uint64_t last_us[PIPELINE_HOSTS_MAX]; /* arrival of the last to each */
};

struct pipeline_world {
    struct pw_options opt;
    uint64_t rng, now_us;
    struct pipeline_host list[PIPELINE_HOSTS_MAX]; /* by id, as cores have it */
    struct pw_host *host;                          /* (hosts) */
    struct agenda agenda;                          /* of struct pw_event */
    uint64_t hash, checked;
    uint64_t decided; /* sums held that another host's word decided */
    char why[SIM_TEXT_MAX];
};

/* NULL: out of memory. Hosts are spread evenly over the stages, the first ones
 * get what is left over. pw_close afterwards. */
struct pipeline_world *pw_open(const struct pw_options *opt);
void pw_close(struct pipeline_world *w);

/* Before pw_run: at that time a host dies (freeze_ms 0) or freezes, two of
 * them lose their edge. */
void pw_strike(struct pipeline_world *w,
               uint32_t host,
               uint64_t at_ms,
               uint64_t freeze_ms);
void pw_cut(struct pipeline_world *w, uint32_t a, uint32_t b, uint64_t at_ms);

/* A host loses what it has of the attempt, and goes on. */
void pw_lose_work(struct pipeline_world *w, uint32_t host, uint64_t at_ms);

/* Until nothing happens any more, a violation, or end_ms. */
void pw_run(struct pipeline_world *w);

void pw_fail(struct pipeline_world *w, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* From the seed, below n. */
uint64_t pw_below(struct pipeline_world *w, uint64_t n);

uint32_t pw_set_count(const struct pw_set *s);

#endif
