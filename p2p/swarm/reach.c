/* reach.c - see reach.h.
 *
 * Happy path: reach_due() -> reach_begin() -> answers -> the last one, or the
 * deadline, ends the round -> judge(). What can go wrong: nobody answers (no
 * verdict, asked again), few are there to ask (a verdict, asked again soon).
 */
#include "p2p/swarm/reach.h"

#include <stdio.h>
#include <string.h>

#include "p2p/prefix.h"
#include "proto/base/rng.h"

void reach_init(struct reach *r,
                const struct reach_options *opt,
                uint64_t now_ms)
{
    memset(r, 0, sizeof *r);
    r->opt = *opt;
    r->rng = opt->seed;
    r->next_ms = now_ms;
    if (!opt->listens) {
        r->known = true;
        r->next_ms = CORE_NEVER;
    }
}

/* ---- addresses ---------------------------------------------------------- */

bool reach_is_global(const struct address *a)
{
    return !prefix_is_private(a->ip) && !prefix_is_nowhere(a->ip) &&
           !(prefix_is_v4(a->ip) && a->ip[12] == 0);
}

/* ---- rounds ------------------------------------------------------------- */

bool reach_due(const struct reach *r, uint64_t now_ms)
{
    return !r->testing && now_ms >= r->next_ms;
}

/* Beside those that are picked: of another prefix, 2; not picked, 1; else 0. */
static int worth(const struct reach_candidate *candidates,
                 uint32_t i,
                 const uint32_t *who,
                 unsigned n_who)
{
    int most = 2;

    for (unsigned k = 0; k < n_who; k++) {
        if (who[k] == i) {
            return 0;
        }
        if (prefix_eq(candidates[i].address.ip,
                      candidates[who[k]].address.ip)) {
            most = 1;
        }
    }
    return most;
}

static bool any_global(const struct reach_candidate *candidates, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (reach_is_global(&candidates[i].address)) {
            return true;
        }
    }
    return false;
}

unsigned reach_begin(struct reach *r,
                     const struct reach_candidate *candidates,
                     uint32_t n,
                     uint64_t now_ms,
                     uint32_t who[REACH_TESTS_MAX],
                     uint64_t request[REACH_TESTS_MAX])
{
    bool global = any_global(candidates, n);
    uint32_t first = n > 0 ? (uint32_t)rng_below(&r->rng, n) : 0;

    r->next_ms = now_ms + r->opt.settle_ms;
    r->n_tests = 0;
    while (r->n_tests < REACH_TESTS_MAX) {
        uint32_t best = n;
        int most = 0;

        for (uint32_t k = 0; k < n; k++) {
            uint32_t i = (first + k) % n;
            int w = worth(candidates, i, who, r->n_tests);

            if (w > most &&
                (!global || reach_is_global(&candidates[i].address))) {
                most = w;
                best = i;
            }
        }
        if (best == n) {
            break;
        }
        who[r->n_tests] = best;
        request[r->n_tests] = rng_next(&r->rng);
        r->tests[r->n_tests] = (struct reach_test){
            .peer = candidates[best].peer,
            .request = request[r->n_tests],
        };
        r->n_tests++;
    }
    r->testing = r->n_tests > 0;
    r->round_ms = now_ms;
    return r->n_tests;
}

/* At least half of those who answered got in? */
static void judge(struct reach *r, uint64_t now_ms)
{
    unsigned yes = 0, no = 0;
    bool dialable, doubt;

    for (unsigned i = 0; i < r->n_tests; i++) {
        yes += r->tests[i].answered && r->tests[i].reached;
        no += r->tests[i].answered && !r->tests[i].reached;
    }
    r->testing = false;
    r->next_ms = now_ms + r->opt.settle_ms;
    if (yes + no == 0) {
        return;
    }
    r->n_asked = r->n_tests;
    r->n_yes = yes;
    r->n_no = no;
    dialable = yes >= no;
    if (!r->known) {
        r->known = true;
        r->dialable = dialable;
    } else if (dialable == r->dialable) {
        r->against = 0;
    } else if (++r->against >= 2) {
        r->dialable = dialable;
        r->against = 0;
    }
    doubt = r->against > 0 || yes + no < 2 || (yes > 0 && no > 0);
    r->n_few = r->n_tests < 2 ? r->n_few + 1 : 0;
    if (!doubt) {
        r->next_ms = now_ms + r->opt.retest_ms;
    } else if (r->n_few > 1) { /* nobody else is here */
        r->next_ms =
            now_ms + (r->n_few < 6 ? r->n_few : 6ULL) * r->opt.settle_ms;
    }
}

void reach_answer(struct reach *r,
                  const struct peer_id *peer,
                  uint64_t request,
                  bool reached,
                  uint64_t now_ms)
{
    bool all = r->testing;

    for (unsigned i = 0; i < r->n_tests && r->testing; i++) {
        struct reach_test *t = &r->tests[i];

        if (t->request == request && id_eq(&t->peer, peer) && !t->answered) {
            t->answered = true;
            t->reached = reached;
        }
        all = all && t->answered;
    }
    if (all) {
        judge(r, now_ms);
    }
}

void reach_tick(struct reach *r, uint64_t now_ms)
{
    if (r->testing && now_ms - r->round_ms >= r->opt.answer_ms) {
        judge(r, now_ms);
    }
}

/* ---- what else happens -------------------------------------------------- */

static void again(struct reach *r, uint64_t now_ms)
{
    if (r->opt.listens && r->next_ms > now_ms) {
        r->next_ms = now_ms;
    }
}

void reach_seen(struct reach *r, const struct address *at, uint64_t now_ms)
{
    if (prefix_is_nowhere(at->ip)) {
        return;
    }
    /* A LAN neighbour sees another address of ours than the world does. */
    if (reach_is_global(&r->seen) && !reach_is_global(at)) {
        return;
    }
    if (!address_eq(&r->seen, at)) {
        r->seen = *at;
        again(r, now_ms);
    }
}

void reach_dialled(struct reach *r, uint64_t now_ms)
{
    if (r->known && !r->dialable) {
        r->against = 1; /* one round that agrees is enough */
        again(r, now_ms);
    }
}

void reach_mapped(struct reach *r, const struct address *at, uint64_t now_ms)
{
    bool mapped = at != NULL;

    if (mapped != r->mapped || (mapped && !address_eq(at, &r->mapped_at))) {
        r->mapped = mapped;
        if (mapped) {
            r->mapped_at = *at;
        }
        r->against = mapped != r->dialable;
        again(r, now_ms);
    }
}

void reach_relayed(struct reach *r, uint32_t n_links)
{
    r->n_relayed = n_links;
}

void reach_apart(struct reach *r, uint32_t n_peers, uint32_t n_relays)
{
    r->n_apart = n_peers;
    r->n_relays = n_relays;
}

/* ---- what it means ------------------------------------------------------ */

enum reach_class reach_class(const struct reach *r)
{
    if (!r->known) {
        return REACH_UNKNOWN;
    }
    if (r->dialable) {
        return r->mapped ? REACH_MAPPED : REACH_PUBLIC;
    }
    return r->n_relayed > 0 ? REACH_RELAYED : REACH_RESTRICTED;
}

bool reach_is_dialable(enum reach_class c)
{
    return c == REACH_PUBLIC || c == REACH_MAPPED;
}

const char *reach_name(enum reach_class c)
{
    static const char *const names[REACH_CLASS_COUNT] = {
        [REACH_UNKNOWN] = "unknown", [REACH_PUBLIC] = "public",
        [REACH_MAPPED] = "mapped",   [REACH_RESTRICTED] = "restricted",
        [REACH_RELAYED] = "relayed",
    };

    return c < REACH_CLASS_COUNT ? names[c] : "unknown";
}

void reach_reason(const struct reach *r, char out[CORE_TEXT_MAX])
{
    unsigned n = r->n_yes + r->n_no;
    char at[ADDRESS_TEXT_MAX];

    address_text(&r->seen, at);
    switch (reach_class(r)) {
    case REACH_PUBLIC:
        (void)snprintf(out, CORE_TEXT_MAX,
                       "%u of %u peers that tried reached %s", r->n_yes, n, at);
        return;
    case REACH_MAPPED:
        (void)snprintf(out, CORE_TEXT_MAX,
                       "the router maps a port: %u of %u peers that tried "
                       "reached %s",
                       r->n_yes, n, at);
        return;
    case REACH_RESTRICTED:
    case REACH_RELAYED:
        if (!r->opt.listens) {
            (void)snprintf(out, CORE_TEXT_MAX, "this peer does not listen");
            return;
        }
        if (r->n_apart > 0 && r->n_relays == 0) {
            (void)snprintf(out, CORE_TEXT_MAX,
                           "nobody can dial this peer or %u others that it "
                           "needs, and no peer relays: forward TCP port %u on "
                           "the router of one of them, or switch on UPnP there",
                           r->n_apart, r->seen.port);
            return;
        }
        if (r->mapped) {
            (void)snprintf(out, CORE_TEXT_MAX,
                           "the router maps a port, but %u of %u peers could "
                           "not reach %s: there is another NAT in front of it; "
                           "ask the provider for a public address",
                           r->n_no, n, at);
            return;
        }
        (void)snprintf(out, CORE_TEXT_MAX,
                       "%u of %u peers that tried could not reach %s: forward "
                       "TCP port %u on the router to this machine, switch on "
                       "UPnP there, or open the firewall",
                       r->n_no, n, at, r->seen.port);
        return;
    default:
        (void)snprintf(out, CORE_TEXT_MAX,
                       "no other peer has tried to dial this one yet");
        return;
    }
}
