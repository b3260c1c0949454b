/* liar.c - the owner of a slice sums wrong: locod_liar is locod with this.
 *
 * The linker puts it before lanes_sum() and node_audit_serve() (-Wl,--wrap).
 * LOCO_LIES is the number of its first sum that is wrong; from there on every
 * one is, by the lowest bit of its last whole byte. With LOCO_MUTE it serves
 * what it contributed to nobody, so that nobody can repeat a sum.
 */
#include <stdlib.h>

#include "daemon/node/audit.h"
#include "train/sync/codec/lanes.h"

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
