/* protocol_test.c - the examples of PROTOCOL.md are what this code does.
 *
 * Each example below is made by the code and must stand in the document line
 * by line. `test_proto_protocol --print` prints them all, for the document.
 */
#include "tests/unit/proto/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/dht_msg.h"
#include "proto/frame.h"
#include "proto/hash.h"
#include "proto/messages.h"
#include "proto/record.h"
#include "proto/sample.h"
#include "proto/uri.h"
#include "tests/unit/proto/example.h"

#define TEXT_MAX    16384
#define LINE_MAX    96 /* columns of the field tables */
#define STRUCTS_MAX 80

static char text[TEXT_MAX];
static size_t n_text;
static struct identity alice;
static struct manifest m;
static uint8_t bytes[MANIFEST_WIRE_MAX];

/* One line "label  value" of the example in `text`. */
static void say(const char *label, const char *value)
{
    n_text += (size_t)snprintf(text + n_text, sizeof text - n_text, "%-12s%s\n",
                               label, value);
}

static void say_hex(const char *label, const uint8_t *p, size_t n)
{
    char hex[2 * 64 + 1];

    assert_true(n <= 64);
    hex_encode(p, n, hex);
    say(label, hex);
}

/* Sixteen bytes a line, with their offset. */
static void dump(const uint8_t *p, size_t n)
{
    for (size_t at = 0; at < n; at += 16) {
        char line[64] = "", label[24];
        size_t k = 0;

        for (size_t i = at; i < n && i < at + 16; i++) {
            k += (size_t)snprintf(line + k, sizeof line - k, "%02x ", p[i]);
        }
        line[k - 1] = '\0';
        (void)snprintf(label, sizeof label, "%04zx", at);
        say(label, line);
    }
}

static void make_identity(void)
{
    char id[ID_SHORT_MAX];

    say_hex("seed", alice.secret, 32);
    say_hex("public", alice.public, 32);
    say_hex("peer id", alice.id.b, 32);
    id_short(&alice.id, id);
    say("short form", id);
}

static void make_signature(void)
{
    uint8_t sig[SIGN_BYTES];
    struct hash32 h;

    assert_int_equal(sign_detached(&alice, "loco-example", "abc", 3, sig), 0);
    hash_bytes("loco-example", "abc", 3, &h);
    say_hex("signed", h.b, 32);
    say_hex("signature", sig, SIGN_BYTES);
}

static void make_tree(void)
{
    const size_t len = 2 * (size_t)HASH_PIECE_BYTES + 1;
    uint8_t *zeros = calloc(1, len);
    struct hash32 h;

    assert_non_null(zeros);
    hash_tree(NULL, 0, &h);
    say_hex("no bytes", h.b, 32);
    hash_tree("abc", 3, &h);
    say_hex("\"abc\"", h.b, 32);
    hash_tree(zeros, len, &h);
    say_hex("2 MiB + 1", h.b, 32);
    free(zeros);
}

static void make_frame(void)
{
    struct frame_header h = {.len = 5, .type = 2};
    uint8_t out[FRAME_HEADER_BYTES + 5];

    frame_header_encode(&h, out);
    memcpy(out + FRAME_HEADER_BYTES, "hello", 5);
    dump(out, sizeof out);
}

struct point {
    uint64_t epoch;
    bool last;
    uint8_t n_data;
    uint8_t data[4];
    uint32_t n_words;
    uint16_t words[4];
};

static void make_message(void)
{
    static const struct msg_field fields[] = {
        MSG_FIELD_U64(struct point, epoch),
        MSG_FIELD_BOOL(struct point, last),
        MSG_FIELD_BYTES(struct point, data, n_data),
        MSG_ARRAY_U16(struct point, words, n_words),
    };
    static const struct msg_schema schema = MSG_SCHEMA(struct point, fields);
    struct point p = {.epoch = 300,
                      .last = true,
                      .n_data = 3,
                      .data = "abc",
                      .n_words = 2,
                      .words = {7, 128}};
    int n = msg_encode(&schema, &p, bytes, sizeof bytes);

    assert_true(n > 0);
    dump(bytes, (size_t)n);
}

static void make_record(void)
{
    struct signer s = signer_sodium(&alice);
    struct record r = {
        .value_len = 3, .value = "abc", .sequence = 7, .expiry_s = 1800003600};
    int n;

    memset(r.key.b, 0x11, ID_BYTES);
    assert_int_equal(record_sign(&r, &s), 0);
    n = msg_encode(&record_schema, &r, bytes, sizeof bytes);
    assert_true(n > 0);
    dump(bytes, (size_t)n);
}

static void make_manifest(void)
{
    struct signer s = signer_sodium(&alice);
    uint8_t sig[SIGN_BYTES];
    struct hash32 run;
    int n;

    example_manifest(&m);
    m.data.n_shards = 1;
    assert_int_equal(manifest_sign(&m, &s, sig), 0);
    n = manifest_encode(&m, bytes, sizeof bytes);
    assert_true(n > 0);
    manifest_hash(bytes, (size_t)n, &run);
    dump(bytes, (size_t)n);
    say_hex("run id", run.b, 32);
    say_hex("signature", sig, SIGN_BYTES);
}

static void make_uri(void)
{
    struct uri u = {.n_hosts = 2,
                    .hosts = {{.host = "::1", .port = 4001, .ipv6 = true},
                              {.host = "host.example", .port = 4002}},
                    .has_peer = true};
    char out[URI_TEXT_MAX];

    memset(u.run.b, 0x22, ID_BYTES);
    u.peer = alice.id;
    assert_true(uri_format(&u, out, sizeof out) > 0);
    n_text += (size_t)snprintf(text, sizeof text, "%s\n", out);
    u.has_invite = true;
    u.invite = (struct invite){.number = 3, .expiry_s = 1800003600};
    memset(u.invite.seed, 0x33, sizeof u.invite.seed);
    memset(u.invite.sig, 0x44, sizeof u.invite.sig);
    u.n_hosts = 1;
    u.has_peer = false;
    assert_true(uri_format(&u, out, sizeof out) > 0);
    n_text +=
        (size_t)snprintf(text + n_text, sizeof text - n_text, "%s\n", out);
}

/* The rows of one map and of the maps in it. */
static void make_rows(const struct doc_schema *s, const char *prefix)
{
    static const char *const kinds[] = {"u32",  "u64",  "float",
                                        "bool", "text", "bytes"};
    char path[DOC_PATH_MAX], inner[DOC_PATH_MAX + 1];

    for (size_t i = 0; i < s->n_fields; i++) {
        const struct doc_field *f = &s->fields[i];
        const char *list = f->list ? "[]" : "";
        size_t n = n_text;

        (void)snprintf(path, sizeof path, "%s%s%s", prefix, f->key, list);
        if (f->kind == DOC_MAP) {
            (void)snprintf(inner, sizeof inner, "%s.", path);
            make_rows(f->sub, inner);
            continue;
        }
        n += (size_t)snprintf(text + n, sizeof text - n, "| `%s` | %s", path,
                              kinds[f->kind]);
        if (f->kind == DOC_STR || f->kind == DOC_HEX) {
            n += (size_t)snprintf(text + n, sizeof text - n,
                                  f->kind == DOC_STR ? ", < %zu" : " %zu",
                                  f->size);
        }
        n += (size_t)snprintf(text + n, sizeof text - n, " | ");
        for (size_t w = 0; f->words != NULL && f->words[w] != NULL; w++) {
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s",
                                  w > 0 ? ", " : "", f->words[w]);
        }
        if (f->least != 0 || f->most != 0) {
            n += (size_t)snprintf(text + n, sizeof text - n, "%.10g to %.10g",
                                  f->least, f->most);
        }
        if (f->optional) {
            n += (size_t)snprintf(text + n, sizeof text - n,
                                  f->kind == DOC_BOOL ? "true, %s"
                                  : f->kind == DOC_STR && f->words == NULL
                                      ? "%s"
                                      : ", %s",
                                  "or the key is absent");
        }
        if (f->list) {
            n += (size_t)snprintf(text + n, sizeof text - n, "at most %zu",
                                  f->max);
        }
        n_text = n + (size_t)snprintf(text + n, sizeof text - n, " | %s |\n",
                                      f->help);
        assert_true(n_text < sizeof text / 2);
    }
}

static void make_keys(void)
{
    make_rows(manifest_schema(), "");
}

/* ---- control messages --------------------------------------------------- */

/* A whole frame, and what its signature is over. */
static void make_vote(void)
{
    struct signer s = signer_sodium(&alice);
    struct vote v = {.body = {.epoch = 3, .round = 7}};
    uint8_t frame[FRAME_HEADER_BYTES + 512], want[SIGN_BYTES];
    struct frame_header h = {.type = MESSAGE_VOTE};
    int n;

    memset(v.body.view.b, 0x33, ID_BYTES);
    memset(v.body.plan.b, 0x44, ID_BYTES);
    memset(v.body.result.b, 0x55, ID_BYTES);
    n = msg_encode(&vote_body_schema, &v.body, bytes, sizeof bytes);
    assert_true(n > 0);
    /* The domain is written out here, so that renaming a struct is seen. */
    assert_int_equal(
        sign_detached(&alice, "struct vote_body", bytes, (size_t)n, want), 0);
    assert_int_equal(message_sign(&s, &vote_body_schema, &v.body, v.sig), 0);
    assert_memory_equal(v.sig, want, SIGN_BYTES);
    n = msg_encode(message_schema(MESSAGE_VOTE), &v, frame + FRAME_HEADER_BYTES,
                   sizeof frame - FRAME_HEADER_BYTES);
    assert_true(n > 0);
    h.len = (uint32_t)n;
    frame_header_encode(&h, frame);
    dump(frame, FRAME_HEADER_BYTES + (size_t)n);
}

/* How a commit is named: plan of one member, then the result. */
static void make_commit_name(void)
{
    struct plan_body p = {.epoch = 3, .round = 7, .n_members = 1};
    struct hash32 plan, result, commit;

    p.members[0] = (struct plan_member){
        .index = 2, .tokens = 4096, .first_step = 60, .last_step = 80};
    memset(result.b, 0x55, ID_BYTES);
    message_hash(&plan_body_schema, "loco-plan-1", &p, &plan);
    message_commit_hash(&p, &result, &commit);
    say_hex("plan", plan.b, 32);
    say_hex("commit", commit.b, 32);
}

/* What a joiner says of the state that it holds: a short one, "abc". */
static void make_join_proof(void)
{
    const struct sample_part part = {"abc", 3};
    struct join_body join = {.round = 7};
    struct hash32 sample, proof;

    memset(join.run.b, 0x22, ID_BYTES);
    memset(join.view.b, 0x33, ID_BYTES);
    memset(join.commit.b, 0x55, ID_BYTES);
    memset(join.state.b, 0x66, ID_BYTES);
    sample_state(&join.state, &part, 1, &sample);
    message_join_proof(&join, &sample, &alice.id, &proof);
    say_hex("sample", sample.b, 32);
    say_hex("proof", proof.b, 32);
}

static const char *struct_name(const struct msg_schema *s)
{
    return strncmp(s->name, "struct ", 7) == 0 ? s->name + 7 : s->name;
}

/* "members [64] view_member" */
static void field_text(const struct msg_field *f, char *out, size_t cap)
{
    static const char *const kinds[] = {"u8", "u16", "u32", "u64", "bool"};
    char list[16] = "", kind[64];

    if (f->array) {
        (void)snprintf(list, sizeof list, "[%zu] ", f->max);
    }
    if (f->kind == MSG_STRUCT) {
        (void)snprintf(kind, sizeof kind, "%s", struct_name(f->sub));
    } else if (f->kind == MSG_FIXED || f->kind == MSG_BYTES) {
        (void)snprintf(kind, sizeof kind, "%s %zu",
                       f->kind == MSG_FIXED ? "bin" : "bytes", f->size);
    } else {
        assert_true(f->kind <= MSG_BOOL);
        (void)snprintf(kind, sizeof kind, "%s", kinds[f->kind]);
    }
    (void)snprintf(out, cap, "%s %s%s", f->name, list, kind);
}

/* `head`, then the fields of `s`, wrapped. */
static void say_fields(const char *head, const struct msg_schema *s)
{
    int indent = 27;
    size_t column;
    char one[128];

    column = (size_t)snprintf(text + n_text, sizeof text - n_text, "%-*s",
                              indent, head);
    n_text += column;
    for (size_t i = 0; i < s->n_fields; i++) {
        const char *end = i + 1 < s->n_fields ? "," : "";
        size_t len;

        field_text(&s->fields[i], one, sizeof one);
        len = strlen(one) + strlen(end) + (i > 0);
        if (i > 0 && column + len > LINE_MAX) {
            n_text += (size_t)snprintf(text + n_text, sizeof text - n_text,
                                       "\n%-*s%s%s", indent, "", one, end);
            column = (size_t)indent + len - 1;
        } else {
            n_text += (size_t)snprintf(text + n_text, sizeof text - n_text,
                                       "%s%s%s", i > 0 ? " " : "", one, end);
            column += len;
        }
        assert_true(n_text < sizeof text / 2);
    }
    n_text += (size_t)snprintf(text + n_text, sizeof text - n_text, "\n");
}

static const struct {
    uint8_t type;
    const char *name;
    const struct msg_schema *schema;
} messages[] = {
#define ROW(name, value, schema)    {value, #name, &schema##_schema},
#define X(name, value, schema, ...) ROW(name, value, schema)
    MESSAGE_MAP(X) DHT_MSG_MAP(ROW)
#undef X
#undef ROW
};

/* The structs inside `s`, inner ones first, each once over all calls. */
static void say_structs(const struct msg_schema *s,
                        const struct msg_schema *seen[STRUCTS_MAX],
                        size_t *n_seen)
{
    for (size_t i = 0; i < s->n_fields; i++) {
        const struct msg_schema *sub = s->fields[i].sub;
        bool is_new = sub != NULL;

        for (size_t k = 0; k < *n_seen && is_new; k++) {
            is_new = seen[k] != sub;
        }
        for (size_t k = 0; k < N_OF(messages) && is_new; k++) {
            is_new = messages[k].schema != sub;
        }
        if (is_new) {
            say_structs(sub, seen, n_seen);
            assert_true(*n_seen < STRUCTS_MAX);
            seen[(*n_seen)++] = sub;
            say_fields(struct_name(sub), sub);
        }
    }
}

static void make_structs(void)
{
    const struct msg_schema *seen[STRUCTS_MAX];
    size_t n_seen = 0;

    for (size_t i = 0; i < N_OF(messages); i++) {
        say_structs(messages[i].schema, seen, &n_seen);
    }
}

/* Type, name and frame limit: what the daemon's rules allow. */
static void make_messages(void)
{
    for (size_t i = 0; i < N_OF(messages); i++) {
        size_t most = msg_bytes_max(messages[i].schema);
        char head[64];

        most = most < FRAME_CONTROL_MAX ? most : FRAME_CONTROL_MAX;
        (void)snprintf(head, sizeof head, "0x%02x %-13s%7zu ", messages[i].type,
                       messages[i].name, most);
        say_fields(head, messages[i].schema);
    }
}

static const struct {
    const char *name;
    void (*make)(void);
} examples[] = {
    {"manifest keys", make_keys},  {"identity", make_identity},
    {"signature", make_signature}, {"tree hash", make_tree},
    {"frame", make_frame},         {"message", make_message},
    {"record", make_record},       {"manifest", make_manifest},
    {"invitation", make_uri},      {"vote", make_vote},
    {"structs", make_structs},     {"messages", make_messages},
    {"commit", make_commit_name},  {"join proof", make_join_proof},
};

static void start(size_t i)
{
    n_text = 0;
    text[0] = '\0';
    examples[i].make();
    assert_true(n_text > 0 && n_text < sizeof text);
}

static char *load_document(void)
{
    FILE *f = fopen(PROTOCOL_MD, "rb");
    char *all = calloc(1, 1 << 20);

    assert_non_null(f);
    assert_non_null(all);
    assert_true(fread(all, 1, (1 << 20) - 1, f) > 1000);
    assert_int_equal(fclose(f), 0);
    return all;
}

static void every_example_of_the_document_is_what_the_code_does(void **state)
{
    char *document = load_document();

    (void)state;
    for (size_t i = 0; i < N_OF(examples); i++) {
        start(i);
        if (strstr(document, text) == NULL) {
            fail_msg("PROTOCOL.md lacks the %s:\n%s", examples[i].name, text);
        }
    }
    free(document);
}

/* A number that had another meaning is no message's any more (section 25). */
static void nobody_takes_a_reserved_number(void **state)
{
    static const uint16_t reserved[] = {0x45, 0x48, 0x49};

    (void)state;
    for (size_t i = 0; i < N_OF(reserved); i++) {
        for (size_t k = 0; k < N_OF(messages); k++) {
            assert_int_not_equal(messages[k].type, reserved[i]);
        }
    }
}

/* Whether these are its first fields, or those of the body that it begins with.
 */
static bool begins(const struct msg_schema *s, const char *const *names)
{
    while (s->fields[0].kind == MSG_STRUCT && s->fields[0].offset == 0) {
        s = s->fields[0].sub;
    }
    for (size_t i = 0; names[i] != NULL; i++) {
        if (i == s->n_fields || strcmp(s->fields[i].name, names[i]) != 0) {
            return false;
        }
    }
    return true;
}

static void what_can_be_stale_begins_with_what_it_is_of(void **state)
{
    static const char *const run[] = {"run", NULL};
    static const char *const attempt[] = {"epoch", "view", "round", NULL};
    static const char *const view[] = {"epoch", "view", NULL};
    static const struct {
        const char *const *names;
        size_t bytes;
    } heads[] = {
        [STALE_RUN] = {run, sizeof(struct hash32)},
        [STALE_GROUP] = {run, sizeof(struct hash32)},
        [STALE_VIEW] = {view, offsetof(struct message_attempt, round)},
        [STALE_ATTEMPT] = {attempt, sizeof(struct message_attempt)},
    };

    (void)state;
    for (size_t i = 0; i < N_OF(messages); i++) {
        const struct message_row *row = message_row(messages[i].type);

        if (row != NULL && row->stale != STALE_NEVER) {
            assert_true(begins(row->schema, heads[row->stale].names));
            assert_true(row->schema->size >= heads[row->stale].bytes);
        }
    }
    assert_int_equal(offsetof(struct message_attempt, view),
                     offsetof(struct vote_body, view));
    assert_int_equal(offsetof(struct message_attempt, round),
                     offsetof(struct vote_body, round));
}

/* It would pass a gate that the link of its sender did not. */
static void only_what_needs_an_open_link_is_forwarded(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(messages); i++) {
        const struct message_row *row = message_row(messages[i].type);

        assert_true(row == NULL || row->way == WAY_DIRECT ||
                    row->gate == GATE_PEER);
    }
}

/* Of all that members say to each other in rounds and ballots nothing may
 * overtake the record; what opens a link must, or the link is refused. */
static void what_binds_its_sender_waits_for_the_disk(void **state)
{
    struct frame_rule rules[MESSAGE_TYPES_MAX] = {{0}};

    (void)state;
    message_frame_rules(rules);
    for (int type = MESSAGE_PREPARE; type <= MESSAGE_VERDICT; type++) {
        assert_false(rules[type].unbound);
    }
    assert_false(rules[MESSAGE_HEARTBEAT].unbound);
    assert_false(rules[MESSAGE_GOODBYE].unbound);
    assert_false(rules[MESSAGE_FORWARD].unbound);
    assert_true(rules[MESSAGE_HELLO].unbound);
    assert_true(rules[MESSAGE_ADMISSION].unbound);
    assert_true(rules[MESSAGE_PULSE].unbound);
}

/* Of a run with audits of work; in any other one the list is empty. */
static void moments_of_ready_and_plans_are_these_bytes(void **state)
{
    static struct ready r;
    static struct plan p;
    static uint8_t other[MANIFEST_WIRE_MAX];
    uint8_t want[73] = {0x91, 0x93, 0xc4, 0x20, [36] = 0xcd,
                        0x01, 0x2c, 0xc4, 0x20};
    const size_t sig = 2 + SIGN_BYTES;
    int n, none;

    (void)state;
    memset(want + 4, 7, 32);
    memset(want + 41, 8, 32);
    none = msg_encode(&ready_schema, &r, other, sizeof other);
    assert_int_equal(other[(size_t)none - sig - 1], 0x90);
    r.body.n_moments = 1;
    memset(r.body.moments[0].root.b, 7, 32);
    r.body.moments[0].steps = 300;
    memset(r.body.moments[0].ends.b, 8, 32);
    n = msg_encode(&ready_schema, &r, bytes, sizeof bytes);
    assert_int_equal(n - none, sizeof want - 1);
    assert_memory_equal(bytes + (size_t)n - sig - sizeof want, want,
                        sizeof want);
    p.body.n_members = 1;
    none = msg_encode(&plan_schema, &p, other, sizeof other);
    p.body.members[0].n_moments = 1;
    p.body.members[0].moments[0] = r.body.moments[0];
    n = msg_encode(&plan_schema, &p, bytes, sizeof bytes);
    assert_int_equal(n - none, sizeof want - 1);
    for (int at = 0;; at++) { /* where the two begin to differ */
        if (bytes[at] != other[at]) {
            assert_int_equal(other[at], 0x90);
            assert_memory_equal(bytes + at, want, sizeof want);
            break;
        }
    }
}

int main(int argc, char **argv)
{
    static const uint8_t seed[SIGN_SEED_BYTES] = {1, 2, 3};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_example_of_the_document_is_what_the_code_does),
        cmocka_unit_test(nobody_takes_a_reserved_number),
        cmocka_unit_test(what_can_be_stale_begins_with_what_it_is_of),
        cmocka_unit_test(only_what_needs_an_open_link_is_forwarded),
        cmocka_unit_test(what_binds_its_sender_waits_for_the_disk),
        cmocka_unit_test(moments_of_ready_and_plans_are_these_bytes),
    };

    if (identity_generate(&alice, seed) != 0) {
        return 1;
    }
    if (argc == 2 && strcmp(argv[1], "--print") == 0) {
        for (size_t i = 0; i < N_OF(examples); i++) {
            start(i);
            (void)printf("## %s\n%s\n", examples[i].name, text);
        }
        return 0;
    }
    return cmocka_run_group_tests_name("proto/protocol", tests, NULL, NULL);
}
