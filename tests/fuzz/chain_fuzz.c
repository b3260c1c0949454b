/* chain_fuzz.c - any bytes as a chain of views: refused by a code, or proof of
 * a well-formed view of the run that is read the same again.
 *
 * The first byte says how: raw bytes, or a good chain of three views with bytes
 * of it changed, cut or repeated as the rest says.
 */
#include <stdlib.h>
#include <string.h>

#include "p2p/round/chain.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PEERS 4U

static uint8_t good[CHAIN_BYTES_MAX], bytes[CHAIN_BYTES_MAX];
static uint8_t again[CHAIN_BYTES_MAX], memory[CHAIN_BYTES_MAX];
static uint32_t n_good;
static struct identity who[PEERS];
static struct signer pen[PEERS];

static void add(struct chain *c,
                const struct chain_rules *rules,
                uint64_t epoch,
                enum view_mode mode)
{
    struct view_cert v = {.ballot = epoch};
    struct ballot_body b = {.ballot = epoch};

    v.body.epoch = epoch;
    v.body.mode = (uint8_t)mode;
    v.body.round = epoch - 1;
    v.body.n_members = PEERS;
    for (uint32_t i = 0; i < PEERS; i++) {
        memcpy(v.body.members[i].public_key, who[i].public, 32);
    }
    if (view_sort(&v.body) != 0) {
        abort();
    }
    view_hash(&v.body, &b.view);
    for (uint32_t i = 0; i < PEERS; i++) {
        memcpy(v.sigs[i].public_key, who[i].public, 32);
        if (message_sign(&pen[i], &ballot_body_schema, &b, v.sigs[i].sig) !=
            0) {
            abort();
        }
    }
    v.n_sigs = PEERS;
    if (chain_extend(c, rules, &v) != 0) {
        abort();
    }
}

static void make_good(const struct chain_rules *rules)
{
    struct chain c;

    chain_init(&c, good);
    add(&c, rules, 1, VIEW_FOUND);
    add(&c, rules, 2, VIEW_MAJORITY);
    n_good = c.used;
}

static size_t prepare(const uint8_t *data, size_t size)
{
    size_t len = n_good;

    if (data[0] % 2 == 0) {
        len = size - 1 < sizeof bytes ? size - 1 : sizeof bytes;
        memcpy(bytes, data + 1, len);
        return len;
    }
    memcpy(bytes, good, n_good);
    for (size_t i = 1; i + 2 < size; i += 3) {
        bytes[(data[i] << 8 | data[i + 1]) % n_good] ^= data[i + 2];
    }
    return data[0] % 4 == 1 ? len : len * data[0] / 256;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct chain_rules rules = {.min_peers = 2, .signer = &pen[0]};
    struct view_cert last;
    struct chain c;
    size_t len;

    if (size == 0) {
        return 0;
    }
    for (uint64_t i = 0; i < PEERS && n_good == 0; i++) {
        identity_fake(&who[i], i);
        pen[i] = signer_keyed(&who[i]);
    }
    if (n_good == 0) {
        make_good(&rules);
    }
    len = prepare(data, size);
    chain_init(&c, memory);
    if (chain_read(&c, &rules, bytes, len) != 0) {
        if (c.n != 0 || c.used != 0) {
            abort();
        }
        return 0;
    }
    if (!chain_last(&c, &last) || !view_well_formed(&last.body) ||
        !hash32_eq(&last.body.run, &rules.run)) {
        abort();
    }
    len = c.used;
    memcpy(again, c.bytes, len);
    if (chain_read(&c, &rules, again, len) != 0 || c.used != len ||
        memcmp(again, c.bytes, len) != 0) {
        abort();
    }
    return 0;
}
