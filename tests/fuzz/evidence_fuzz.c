/* evidence_fuzz.c - any bytes as a file of evidence: refused by a code, and
 * accepted only where a member that signed for it did not sum as it had to.
 *
 * The first byte says how: raw bytes; a file that convicts with bytes of it
 * changed, cut or added, which nobody can make convict again; or a round whose
 * plan, contributions or result are changed before the accused signs them, so
 * that everything behind the signatures is reached.
 */
#include "proto/base/err.h"
#include "tests/unit/daemon/crime.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct crime *scene;
static struct plan_body honest_plan;
static uint8_t *good; /* it convicts rank 0 */
static size_t n_good;

static int check(const uint8_t *bytes, size_t len, struct evidence_verdict *v)
{
    char errmsg[ERRMSG_SIZE] = "";
    int rv = evidence_check(bytes, len, &scene->verifier, v, errmsg);

    if ((rv == 0) != (errmsg[0] == '\0')) {
        abort(); /* every refusal has a sentence */
    }
    return rv;
}

static void setup(void)
{
    struct evidence_verdict v;

    crime_need(sign_start() == 0);
    scene = crime_open("e3m0", "centred");
    honest_plan = scene->plan;
    crime_lie(scene, 0, 0);
    crime_seal(scene);
    crime_vote(scene, 0);
    good = crime_file(scene, 0, 0, &n_good);
    crime_need(check(good, n_good, &v) == 0);
}

/* Nobody can sign in the name of who is accused. */
static void no_forgery(const uint8_t *bytes, size_t len)
{
    struct evidence_verdict v;

    if (check(bytes, len, &v) == 0 &&
        (len != n_good || memcmp(bytes, good, len) != 0)) {
        abort();
    }
}

static void changed_file(const uint8_t *data, size_t size)
{
    size_t len = n_good + size;
    uint8_t *bytes = crime_room(len);

    memcpy(bytes, good, n_good);
    for (size_t i = 1; i + 2 < size; i += 3) {
        bytes[(size_t)(data[i] << 8 | data[i + 1]) % n_good] ^= data[i + 2];
    }
    len = size > 1 && data[1] % 4 == 0   ? n_good * data[1] / 256
          : size > 1 && data[1] % 4 == 1 ? n_good + data[1]
                                         : n_good;
    len = len < n_good + size ? len : n_good;
    no_forgery(bytes, len);
    free(bytes);
}

/* One change of the round: what, where, and how. */
static void change(struct crime *c, const uint8_t d[4])
{
    struct plan_member *m = &c->plan.members[d[1] % CRIME_MEMBERS];
    size_t at = (size_t)(d[2] << 8 | d[3]) % c->bytes;

    switch (d[0] % 8) {
    case 0:
        c->given[d[1] % CRIME_MEMBERS][at] ^= d[3];
        break;
    case 1:
        c->result[at] ^= d[3];
        break;
    case 2:
        m->tokens = d[2] == 255 ? UINT64_MAX : (uint64_t)d[3] << d[2] % 56;
        break;
    case 3:
        m->share = d[2] == 255 ? UINT32_MAX : (uint32_t)d[3] << d[2] % 16;
        break;
    case 4:
        m->index = d[2] % 2 == 0 ? d[3] % CRIME_MEMBERS : d[3];
        break;
    case 5:
        m->gateway = d[3] % 2 == 0;
        break;
    case 6:
        c->plan.round = d[3];
        break;
    default:
        c->plan.n_members = d[3] % (CRIME_MEMBERS + 1);
        break;
    }
}

static bool is_plain(const struct plan_body *p)
{
    for (uint32_t k = 0; k < CRIME_MEMBERS; k++) {
        if (p->members[k].index >= CRIME_MEMBERS) {
            return false;
        }
    }
    return p->n_members == CRIME_MEMBERS;
}

/* What convicts is not the sum; `said` is the result. */
static void no_injustice(const struct evidence_verdict *v, const uint8_t *said)
{
    struct crime *c = scene;
    uint64_t b = v->first / c->terms.block;

    if (crime_sum(c) &&
        memcmp(c->result + crime_at(c, b), said + crime_at(c, b),
               crime_place(c, b).bytes) == 0) {
        abort();
    }
}

static void changed_round(const uint8_t *data, size_t size)
{
    struct crime *c = scene;
    uint32_t rank = data[1] % CRIME_MEMBERS;
    struct evidence_verdict v;
    uint8_t *bytes, *said = crime_room(c->bytes);
    size_t len;

    c->plan = honest_plan;
    crime_give(c);
    crime_need(crime_sum(c));
    for (size_t i = 3; i + 3 < size; i += 4) {
        change(c, data + i);
    }
    memcpy(said, c->result, c->bytes);
    if (is_plain(&c->plan)) {
        crime_seal(c);
    }
    view_hash(&c->view, &c->plan.view);
    if (crime_index(c, rank) < CRIME_MEMBERS) {
        crime_vote(c, rank);
        bytes = crime_file(c, rank, data[2] % c->n_blocks, &len);
        if (check(bytes, len, &v) == 0) {
            no_injustice(&v, said);
        }
        free(bytes);
    }
    free(said);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    if (scene == NULL) {
        setup();
    }
    if (data[0] % 3 == 0) {
        no_forgery(data + 1, size - 1);
    } else if (data[0] % 3 == 1) {
        changed_file(data, size);
    } else if (size > 3) {
        changed_round(data, size);
    }
    return 0;
}
