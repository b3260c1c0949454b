/* list.c - the soft view: who takes part, and who is drawn from it.
 *
 * The list is what members.h knows: rows that a link or a rumour says are alive
 * and in the run's view, and ourselves. Its epoch is a sum over the ids, so it
 * is the same in any order, and cheap to look whether anything changed; only
 * then is the list sorted. Peers hear of a change within a few seconds of each
 * other; until then they name different epochs, and wait.
 */
#include "p2p/pair/internal.h"

#include "proto/base/pairing.h"

static bool takes_part(const struct member *p)
{
    return p->used && p->confirmed && p->state <= PEER_SUSPECT &&
           (p->info.features & PEER_IN_VIEW) != 0;
}

static uint64_t part_of_epoch(const struct peer_id *id)
{
    const uint64_t words[1] = {id_u64(id)};

    return rng_mix(words, 1);
}

static const struct peer_id *id_at(const struct pair *p, uint32_t i)
{
    int row = p->list.rows[i];

    return row == MEMBERS_NONE ? &p->opt.self : &p->members->peers[row].id;
}

/* Shell sort by id (Ciura's gaps): in place, no recursion, a thousand rows. */
static void sort(struct pair *p)
{
    static const uint32_t gaps[] = {701, 301, 132, 57, 23, 10, 4, 1};
    int *rows = p->list.rows;

    for (size_t g = 0; g < sizeof gaps / sizeof gaps[0]; g++) {
        for (uint32_t i = gaps[g]; i < p->list.n; i++) {
            struct peer_id id = *id_at(p, i);
            int row = rows[i];
            uint32_t k = i;

            while (k >= gaps[g] && id_cmp(id_at(p, k - gaps[g]), &id) > 0) {
                rows[k] = rows[k - gaps[g]];
                k -= gaps[g];
            }
            rows[k] = row;
        }
    }
}

static void make(struct pair *p, uint64_t epoch, uint64_t places)
{
    struct pair_list *l = &p->list;

    l->made = true;
    l->epoch = epoch;
    l->places = places;
    l->n = 0;
    l->rows[l->n++] = MEMBERS_NONE;
    for (uint32_t i = 0; i < p->members->n_peers; i++) {
        if (takes_part(&p->members->peers[i])) {
            l->rows[l->n++] = (int)i;
        }
    }
    sort(p);
    for (uint32_t i = 0; i < l->n; i++) {
        l->self = l->rows[i] == MEMBERS_NONE ? i : l->self;
    }
}

void pair_look_again(struct pair *p)
{
    uint64_t epoch = part_of_epoch(&p->opt.self), places = 0;

    for (uint32_t i = 0; i < p->members->n_peers; i++) {
        if (takes_part(&p->members->peers[i])) {
            uint64_t part = part_of_epoch(&p->members->peers[i].id);

            epoch += part;
            places += part * (i + 1);
        }
    }
    /* Rows are given to others, and somebody may come back to another one. */
    if (!p->list.made || p->list.epoch != epoch || p->list.places != places) {
        make(p, epoch, places);
    }
}

uint32_t pair_n_members(struct pair *p)
{
    pair_look_again(p);
    return p->list.n;
}

int pair_draw(const struct pair *p)
{
    uint32_t scratch[PEERS_MAX + 1];
    uint32_t i = pairing_partner(p->opt.seed, p->list.epoch, p->turn - 1,
                                 p->list.n, p->list.self, scratch);

    return i == PAIRING_BYE ? MEMBERS_NONE : p->list.rows[i];
}

uint64_t pair_turn_of_others(const struct pair *p)
{
    const struct members *m = p->members;
    uint64_t turns[LINKS_MAX];
    uint32_t n = 0;

    for (uint32_t i = 0; i < m->n_links_used && n < LINKS_MAX; i++) {
        const struct member *q =
            m->links[i].used ? &m->peers[m->links[i].peer] : NULL;
        uint64_t turn;
        uint32_t k = n;

        if (q == NULL || !q->has_beat || !q->beat.has_view) {
            continue;
        }
        turn = q->beat.round + 1;
        while (k > 0 && turns[k - 1] > turn) {
            turns[k] = turns[k - 1];
            k--;
        }
        turns[k] = turn;
        n++;
    }
    /* Of an even number the upper one in the middle: of peers that a cut had
     * parted those behind follow half of the others, or the smaller side would
     * stay ahead, and alone, for ever. */
    return n == 0 ? 0 : turns[n / 2];
}
