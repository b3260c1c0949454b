/* topology.c - see topology.h. */
#include "tests/netlab/topology.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

void topology_init(struct topology *t, uint64_t seed)
{
    memset(t, 0, sizeof *t);
    memset(t->next, 0xff, sizeof t->next);
    t->seed = seed;
}

static uint16_t find(const struct topology *t, const char *name)
{
    for (uint16_t i = 0; i < t->n_nodes; i++) {
        if (strcmp(t->nodes[i].name, name) == 0) {
            return i;
        }
    }
    return NOWHERE;
}

uint16_t topology_find(struct topology *t, const char *name)
{
    uint16_t i = find(t, name);

    if (i == NOWHERE) {
        snprintf(t->why, sizeof t->why, "no node is called '%.40s'", name);
    }
    return i;
}

uint16_t topology_node(struct topology *t, const char *name)
{
    struct node *n = &t->nodes[t->n_nodes];

    if (name[0] == '\0' || strlen(name) > NAME_MAX_LEN) {
        snprintf(t->why, sizeof t->why, "a name has 1 to %d letters",
                 NAME_MAX_LEN);
        return NOWHERE;
    }
    if (find(t, name) != NOWHERE) {
        snprintf(t->why, sizeof t->why, "there is a node '%s'", name);
        return NOWHERE;
    }
    if (t->n_nodes == NODES_MAX) {
        snprintf(t->why, sizeof t->why, "more than %d nodes", NODES_MAX);
        return NOWHERE;
    }
    memcpy(n->name, name, strlen(name) + 1);
    n->tun_fd = n->space_fd = -1;
    return (uint16_t)t->n_nodes++;
}

/* ---- ways ------------------------------------------------------------- */

/* Breadth first, backwards from `to`. */
static void ways_to(struct topology *t, uint16_t to)
{
    uint16_t queue[NODES_MAX];
    unsigned head = 0, tail = 0;

    for (unsigned at = 0; at < t->n_nodes; at++) {
        t->next[at][to] = NOWHERE;
    }
    queue[tail++] = to;
    while (head < tail) {
        uint16_t here = queue[head++];

        for (uint16_t i = 0; i < t->n_links; i++) {
            uint16_t from = t->links[i].from;

            if (t->links[i].to == here && from != to &&
                t->next[from][to] == NOWHERE) {
                t->next[from][to] = i;
                queue[tail++] = from;
            }
        }
    }
}

static struct link *link_add(struct topology *t, uint16_t from, uint16_t to)
{
    struct link *l = &t->links[t->n_links];

    l->from = from;
    l->to = to;
    wire_init(&l->wire, t->seed * LINKS_MAX + t->n_links);
    t->n_links++;
    return l;
}

struct link *topology_link(struct topology *t, uint16_t a, uint16_t b)
{
    struct link *l;

    for (unsigned i = 0; i < t->n_links; i++) {
        if (t->links[i].from == a && t->links[i].to == b) {
            return &t->links[i];
        }
    }
    if (a == b || t->n_links + 2 > LINKS_MAX) {
        snprintf(t->why, sizeof t->why,
                 a == b ? "a link joins two nodes" : "too many links");
        return NULL;
    }
    l = link_add(t, a, b);
    (void)link_add(t, b, a);
    for (uint16_t to = 0; to < t->n_nodes; to++) {
        ways_to(t, to);
    }
    return l;
}

/* ---- addresses -------------------------------------------------------- */

static bool ip_parse(const char *text, uint8_t ip[16], unsigned *bits)
{
    if (inet_pton(AF_INET6, text, ip) == 1) {
        *bits = 128;
        return true;
    }
    memcpy(ip, mapped, sizeof mapped);
    *bits = 32;
    return inet_pton(AF_INET, text, ip + sizeof mapped) == 1;
}

static bool prefix_parse(const char *text, struct prefix *p)
{
    char ip[64];
    const char *slash = strchr(text, '/');
    size_t len = slash == NULL ? strlen(text) : (size_t)(slash - text);
    unsigned bits;

    if (len >= sizeof ip) {
        return false;
    }
    memcpy(ip, text, len);
    ip[len] = '\0';
    if (!ip_parse(ip, p->ip, &bits)) {
        return false;
    }
    p->bits = 128;
    if (slash != NULL) {
        char *end;
        unsigned long n = strtoul(slash + 1, &end, 10);

        if (end == slash + 1 || *end != '\0' || n > bits) {
            return false;
        }
        p->bits = (unsigned)n + (128 - bits);
    }
    return true;
}

bool topology_address(struct topology *t, uint16_t node, const char *prefix)
{
    struct prefix p = {.node = node};
    unsigned i = t->n_prefixes;

    if (!prefix_parse(prefix, &p)) {
        snprintf(t->why, sizeof t->why, "'%.60s' is not an address", prefix);
        return false;
    }
    if (t->n_prefixes == ADDRESSES_MAX) {
        snprintf(t->why, sizeof t->why, "more than %d addresses",
                 ADDRESSES_MAX);
        return false;
    }
    for (; i > 0 && t->prefixes[i - 1].bits < p.bits; i--) {
        t->prefixes[i] = t->prefixes[i - 1];
    }
    t->prefixes[i] = p;
    t->n_prefixes++;
    return true;
}

static bool within(const struct prefix *p, const uint8_t ip[16])
{
    unsigned whole = p->bits / 8, rest = p->bits % 8;

    return memcmp(p->ip, ip, whole) == 0 &&
           (rest == 0 || (p->ip[whole] ^ ip[whole]) >> (8 - rest) == 0);
}

uint16_t
topology_route(const struct topology *t, const uint8_t *packet, size_t len)
{
    uint8_t ip[16];

    if (len >= 20 && packet[0] >> 4 == 4) {
        memcpy(ip, mapped, sizeof mapped);
        memcpy(ip + sizeof mapped, packet + 16, 4);
    } else if (len >= 40 && packet[0] >> 4 == 6) {
        memcpy(ip, packet + 24, 16);
    } else {
        return NOWHERE;
    }
    for (unsigned i = 0; i < t->n_prefixes; i++) {
        if (within(&t->prefixes[i], ip)) {
            return t->prefixes[i].node;
        }
    }
    return NOWHERE;
}
