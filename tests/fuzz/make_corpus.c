/* make_corpus.c - write the seeds of the fuzz targets of proto and p2p/link.
 *
 * Usage: fuzz_corpus [--check] FOLDER. FOLDER/TARGET must exist for every
 * target below. The same seeds in every run; they are small valid inputs, from
 * which the fuzzer finds its way into each branch. --check compares instead: a
 * seed of an older form is refused by the first decoder, and nothing else would
 * tell.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/settings/run_yaml.h"
#include "p2p/link/ask.h"
#include "proto/dht_msg.h"
#include "proto/frame.h"
#include "proto/manifest.h"
#include "proto/messages.h"
#include "proto/mp.h"
#include "proto/record.h"
#include "proto/uri.h"
#include "tests/unit/daemon/crime.h"
#include "tests/unit/p2p/dispute.h"
#include "tests/unit/proto/example.h"

static const char *folder;
static bool is_check, is_stale;
static uint8_t buf[MANIFEST_WIRE_MAX];

static void compare(const char *path, const void *bytes, int len)
{
    static uint8_t old[1 << 20];
    FILE *f = fopen(path, "rb");
    size_t n = f == NULL ? 0 : fread(old, 1, sizeof old, f);

    if (f == NULL || n != (size_t)len || memcmp(old, bytes, n) != 0) {
        (void)fprintf(stderr, "%s is not what fuzz_corpus writes\n", path);
        is_stale = true;
    }
    if (f != NULL) {
        (void)fclose(f);
    }
}

static void save(const char *name, const void *bytes, int len)
{
    char path[4096];
    FILE *f;

    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    if (is_check) {
        compare(path, bytes, len);
        return;
    }
    f = fopen(path, "wb");
    if (len < 0 || f == NULL ||
        fwrite(bytes, 1, (size_t)len, f) != (size_t)len || fclose(f) != 0) {
        (void)fprintf(stderr, "cannot write %s\n", path);
        exit(1);
    }
}

static void save_frames(void)
{
    struct frame_header h[3] = {
        {.type = 1, .len = 5},
        {.type = 3, .len = 40},
        {.type = 2, .flags = 1},
    };
    int n = 1;

    memset(buf, 'p', 200);
    buf[0] = 2; /* cut */
    for (int i = 0; i < 3; i++) {
        frame_header_encode(&h[i], buf + n);
        n += FRAME_HEADER_BYTES + (int)h[i].len;
    }
    save("frame/three", buf, n);
    save("frame/one", buf, 1 + FRAME_HEADER_BYTES + 5);
    save("frame/cut", buf, 30);
}

/* The object of msg_fuzz.c, written by hand. */
static void save_msg(void)
{
    struct mp_writer w;

    mp_write_init(&w, buf, sizeof buf);
    mp_write_array(&w, 7);
    mp_write_uint(&w, 255);
    mp_write_uint(&w, 256);
    mp_write_uint(&w, 70000);
    mp_write_uint(&w, UINT64_MAX);
    mp_write_bool(&w, true);
    mp_write_array(&w, 1);
    mp_write_array(&w, 2);
    mp_write_bin(&w, "0123456789abcdef0123456789abcdef", 32);
    mp_write_bin(&w, "data", 4);
    mp_write_array(&w, 16);
    for (uint64_t i = 0; i < 16; i++) {
        mp_write_uint(&w, (uint64_t)1 << (4 * i));
    }
    save("msg/full", buf, (int)w.len);
    save("msg/empty", "\x97\0\0\0\0\xc2\x90\x90", 8);
}

static void save_record(const struct identity *id)
{
    struct signer s = signer_keyed(id);
    struct record r = {.value_len = 5,
                       .value = "value",
                       .sequence = 7,
                       .expiry_s = 1800003600};

    (void)record_sign(&r, &s);
    save("record/short", buf, msg_encode(&record_schema, &r, buf, sizeof buf));
    r.value_len = RECORD_VALUE_MAX;
    (void)record_sign(&r, &s);
    save("record/long", buf, msg_encode(&record_schema, &r, buf, sizeof buf));
}

static void save_manifest(const struct identity *id)
{
    static struct run_yaml run;
    static char text[1 << 16];
    char path[4096], errmsg[LOCO_ERRMSG_MAX];
    FILE *f;

    example_manifest(&run.manifest);
    (void)run_yaml_sign(&run, id);
    save("manifest/bytes", buf,
         manifest_encode(&run.manifest, buf, sizeof buf));
    save("manifest/wire", buf,
         manifest_pack(&run.manifest, run.signature, buf, sizeof buf));
    (void)snprintf(path, sizeof path, "%s/run_yaml/signed", folder);
    if (run_yaml_save(&run, path, errmsg) != 0) {
        (void)fprintf(stderr, "%s\n", errmsg);
        exit(1);
    }
    f = fopen(path, "rb");
    if (f != NULL) {
        size_t n = fread(text, 1, sizeof text / 4, f);

        (void)fclose(f);
        save("run_yaml/half", text, (int)(n / 2));
    }
    save("run_yaml/flow", "{name: x, stop: {rounds: 1}}", 28);
}

/* Every control message once, all zero, with one element in each list. */
static void save_messages(void)
{
    char name[32];

    for (unsigned type = 0; type < 256; type++) {
        const struct msg_schema *s = message_schema((uint16_t)type);
        uint8_t *obj;
        int n;

        s = s != NULL ? s : dht_msg_schema((uint16_t)type);
        if (s == NULL) {
            continue;
        }
        obj = calloc(1, s->size);
        if (obj == NULL) {
            exit(1);
        }
        for (size_t i = 0; i < s->n_fields; i++) {
            const struct msg_field *f = &s->fields[i];
            const uint16_t half = 1;
            const uint32_t word = 1;

            if (f->count_size == 1) {
                obj[f->count_offset] = 1;
            } else if (f->count_size == 2) {
                memcpy(obj + f->count_offset, &half, sizeof half);
            } else if (f->count_size == 4) {
                memcpy(obj + f->count_offset, &word, sizeof word);
            }
        }
        buf[0] = (uint8_t)type;
        n = msg_encode(s, obj, buf + 1, sizeof buf - 1);
        (void)snprintf(name, sizeof name, "messages/type-%02x", type);
        save(name, buf, n < 0 ? n : n + 1);
        free(obj);
    }
}

static const struct moments moments = {
    .root = {{7}}, .steps = 300, .ends = {{8}}};

/* Of a run with audits of work. */
static void save_ready(void)
{
    struct ready *m = calloc(1, sizeof *m);
    int n;

    if (m == NULL) {
        exit(1);
    }
    m->body.epoch = m->body.round = m->body.lease = 1;
    m->body.tokens = 64;
    m->body.last_step = 5;
    m->body.n_moments = 1;
    m->body.moments[0] = moments;
    buf[0] = MESSAGE_READY;
    n = msg_encode(&ready_schema, m, buf + 1, sizeof buf - 1);
    save("messages/ready-moments", buf, n < 0 ? n : n + 1);
    free(m);
}

/* A commit of one member, with ranges and the ledger after it. */
static void save_commit(void)
{
    struct commit *c = calloc(1, sizeof *c);
    struct plan_body *p;
    int n;

    if (c == NULL) {
        exit(1);
    }
    p = &c->plan.body;
    p->epoch = p->round = p->n_members = p->n_ranges = p->n_ledgers = 1;
    p->members[0] = (struct plan_member){.tokens = 64,
                                         .last_step = 5,
                                         .lease = 1,
                                         .text = {.first = 3, .end = 9},
                                         .holds = 8};
    p->ranges[0].upto = 8;
    p->ranges[0].n_contributors = 1;
    p->ranges[0].contributors[0] =
        (struct contributor){.tokens = 64, .last_step = 5, .lease = 1};
    p->ledgers[0].next = 20;
    p->ledgers[0].n_returned = p->ledgers[0].n_held = 1;
    p->ledgers[0].returned[0] = (struct lease_range){.first = 10, .n = 5};
    p->ledgers[0].held[0] =
        (struct lease){.holder = 7, .n_ranges = 2, .ranges = {{5, 5}, {15, 5}}};
    buf[0] = MESSAGE_COMMIT;
    n = msg_encode(&commit_schema, c, buf + 1, sizeof buf - 1);
    save("messages/commit", buf, n < 0 ? n : n + 1);
    p->members[0].n_moments = 1;
    p->members[0].moments[0] = moments;
    n = msg_encode(&commit_schema, c, buf + 1, sizeof buf - 1);
    save("messages/commit-moments", buf, n < 0 ? n : n + 1);
    free(c);
}

static void save_text(void)
{
    static const char uri[] =
        "loco://[2001:db8::1]:4001,host.example:2/"
        "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
        "?peer="
        "ff112233445566778899aabbccddeeff00112233445566778899aabbccddee00";
    static const char *const sets[] = {
        "inner.lr=4e-4", "data.shards[0].urls[0]=https://x", "model.tied=true",
        "sync.wire=fp16", "seed=18446744073709551615"};
    char name[32];

    save("uri/long", uri, (int)strlen(uri));
    save("uri/host", "127.0.0.1:4001", 14);
    save("uri/short", "0123-4567-89", 12);
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        (void)snprintf(name, sizeof name, "doc/set-%zu", i);
        save(name, sets[i], (int)strlen(sets[i]));
    }
}

/* What a peer says to a relay, and what it hears. */
static void save_ask(const struct identity *id)
{
    struct ask ask = {.other = id->id, .token = 5};
    struct met met = {.ip = {[10] = 0xff, 0xff, 11, 0, 3, 1}, .port = 40000};

    ask_write(&ask, buf);
    save("ask/carry", buf, ASK_BYTES);
    ask.meet = true;
    ask_write(&ask, buf);
    save("ask/meet", buf, ASK_BYTES);
    met_write(&met, buf);
    save("ask/met", buf, MET_BYTES);
    ready_write(buf);
    save("ask/ready", buf, READY_BYTES);
}

/* A file that convicts, whole and cut; a round that is changed in each way. The
 * first byte is what evidence_fuzz.c makes of the rest. */
static void save_evidence(void)
{
    static const uint8_t changes[] = {2, 0,  0, 0, 1, 0,  4, 1, 0, 0, 4, 2,
                                      1, 40, 3, 3, 2, 12, 5, 4, 3, 1, 9, 5,
                                      0, 0,  0, 6, 0, 0,  7, 7, 0, 0, 3};
    struct crime *c = crime_open("e3m0", "centred");
    size_t len;
    uint8_t *bytes, *file;

    crime_lie(c, 0, 0);
    crime_seal(c);
    crime_vote(c, 0);
    bytes = crime_file(c, 0, 0, &len);
    file = crime_room(len + 1);
    memcpy(file + 1, bytes, len);
    save("evidence/convicts", file, (int)len + 1);
    save("evidence/half", file, (int)len / 2);
    save("evidence/changed", "\1\2\0\20\1\3\0\4", 8);
    save("evidence/round", changes, sizeof changes);
    save("evidence/lie", changes, 7);
    free(file);
    free(bytes);
    crime_close(c);
}

/* The same of bad work: conviction_fuzz.c. */
static void save_conviction(void)
{
    static const uint8_t words[] = {2, 0, 4, 0, 1, 3, 5, 2, 4, 1,
                                    3, 0, 0, 4, 5, 0, 5, 9, 0};
    struct crime *c = crime_room(sizeof *c);
    struct dispute d;
    uint8_t encoded[FRAME_CONTROL_MAX], *bytes, *file;
    size_t len;
    int n;

    crime_of_work(c, "work");
    dispute_open(&d, &c->run);
    n = msg_encode(&conviction_schema, &d.c, encoded, sizeof encoded);
    crime_need(n > 0);
    crime_need(evidence_write_work(c->wire, c->n_wire, encoded, (size_t)n,
                                   &bytes, &len) == 0);
    file = crime_room(len + 1);
    memcpy(file + 1, bytes, len);
    save("conviction/convicts", file, (int)len + 1);
    save("conviction/half", file, (int)len / 2);
    save("conviction/changed", "\1\1\2\0\20\1\3\0", 8);
    save("conviction/words", words, sizeof words);
    save("conviction/fewer", words, 7);
    free(file);
    free(bytes);
    free(c);
}

int main(int argc, char **argv)
{
    static const uint8_t seed[SIGN_SEED_BYTES] = {1, 2, 3};
    struct identity id;

    is_check = argc == 3 && strcmp(argv[1], "--check") == 0;
    if (argc != 2 + is_check || identity_generate(&id, seed) != 0) {
        (void)fprintf(stderr, "usage: fuzz_corpus [--check] FOLDER\n");
        return 2;
    }
    folder = argv[argc - 1];
    save_frames();
    save_msg();
    save_messages();
    save_ready();
    save_commit();
    save_record(&id);
    save_manifest(&id);
    save_text();
    save_evidence();
    save_conviction();
    save_ask(&id);
    return is_stale;
}
