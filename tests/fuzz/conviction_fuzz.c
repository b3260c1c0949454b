/* conviction_fuzz.c - any bytes as a file about bad work: refused by a code and
 * a sentence, and accepted only where most members of the view that the accused
 * signed say that its work is bad.
 *
 * The first byte says how: raw bytes; a file that convicts with bytes of it
 * changed, which convicts nobody else and of nothing else; or members, words
 * and who counts changed before all is signed, so that everything behind the
 * signatures is reached.
 */
#include "proto/base/err.h"
#include "tests/unit/daemon/crime.h"
#include "tests/unit/p2p/dispute.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct crime *run;
static struct dispute scene;
static uint8_t *good; /* it convicts DISPUTE_ACCUSED */
static size_t n_good;

static int check(const uint8_t *bytes, size_t len, struct evidence_verdict *v)
{
    char errmsg[ERRMSG_SIZE] = "";
    int rv = evidence_check(bytes, len, &scene.verifier, v, errmsg);

    if ((rv == 0) != (errmsg[0] == '\0')) {
        abort(); /* every refusal has a sentence */
    }
    return rv;
}

static uint8_t *file_of(const struct conviction *c, size_t *len)
{
    uint8_t encoded[FRAME_CONTROL_MAX], *bytes;
    int n = msg_encode(&conviction_schema, c, encoded, sizeof encoded);

    crime_need(n > 0);
    crime_need(evidence_write_work(run->wire, run->n_wire, encoded, (size_t)n,
                                   &bytes, len) == 0);
    return bytes;
}

static void setup(void)
{
    struct evidence_verdict v;

    crime_need(sign_start() == 0);
    run = crime_room(sizeof *run);
    crime_of_work(run, "work");
    dispute_open(&scene, &run->run);
    good = file_of(&scene.c, &n_good);
    crime_need(check(good, n_good, &v) == 0);
}

/* Nobody can sign in the name of others: at most words are left out, which are
 * none too many here. */
static void no_forgery(const uint8_t *bytes, size_t len)
{
    struct evidence_verdict v;

    if (check(bytes, len, &v) == 0 && v.finding == EVIDENCE_BAD_WORK &&
        (len != n_good || memcmp(bytes, good, len) != 0)) {
        abort();
    }
}

static void changed_file(const uint8_t *data, size_t size)
{
    size_t len = size > 1 && data[1] % 4 == 0 ? n_good * data[1] / 256 : n_good;
    uint8_t *bytes = crime_room(n_good);

    memcpy(bytes, good, n_good);
    for (size_t i = 2; i + 2 < size; i += 3) {
        bytes[(size_t)(data[i] << 8 | data[i + 1]) % n_good] ^= data[i + 2];
    }
    no_forgery(bytes, len);
    free(bytes);
}

/* One change of who is there and who says what. */
static void change(struct dispute *d, const uint8_t b[3])
{
    struct conviction *c = &d->c;

    switch (b[0] % 6) {
    case 0:
        c->n_words = b[1] % (DISPUTE_MEMBERS + 1);
        break;
    case 1:
        c->words[b[1] % DISPUTE_MEMBERS].member = b[2] % (DISPUTE_MEMBERS + 1);
        break;
    case 2:
        c->view.members[b[1] % DISPUTE_MEMBERS].full_since =
            b[2] % 2 == 0 ? FULL_NEVER : b[2];
        break;
    case 3:
        c->accused = b[1] % (DISPUTE_MEMBERS + 1);
        break;
    case 4:
        c->view.n_members = b[1] % (DISPUTE_MEMBERS + 1);
        break;
    default:
        c->view.epoch = b[1];
        break;
    }
}

/* Distinct full members that speak, but for the accused. */
static uint32_t n_speakers(const struct conviction *c)
{
    uint64_t said = 0;

    for (uint32_t k = 0; k < c->n_words; k++) {
        said |= c->words[k].member != c->accused ? 1U << c->words[k].member : 0;
    }
    return (uint32_t)__builtin_popcountll(said & view_full(&c->view));
}

static void changed_words(const uint8_t *data, size_t size)
{
    struct dispute d = scene;
    struct evidence_verdict v;
    uint8_t *bytes;
    size_t len;

    for (size_t i = 1; i + 2 < size; i += 3) {
        change(&d, data + i);
    }
    dispute_vote(&d, d.c.accused % DISPUTE_MEMBERS);
    for (uint32_t k = 0; k < d.c.n_words; k++) {
        if (d.c.words[k].member < DISPUTE_MEMBERS &&
            d.c.accused < DISPUTE_MEMBERS) {
            dispute_put(&d, k, d.c.words[k].member);
        }
    }
    bytes = file_of(&d.c, &len);
    if (check(bytes, len, &v) == 0 &&
        (2 * n_speakers(&d.c) <= view_n_full(&d.c.view) ||
         v.n_words != n_speakers(&d.c) || v.n_members < REPEAT_FULL_MIN ||
         !view_is_full(&d.c.view, d.c.accused) ||
         !id_eq(&v.accused, &d.who[d.c.accused].id))) {
        abort();
    }
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    if (run == NULL) {
        setup();
    }
    if (data[0] % 3 == 0) {
        no_forgery(data + 1, size - 1);
    } else if (data[0] % 3 == 1) {
        changed_file(data, size);
    } else {
        changed_words(data, size);
    }
    return 0;
}
