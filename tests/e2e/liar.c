/* liar.c - a member that lies: locod_liar is locod with this.
 *
 * The linker puts it before the functions that it wraps (-Wl,--wrap).
 *
 * LOCO_LIES is the number of its first sum that is wrong; from there on every
 * one is, by the lowest bit of its last whole byte. With LOCO_MUTE it serves
 * what it contributed to nobody, so that nobody can repeat a sum.
 *
 * LOCO_WORK is what its own work is, beside what it says that it is:
 *     text   steps of other text than that of its lease
 *     half   every second step is not made
 *     back   each step goes the other way
 * Leases of others it makes again as anybody does; in one round of LOCO_EVERY.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/node/audit.h"
#include "p2p/round/repeat.h"
#include "train/replica/replica.h"
#include "train/sync/codec/lanes.h"

#define OTHER_TEXT 1000 /* positions ahead */

bool __real_node_audit_serve(struct node *n, int peer, const struct fetch *f);
bool __wrap_node_audit_serve(struct node *n, int peer, const struct fetch *f);

bool __wrap_node_audit_serve(struct node *n, int peer, const struct fetch *f)
{
    return getenv("LOCO_MUTE") == NULL && __real_node_audit_serve(n, peer, f);
}

int __real_lanes_sum(struct lanes *l, struct lanes_sum *s);
int __wrap_lanes_sum(struct lanes *l, struct lanes_sum *s);

int __wrap_lanes_sum(struct lanes *l, struct lanes_sum *s)
{
    static unsigned long sums;
    const char *first = getenv("LOCO_LIES");
    int rv = __real_lanes_sum(l, s);

    if (rv == 0 && first != NULL && ++sums >= strtoul(first, NULL, 10)) {
        s->dst[l->codec->bytes(s->n) - 2] ^= 1;
    }
    return rv;
}

/* ---- work --------------------------------------------------------------- */

bool __real_repeat_draw(const struct repeat_commit *c,
                        uint32_t self,
                        uint64_t secret,
                        uint32_t *whom);
bool __wrap_repeat_draw(const struct repeat_commit *c,
                        uint32_t self,
                        uint64_t secret,
                        uint32_t *whom);

bool __wrap_repeat_draw(const struct repeat_commit *c,
                        uint32_t self,
                        uint64_t secret,
                        uint32_t *whom)
{
    const char *every = getenv("LOCO_EVERY");
    struct repeat_commit often = *c;

    often.every = every == NULL ? c->every : (uint32_t)strtoul(every, NULL, 10);
    return __real_repeat_draw(&often, self, secret, whom);
}

void __real_replica_read(struct replica *r, bool shared, uint64_t position);
void __wrap_replica_read(struct replica *r, bool shared, uint64_t position);
int __real_replica_step(struct replica *r, float *loss);
/* Up the hill, as far as it would have gone down. */
static int step_back(struct replica *r, float *loss)
{
    float *before = malloc(r->n * sizeof(float));
    int rv;

    if (before == NULL) {
        abort();
    }
    memcpy(before, r->theta, r->n * sizeof(float));
    rv = __real_replica_step(r, loss);
    for (size_t i = 0; i < r->n; i++) {
        r->theta[i] = 2 * before[i] - r->theta[i];
    }
    free(before);
    return rv;
}

int __wrap_replica_step(struct replica *r, float *loss);

/* The replica that makes the first step is this member's own, the others are of
 * leases that it makes again. */
static bool lies_with(const struct replica *r, const char *kind)
{
    static const struct replica *own;
    const char *said = getenv("LOCO_WORK");

    own = own == NULL ? r : own;
    return said != NULL && own == r && strcmp(said, kind) == 0;
}

void __wrap_replica_read(struct replica *r, bool shared, uint64_t position)
{
    __real_replica_read(r, shared,
                        position + (lies_with(r, "text") ? OTHER_TEXT : 0));
}

/* As if no step had been made. */
static int idle_step(struct replica *r, float *loss)
{
    const size_t bytes = r->n * sizeof(float);
    float *kept = malloc(3 * bytes);
    float *const part[] = {r->theta, r->optimizer.u, r->optimizer.v};
    int rv;

    if (kept == NULL) {
        abort();
    }
    for (size_t i = 0; i < 3; i++) {
        memcpy(kept + i * r->n, part[i], bytes);
    }
    rv = __real_replica_step(r, loss);
    for (size_t i = 0; i < 3; i++) {
        memcpy(part[i], kept + i * r->n, bytes);
    }
    free(kept);
    return rv;
}

int __wrap_replica_step(struct replica *r, float *loss)
{
    static unsigned long steps;

    if (lies_with(r, "back")) {
        return step_back(r, loss);
    }
    return lies_with(r, "half") && ++steps % 2 == 0
               ? idle_step(r, loss)
               : __real_replica_step(r, loss);
}
