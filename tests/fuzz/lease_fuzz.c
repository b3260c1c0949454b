/* lease_fuzz.c - any bytes as a ledger: refused, or safe to settle on.
 *
 * What the schema lets through comes from whoever coordinates a round. Ledgers
 * that nobody would make (ranges over each other, numbers at the end of 64
 * bits, holders twice) must not lead out of a table. The first bytes say what
 * the commit is: who is a member, who has a slot, what is spent.
 */
#include <stdlib.h>
#include <string.h>

#include "p2p/round/lease.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HEAD 16U

static struct ledger ledger, again;
static struct view_body view;
static uint8_t bytes[FRAME_CONTROL_MAX];

static void require(bool ok)
{
    if (!ok) {
        abort();
    }
}

static void check(const struct ledger *l)
{
    int n;

    require(l->n_held <= LEDGER_HELD_MAX &&
            l->n_returned <= LEDGER_RETURNED_MAX);
    for (uint32_t i = 0; i < l->n_held; i++) {
        require(l->held[i].n_ranges <= LEASE_RANGES_MAX);
    }
    n = msg_encode(&ledger_schema, l, bytes, sizeof bytes);
    require(n > 0 && msg_decode(&ledger_schema, bytes, (size_t)n, &again) == 0);
    require(ledger_eq(l, &again));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t holders[VIEW_MEMBERS_MAX];
    struct lease_spent spent[4];
    struct text_span texts[VIEW_MEMBERS_MAX];
    struct lease_commit c = {
        .view = &view, .holders = holders, .spent = spent, .n_spent = 4};
    bool spans;
    struct lease lease;

    if (size < HEAD ||
        msg_decode(&ledger_schema, data + HEAD, size - HEAD, &ledger) != 0) {
        return 0;
    }
    memset(&view, 0, sizeof view);
    view.n_members = data[0] % VIEW_MEMBERS_MAX + 1U;
    view.slots = data[1] * 3U;
    c.quota = data[2] * (data[3] % 2 ? 1U : 1U << 24);
    c.first = data[3] & 4;
    for (uint32_t i = 0; i < view.n_members; i++) {
        view.members[i].slot = i < 8 ? data[8 + i] : 0;
        holders[i] =
            i < ledger.n_held && data[3] & 8 ? ledger.held[i].holder : i + 1;
    }
    spans = data[3] & 16;
    for (uint32_t i = 0; i < VIEW_MEMBERS_MAX; i++) { /* wrong ones, too */
        texts[i].first = i % 3 == 0 ? ledger.next - data[4] : data[4] * i;
        texts[i].end = i % 4 == 0 ? 0 : texts[i].first + data[6] - i;
    }
    c.texts = spans ? texts : NULL;
    for (uint32_t i = 0; i < 4; i++) {
        spent[i] = (struct lease_spent){
            .holder = holders[i % view.n_members],
            .lease = i < ledger.n_held ? ledger.held[i].ranges[0].first + 1
                                       : data[4] * 1ULL,
            .steps = data[5] & 1 ? UINT64_MAX : data[6],
        };
    }
    (void)lease_slots_valid(&view);
    lease_settle(&ledger, &c);
    check(&ledger);
    for (uint32_t i = 0; i < view.n_members; i++) {
        uint64_t at;

        if (lease_of(&ledger, c.quota, &view, i, holders[i], c.first, &lease)) {
            require(lease.n_ranges <= LEASE_RANGES_MAX);
            (void)lease_at(&lease, data[7], &at);
        }
    }
    return 0;
}
