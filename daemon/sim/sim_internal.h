/* sim_internal.h - a running simulation, as scenarios see it. See sim.h. */
#ifndef LOCO_DAEMON_SIM_SIM_INTERNAL_H
#define LOCO_DAEMON_SIM_SIM_INTERNAL_H

#include "daemon/node/node.h"
#include "daemon/sim/check.h"
#include "daemon/sim/machine/local.h"
#include "daemon/sim/sim.h"
#include "daemon/sim/world/world.h"

#define SIM_MANIFEST_BYTES 40000 /* two parts on the wire */
#define SIM_START_MS       1000
#define SIM_ROUND_MS       1500 /* of a round without faults, about */

struct sim;
struct claims;
struct stranger;

struct scenario {
    const char *name, *help;
    uint32_t peers;
    uint64_t rounds;
    void (*options)(struct sim *s); /* before anything is made; may be NULL */
    void (*setup)(struct sim *s);   /* schedule; may be NULL */
    bool needs_base; /* first run without faults: counts victim_actions */
};

#define SIM_LIARS_MAX 16

struct sim {
    struct sim_options opt;
    struct world_options world_opt;
    struct local_options local_opt;
    struct world *world;
    struct local *local;
    struct check *check;
    struct node **nodes;
    uint32_t n, *lives;
    uint64_t rng, rounds;
    uint8_t manifest[SIM_MANIFEST_BYTES];
    struct hash32 run_id;

    /* Set by scenarios. */
    uint64_t calm_ms;          /* no faults after this */
    uint64_t limit_ms;         /* from calm to the end */
    bool fork_fine;            /* a majority is gone for good */
    bool quiet;                /* no fault: no attempt may fail */
    bool nat;                  /* some cannot be dialled: see check_nat() */
    bool direct;               /* in the end no link goes through a relay */
    bool punch;                /* some of them can meet: scenarios_nat.c */
    uint32_t starters;         /* peers that start by themselves */
    uint32_t need;             /* peers that must finish; 0: all live */
    uint64_t restart_after_ms; /* a killed peer comes back; 0: never */
    uint32_t victim;
    uint64_t at;        /* the victim's action */
    uint64_t freeze_ms; /* freeze the victim at `at` instead */
    bool frozen_once;
    uint64_t heard_at;     /* the victim's actions when another linked it */
    uint32_t edge[4];      /* 0 and 1 have no connection ... */
    bool two_edges;        /* nor 2 and 3, who are others */
    bool no_link, no_bulk; /* ... of that kind */
    uint64_t epochs_max;   /* views more than this are churn; 0: any number */
    uint32_t *group;
    uint64_t split_ms;
    uint32_t n_strangers; /* peers of the world behind the n of the run */
    struct stranger *strangers;
    struct claims *claims;         /* scenarios_claims.c */
    struct stranger_pen *pens;     /* of the peers of the run */
    struct liar *liar;             /* scenarios_liars.c */
    struct crowd *crowd;           /* scenarios_probation.c */
    struct trial *trial;           /* scenarios_convicts.c; its settings: */
    uint32_t trial_kind, accusers; /* 0: seeds take turns; half */
    bool rollbacks;                /* scenarios_rollback.c */
    struct {                       /* scenarios_work.c */
        bool on;
        uint32_t kind;
        uint64_t round;       /* the newest that was seen, */
        uint32_t n_rounds;    /* since the victim lies, */
        uint32_t n_with;      /* of them those that it has a part in */
        uint32_t every;       /* each audits one round of so many; 0: as ever */
        uint32_t liars;       /* so many lie, the victim first; 0: it alone */
        uint64_t begun_round; /* the newest when they began.. */
        uint64_t known_round; /* ..and when most convict each; 0: not yet */
        uint32_t known[SIM_LIARS_MAX]; /* rounds from then, of each; 0: not */
        /* By peer: whom it convicts, by what it keeps on disk (bits). */
        uint64_t held[VIEW_MEMBERS_MAX];
        bool restarted; /* all others died once, and are back */
        uint32_t read;  /* leases, by all */
        uint32_t back;  /* rounds left out, and trained for after all */
        bool begun;
    } work;
    bool audits;           /* scenarios_audit.c */
    bool missums;          /* the same: the victim sums wrong.. */
    uint64_t missum_round; /* ..after that round; 0: not yet.. */
    uint64_t liar_rounds;  /* ..and is out so many later; 0: not yet */
    struct {               /* scenarios_silence.c */
        bool on, begun;
        uint32_t mute;         /* who serves its contribution to nobody */
        uint64_t round;        /* the newest that was seen, */
        uint32_t n_rounds;     /* since it is mute, */
        uint32_t n_with;       /* of them those that it has a part in, */
        uint32_t row, row_max; /* following each other */
        uint32_t n_told;       /* without it, and its status says so */
        bool hides;            /* it keeps votes and commits from one */
    } silence;
    struct { /* scenarios_astray.c */
        bool begun;
        uint64_t round, epoch; /* the newest that was seen, */
        uint32_t n_rounds;     /* since some lie, */
        uint32_t n_with;       /* of them those that a liar has a part in, */
        uint32_t n_missing;    /* and those without an honest member */
    } astray;
    struct { /* scenarios_idle.c */
        bool begun;
        uint32_t kind;            /* 0: seeds take turns */
        uint32_t liars;           /* so many; 0: less than a third */
        uint64_t round, round_ms; /* the newest that was seen, and when */
        uint32_t n_rounds;        /* since then; in how many a peer was */
        uint32_t n_with[VIEW_MEMBERS_MAX];
    } idle;
    uint32_t misjudge; /* members that find every state bad; 0: one,
                          in some seeds */
    uint32_t lie;      /* its kind; 0: seeds take turns */
    bool spoils;       /* the victim serves pieces that are wrong */
    bool truth;        /* a liar says the truth from now on */
    uint32_t sources_max, sources_need; /* of a newcomer, at a time */
    bool urls_only;                     /* its shards come from URLs alone */
    uint32_t n_begin; /* the first ones begin with round 0; 0: not asked */

    /* scenarios_slow.c: a newcomer on a slow line. */
    struct {
        uint32_t tenths;      /* of a round, that its state takes */
        uint64_t round_ms;    /* before it came */
        uint64_t bytes_per_s; /* of its line; 0: nobody came */
        uint64_t first_round, came_round, entered_round;
        uint64_t entered_ms;           /* 0: it is outside */
        uint64_t longest_ms;           /* of a round until then */
        uint32_t generation, n_states; /* of states that it began to fetch */
        bool told;                     /* it says that it cannot follow */
    } slow;

    /* scenarios_shards.c: a newcomer whose shards come late. */
    struct {
        uint32_t tenths;      /* of a round, that a shard takes it */
        uint32_t read_tenths; /* and the run, to read it */
        uint64_t bytes_per_s; /* of its line; 0: nobody came */
        uint64_t first_round, whole_round, last_round;
        uint64_t came_ms, gave_ms, whole_ms; /* 0: not yet */
        uint64_t given, given_after; /* rounds with its tokens: before all
                                        shards were here, and after */
    } shards;

    /* scenarios_faults.c */
    struct {
        bool two_die;        /* another one with the victim: */
        uint32_t victim_too; /* itself: none */
        uint64_t aborts_max; /* of one peer; 0: any number */
        bool one_way;        /* lower groups do not reach others */
        bool goodput;        /* rounds are counted, */
        uint64_t first_ms, second_ms, end_ms; /* calm from, to; deaths to */
    } faults;

    /* scenarios_invited.c: a run for invited peers; peers of two releases. */
    struct {
        uint64_t revoked_ms; /* 0: not yet */
        bool was_in, was_refused;
        bool mixed; /* peers of two releases */
        uint8_t revocation[256];
    } invited;

    /* sites.c: an elected gateway dies in a round. */
    struct {
        bool elects;
        uint32_t peer, n_struck, struck_phase; /* who, whether it did, when */
        uint64_t struck_round;
    } gateway;

    /* links.c: edges differ in speed. */
    struct {
        bool differ;
        bool slow_line; /* all of the victim's are slow */
        enum exchange_kind
            slow_kind;        /* of the last plan when they healed ... */
        uint64_t slow_rounds; /* ... after so many */
        uint64_t
            *told; /* per peer: life and view of which it knows the rates */
    } lines;

    bool done;
    uint64_t finished_ms; /* all were finished since then; 0: not yet */
    char why[CHECK_TEXT_MAX];
    uint64_t malformed;
};

extern const struct scenario scenarios[];

/* scenarios_join.c */
void options_newcomer(struct sim *s);
void options_liar(struct sim *s);
void setup_many_sources(struct sim *s);
void setup_bad_source(struct sim *s);
void setup_source_dies(struct sim *s);
void setup_joiner_restarts(struct sim *s);
void setup_liar(struct sim *s);
void options_urls(struct sim *s);
void setup_urls(struct sim *s);
void options_init(struct sim *s);
void setup_init(struct sim *s);
/* At the end: it had as many sources as it needs. */
void check_sources(struct sim *s);

/* scenarios_claims.c */
void options_claims(struct sim *s);
void setup_claims(struct sim *s);
void sim_claims_judge(struct sim *s, struct sim_result *r);

/* scenarios_strangers.c */
void options_probation(struct sim *s);
void setup_probation(struct sim *s);
void options_liars(struct sim *s);
void sim_liars_made(struct sim *s); /* the settings are known */
/* Of the rounds without a liar that asks for views, those with it. */
void sim_liars_judge(const struct sim *s, struct sim_result *r);
void setup_liars(struct sim *s);
void options_strangers(struct sim *s);
/* What that peer signs and verifies with: it counts where there are strangers.
 */
struct signer sim_pen(struct sim *s, uint32_t peer);
void setup_strangers(struct sim *s);
void check_strangers(struct sim *s);

/* scenarios_audit.c */
void options_audit(struct sim *s);
void setup_audit(struct sim *s);
void check_audits(struct sim *s);
/* Whether node q has that peer in its view. */
bool sim_has_in_view(const struct sim *s, uint32_t q, uint32_t peer);
/* scenarios_silence.c: how many of the others found that peer silent; the
 * newest commit of a node of another peer than that one. */
uint32_t sim_n_finding(const struct sim *s, uint32_t peer);
const struct node_commit *sim_newest_but(const struct sim *s, uint32_t peer);
/* scenarios_work.c */
void options_work(struct sim *s);
/* Its kind is known. LOCO_EINVAL: what cannot be, and result->violation. */
int sim_work_made(struct sim *s, struct sim_result *result);
void setup_work(struct sim *s);
void check_work(struct sim *s);
void sim_work_started(struct sim *s, uint32_t peer);
/* As local_calls.convicted. */
void sim_work_convicted(void *self,
                        uint32_t peer,
                        const uint8_t *bytes,
                        size_t len);
/* As node_options.audit_every. */
uint32_t sim_work_every(const struct sim *s);
void sim_work_judge(const struct sim *s, struct sim_result *r);
/* Rounds until the liar was out; the run ended first: no figure. */
void sim_audit_judge(const struct sim *s, struct sim_result *r);

/* scenarios_silence.c */
void options_silence(struct sim *s);
void setup_silence(struct sim *s);
void check_silence(struct sim *s);

/* scenarios_astray.c */
void options_astray(struct sim *s);
void setup_astray(struct sim *s);
void check_astray(struct sim *s);
/* scenarios_idle.c */
void options_idle(struct sim *s);
void setup_idle(struct sim *s);
void check_idle(struct sim *s);

/* scenarios_rollback.c */
void options_rollback(struct sim *s);
void setup_rollback(struct sim *s);
void check_rollbacks(struct sim *s);

/* scenarios_convicts.c */
void options_convicts(struct sim *s);
void sim_convicts_made(struct sim *s); /* the settings are known */
void setup_convicts(struct sim *s);
void sim_convicts_started(struct sim *s, uint32_t peer);
void sim_convicts_judge(struct sim *s);

/* scenarios_slow.c */
void options_slow_join(struct sim *s);
void setup_slow_join(struct sim *s);
void sim_slow_judge(struct sim *s, struct sim_result *r);

/* scenarios_shards.c */
void options_late_shards(struct sim *s);
void setup_late_shards(struct sim *s);
void sim_shards_made(struct sim *s); /* the settings are known */
void sim_shards_judge(struct sim *s, struct sim_result *r);

/* scenarios_faults.c */
void options_kill_two(struct sim *s);
void setup_kill_two(struct sim *s);
void setup_half_restart(struct sim *s);
void setup_pause(struct sim *s);
void setup_freeze_edge(struct sim *s);
void setup_stuck(struct sim *s);
void setup_drain(struct sim *s);
void setup_split_three(struct sim *s);
void options_one_way(struct sim *s);
void setup_one_way(struct sim *s);
void setup_flap(struct sim *s);
void options_far(struct sim *s);
void setup_far(struct sim *s);
void options_crowd(struct sim *s);
void setup_join_crowd(struct sim *s);
void options_come_and_go(struct sim *s);
void setup_join_leave_join(struct sim *s);
void setup_goodput(struct sim *s);
/* A peer dies; the figures at the end. */
void sim_faults_died(struct sim *s, uint32_t peer);
void sim_faults_judge(struct sim *s, struct sim_result *r);

/* scenarios_invited.c */
/* Whether `id` is a member of the view of node `n`. */
bool sim_in_view(const struct node *n, const struct peer_id *id);
void options_invited(struct sim *s);
void setup_invited(struct sim *s);
void check_invited(struct sim *s);
/* What that peer shows. */
void sim_admit(const struct sim *s, uint32_t peer, struct node_options *o);
/* Whether it is right that it stops with a code that is not 0. */
bool sim_may_stop(struct sim *s, uint32_t peer, int rc);

/* scenarios_nat.c */
void options_nat_punch(struct sim *s);
void setup_nat_punch(struct sim *s);
void sim_nat_judge(struct sim *s, struct sim_result *r);

/* scenarios_twin.c */
void options_twin(struct sim *s);
void setup_twin(struct sim *s);
bool sim_twin_may_stop(struct sim *s, uint32_t peer, int rc);
void check_twin(struct sim *s);

/* Begin a process of this peer, with its durable state. */
void sim_start(struct sim *s, uint32_t peer);

/* The same as a world_fn: data = sim, arg = peer. */
void sim_start_call(void *data, uint64_t arg);

/* Each a world_fn: that peer dies; the same, and faults end then at the
 * earliest; the victim will die at its action. */
void sim_kill_call(void *data, uint64_t arg);
void sim_strike_call(void *data, uint64_t arg);
void sim_arm_call(void *data, uint64_t arg);

/* A time between lo and hi, from the seed. */
uint64_t sim_draw(struct sim *s, uint64_t lo, uint64_t hi);
/* When about so many rounds have been made. */
uint64_t sim_after_rounds(struct sim *s, uint64_t lo, uint64_t hi);

/* Of the live peers but one (n: of all). */
uint64_t sim_newest_round(const struct sim *s, uint32_t but);

/* Of the first peer, which lives. */
uint64_t sim_round(const struct sim *s);

/* Who comes later in the scenarios of newcomers; NULL while it is dead. */
static inline struct node *sim_newcomer(const struct sim *s)
{
    return s->nodes[s->n - 1];
}

/* links.c: bytes a second from one peer to another, for world_options; the
 * scenario, and its figures and target. */
uint64_t sim_rate(void *self, uint32_t from, uint32_t to);
void sim_links_options(struct sim *s);
void sim_links_setup(struct sim *s);
void sim_slow_line_options(struct sim *s);
void sim_slow_line_setup(struct sim *s);
void sim_links_judge(struct sim *s, struct sim_result *r);

/* sites.c: where a peer stands, in runs with sites; bytes a second between two;
 * the scenario, what it wants to know of a death, and its figures. */
uint32_t sim_site(const struct sim *s, uint32_t peer);
uint64_t sim_sites_rate(const struct sim *s, uint32_t from, uint32_t to);
void sim_sites_options(struct sim *s);
void sim_sites_setup(struct sim *s);
void sim_sites_died(struct sim *s, uint32_t peer);
void sim_sites_judge(struct sim *s, struct sim_result *r);

/* Faults end now at the earliest. */
void sim_fault(struct sim *s);

#endif
