/* manifest_test.c - run manifests: bytes, run id, signature, validity. */
#include "tests/unit/proto/suite.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/hash.h"
#include "tests/unit/proto/example.h"

/* 0.6 MB each: too large for the stack of a thread, so not on ours. */
static struct manifest m, back;
static uint8_t bytes[MANIFEST_BYTES_MAX], wire[MANIFEST_WIRE_MAX];
static char errmsg[LOCO_ERRMSG_MAX];
static struct identity author;

static int make_author(void **state)
{
    static const uint8_t seed[32] = {1, 2, 3};

    (void)state;
    return identity_generate(&author, seed);
}

static void the_tables_are_sorted_and_the_bound_holds(void **state)
{
    (void)state;
    assert_true(doc_schema_ok(manifest_schema()));
    assert_true(doc_bytes_max(manifest_schema()) <= MANIFEST_BYTES_MAX);
}

static void a_manifest_is_read_back_bit_for_bit(void **state)
{
    struct hash32 a, b;
    int n;

    (void)state;
    example_manifest(&m);
    assert_int_equal(manifest_validate(&m, errmsg), 0);
    n = manifest_encode(&m, bytes, sizeof bytes);
    assert_true(n > 0);
    assert_int_equal(manifest_decode(bytes, (size_t)n, &back), 0);
    assert_memory_equal(&m, &back, sizeof m);
    manifest_hash(bytes, (size_t)n, &a);
    assert_int_equal(manifest_run_id(&back, &b), 0);
    assert_true(hash32_eq(&a, &b));
    hash_bytes("loco-run-1", bytes, (size_t)n, &b);
    assert_true(hash32_eq(&a, &b));
}

static void every_value_changes_the_run_id(void **state)
{
    static const struct {
        const char *path, *text;
    } rows[] = {
        {"author", "0000000000000000000000000000000000000000000000000000"
                   "000000000001"},
        {"name", "other"},
        {"seed", "43"},
        {"invited", "true"},
        {"model.rope_theta", "10001"},
        {"model.tied", "false"},
        {"data.shards[2].val", "false"},
        {"data.shards[0].urls[1]", "https://example.org/c"},
        {"inner.lr", "0.00040000000000000007"},
        {"sync.audit", "sums"},
        {"sync.period", "51"},
        {"round.grace_ms", "10001"},
        {"stop.tokens", "1"},
        {"transport.encryption", "off"},
    };
    struct hash32 first, id;

    (void)state;
    example_manifest(&m);
    assert_int_equal(manifest_run_id(&m, &first), 0);
    for (size_t i = 0; i < N_OF(rows); i++) {
        example_manifest(&m);
        assert_int_equal(
            doc_set(manifest_schema(), &m, rows[i].path, rows[i].text, errmsg),
            0);
        assert_int_equal(manifest_run_id(&m, &id), 0);
        assert_false(hash32_eq(&first, &id));
    }
}

static void a_signed_manifest_passes_and_any_changed_byte_does_not(void **state)
{
    struct signer s = signer_sodium(&author);
    uint8_t sig[SIGN_BYTES], got[SIGN_BYTES];
    struct hash32 run, want;
    int n;

    (void)state;
    example_manifest(&m);
    assert_int_equal(manifest_sign(&m, &s, sig), 0);
    assert_int_equal(manifest_verify(&m, &s, sig), 0);
    n = manifest_pack(&m, sig, wire, sizeof wire);
    assert_true(n > 0);
    assert_int_equal(
        manifest_unpack(wire, (size_t)n, &s, &back, got, &run, errmsg), 0);
    assert_memory_equal(&m, &back, sizeof m);
    assert_memory_equal(sig, got, sizeof sig);
    assert_int_equal(manifest_run_id(&m, &want), 0);
    assert_true(hash32_eq(&run, &want));
    for (int i = 0; i < n; i++) {
        int rv;

        wire[i] ^= 1;
        rv = manifest_unpack(wire, (size_t)n, &s, &back, NULL, &run, errmsg);
        assert_true(rv == LOCO_EPROTO || rv == LOCO_ESIG);
        wire[i] ^= 1;
    }
    for (int len = 0; len < n; len += 7) {
        assert_int_equal(
            manifest_unpack(wire, (size_t)len, &s, &back, NULL, &run, errmsg),
            LOCO_EPROTO);
    }
}

static void nobody_else_can_sign_for_the_author(void **state)
{
    static const uint8_t seed[32] = {9};
    struct signer s = signer_sodium(&author), evil;
    struct identity other;
    uint8_t sig[SIGN_BYTES];
    struct hash32 run;
    int n;

    (void)state;
    assert_int_equal(identity_generate(&other, seed), 0);
    evil = signer_sodium(&other);
    example_manifest(&m);
    memcpy(m.author, author.public, sizeof m.author);
    n = manifest_encode(&m, bytes, sizeof bytes);
    assert_true(n > 0);
    assert_int_equal(
        evil.sign(evil.self, "loco-manifest-1", bytes, (size_t)n, sig), 0);
    assert_int_equal(manifest_verify(&m, &s, sig), LOCO_ESIG);
    n = manifest_pack(&m, sig, wire, sizeof wire);
    assert_int_equal(
        manifest_unpack(wire, (size_t)n, &s, &back, NULL, &run, errmsg),
        LOCO_ESIG);
    /* With the signer's own key beside the bytes the signature verifies; the
     * author in the bytes is another. */
    assert_memory_equal(wire + n - 66 - 32, author.public, 32);
    memcpy(wire + n - 66 - 32, other.public, 32);
    assert_int_equal(
        manifest_unpack(wire, (size_t)n, &s, &back, NULL, &run, errmsg),
        LOCO_ESIG);
}

static void a_signed_manifest_with_senseless_values_is_refused(void **state)
{
    struct signer s = signer_keyed(&author);
    uint8_t sig[SIGN_BYTES];
    struct hash32 run;
    int n;

    (void)state;
    example_manifest(&m);
    (void)snprintf(m.data.shards[1].name, sizeof m.data.shards[1].name, "%s",
                   "../../x");
    assert_int_equal(manifest_sign(&m, &s, sig), 0);
    n = manifest_pack(&m, sig, wire, sizeof wire);
    assert_int_equal(
        manifest_unpack(wire, (size_t)n, &s, &back, NULL, &run, errmsg),
        LOCO_EINVAL);
    assert_non_null(strstr(errmsg, "data.shards[1].name"));
}

static void the_largest_manifest_fits(void **state)
{
    struct signer s = signer_keyed(&author);
    uint8_t sig[SIGN_BYTES];
    struct hash32 run;
    int n;

    (void)state;
    example_manifest(&m);
    m.data.n_shards = MANIFEST_SHARDS_MAX;
    for (uint32_t i = 0; i < MANIFEST_SHARDS_MAX; i++) {
        struct manifest_shard *shard = &m.data.shards[i];

        *shard = m.data.shards[0];
        memset(shard->name, 'a', MANIFEST_NAME_MAX - 1);
        shard->name[0] = (char)('a' + i % 26);
        shard->name[1] = (char)('a' + i / 26);
        shard->bytes = shard->tokens = MANIFEST_SUM_MAX / MANIFEST_SHARDS_MAX;
        shard->n_urls = MANIFEST_URLS_MAX;
        for (int j = 0; j < MANIFEST_URLS_MAX; j++) {
            memset(shard->urls[j], 'u', MANIFEST_URL_MAX - 1);
            memcpy(shard->urls[j], "https://", 8);
        }
    }
    assert_int_equal(manifest_validate(&m, errmsg), 0);
    assert_int_equal(manifest_sign(&m, &s, sig), 0);
    n = manifest_pack(&m, sig, wire, sizeof wire);
    assert_true(n > 500000);
    assert_int_equal(
        manifest_unpack(wire, (size_t)n, &s, &back, NULL, &run, errmsg), 0);
    assert_memory_equal(&m, &back, sizeof m);
}

/* Each is allowed on its own: 20 of them would be less than one. */
static void a_sum_that_would_wrap_is_refused(void **state)
{
    (void)state;
    for (int of_tokens = 0; of_tokens < 2; of_tokens++) {
        struct manifest_shard *two = m.data.shards;

        example_manifest(&m);
        assert_true(m.data.n_shards >= 2);
        *(of_tokens ? &two[0].tokens : &two[0].bytes) = MANIFEST_SUM_MAX / 2;
        assert_int_equal(manifest_validate(&m, errmsg), 0);
        *(of_tokens ? &two[1].tokens : &two[1].bytes) =
            MANIFEST_SUM_MAX / 2 + 1;
        assert_int_equal(manifest_validate(&m, errmsg), LOCO_EINVAL);
        assert_non_null(strstr(errmsg, "more than 10^18 bytes or tokens"));
    }
}

static void each_senseless_value_has_its_sentence(void **state)
{
    static const struct {
        const char *path, *text, *reason;
    } rows[] = {
        {"name", "", "name: is empty"},
        {"name", "a\033[2Jb", "name: holds control"},
        {"name",
         "a\xc2\x9b"
         "2Jb",
         "name: holds control"},
        {"data.licence", "free\rno", "data.licence: holds control"},
        {"model.heads", "3", "model.heads=3, model.dim=128: "},
        {"model.dim", "132", "the size of a head is odd"},
        {"model.kv_heads", "3", "model.kv_heads=3, model.heads=4: "},
        {"inner.seq", "257",
         "inner.seq=257, model.seq=256: a sequence is longer"},
        {"inner.micro_batch", "3", "inner.micro_batch=3, inner.batch=8: "},
        {"inner.lr", "0", "inner.lr: must be above 0"},
        {"inner.lr_min", "1", "set inner.lr_min=0.0004"},
        {"inner.warmup", "10001", "the warm-up is longer"},
        {"data.shards[0].name", "a/b", "data.shards[0].name: must be"},
        {"data.shards[0].name", "..", "data.shards[0].name: must be"},
        {"data.shards[0].name", "", "data.shards[0].name: must be"},
        {"data.shards[0].name", "b.part", "data.shards[0].name: must be"},
        {"data.shards[0].urls[0]", "http://a/\x1b[2J", "have no spaces"},
        {"data.shards[0].urls[0]", "https://a/b c", "have no spaces"},
        {"data.shards[1].name", "a.bin", "is also shard 0"},
        {"data.shards[0].urls[0]", "file:///etc/x", "must begin with http"},
        {"data.tokenizer", "../t", "data.tokenizer: must be"},
        {"data.tokenizer", "t.json", "data.tokenizer_blake2b: must be"},
        {"model.vocab", "255", "the byte tokenizer has 256 tokens"},
        {"sync.preset", "", "sync.preset: must be"},
        {"sync.preset", "a\033[2Jb", "sync.preset: must be"},
        {"stages", "6", "set stages=5"},
        {"stages", "2", "a tied head needs the embedding"},
        {"model.layers", "0", "model.layers: 0 is outside 1 to 1024"},
        {"model.heads", "0", "model.heads: 0 is outside 1 to 1024"},
        {"model.kv_heads", "0", "model.kv_heads: 0 is outside 1 to 1024"},
        {"model.vocab", "1", "model.vocab: 1 is outside 2 to 16777216"},
        {"model.rope_theta", "0", "model.rope_theta: 0 is outside 1 to 1e+12"},
        {"model.norm_eps", "0", "model.norm_eps: 0 is outside 1e-12 to 1"},
        {"inner.seq", "1", "inner.seq: 1 is outside 2 to 1048576"},
        {"model.layout", "a.bin", "data.shards[0].tokens: must be 0"},
        {"model.init", "a.bin", "data.shards[0].tokens: must be 0"},
        {"model.init", "c.bin", "model.init: 'c.bin' must be one of"},
        {"model.init", "\033]0;x\a", "model.init: must be the name of a file"},
        {"model.layout", "c.bin", "set model.params"},
        {"data.shards[0].tokens", "0", "data.shards[0].tokens: must be 0"},
        {"model.params", "5", "model.dim: must be 0"},
    };

    (void)state;
    for (size_t i = 0; i < N_OF(rows); i++) {
        example_manifest(&m);
        assert_int_equal(
            doc_set(manifest_schema(), &m, rows[i].path, rows[i].text, errmsg),
            0);
        assert_int_equal(manifest_validate(&m, errmsg), LOCO_EINVAL);
        if (strstr(errmsg, rows[i].reason) == NULL) {
            fail_msg("%s: %s", rows[i].path, errmsg);
        }
    }
}

static void a_list_of_tensors_has_its_files_and_no_shape(void **state)
{
    static const struct {
        const char *path, *text, *reason;
    } rows[] = {
        {"model.dim", "8", "model.dim: must be 0"},
        {"model.norm_eps", "1e-5", "model.norm_eps: must be 0"},
        {"model.vocab", "256", "model.vocab: must be 0"},
        {"model.tied", "true", "model.tied: must be false"},
        {"model.layout", "", "data.shards[3].tokens: must be 0"},
        {"model.init", "layout.json", "data.shards[4].tokens: must be 0"},
        {"model.layout", "x", "data.shards[3].tokens: must be 0"},
        {"model.params", "0", "model.dim: 0 is outside"},
        {"inner.seq", "1", "inner.seq: must be at least 2"},
        {"model.params", "126", "model.init: has 500 bytes"},
        {"data.shards[3].val", "true", "data.shards[3].tokens: must be 0"},
        {"data.shards[3].tokens", "5", "data.shards[3].tokens: must be 0"},
        {"data.shards[3].bytes", "16777217", "model.layout: has 16777217"},
        {"data.shards[4].bytes", "16777625", "model.init: has 16777625"},
        {"data.shards[4].bytes", "400", "model.init: has 400 bytes"},
        {"stages", "2", "no layers"},
    };

    (void)state;
    example_tensors(&m);
    assert_int_equal(manifest_validate(&m, errmsg), 0);
    assert_true(manifest_has_tensors(&m));
    assert_true(manifest_is_text(&m.data, 2));
    assert_false(manifest_is_text(&m.data, 3));
    assert_int_equal(manifest_shard_named(&m.data, m.model.init), 4);
    assert_int_equal(manifest_shard_named(&m.data, "z"), 5);
    for (size_t i = 0; i < N_OF(rows); i++) {
        example_tensors(&m);
        assert_int_equal(
            doc_set(manifest_schema(), &m, rows[i].path, rows[i].text, errmsg),
            0);
        assert_int_equal(manifest_validate(&m, errmsg), LOCO_EINVAL);
        if (strstr(errmsg, rows[i].reason) == NULL) {
            fail_msg("%s: %s", rows[i].path, errmsg);
        }
    }
}

/* The user's own loader has the text. */
static void a_list_of_tensors_needs_no_text(void **state)
{
    (void)state;
    example_tensors(&m);
    memmove(&m.data.shards[0], &m.data.shards[3], 2 * sizeof m.data.shards[0]);
    m.data.n_shards = 2;
    m.inner.seq = 1;
    assert_int_equal(manifest_validate(&m, errmsg), 0);
    m.data.n_shards = 1;
    assert_int_equal(manifest_validate(&m, errmsg), LOCO_EINVAL);
    assert_non_null(strstr(errmsg, "model.init"));
}

static void a_llama_may_begin_from_a_file(void **state)
{
    struct manifest_shard *s;

    (void)state;
    example_manifest(&m);
    s = &m.data.shards[m.data.n_shards++];
    (void)snprintf(s->name, sizeof s->name, "%s", "w.safetensors");
    s->bytes = 5;
    assert_int_equal(manifest_validate(&m, errmsg), LOCO_EINVAL);
    assert_non_null(strstr(errmsg, "data.shards[3].tokens"));
    (void)snprintf(m.model.init, sizeof m.model.init, "%s", s->name);
    assert_int_equal(manifest_validate(&m, errmsg), 0);
    (void)snprintf(m.data.tokenizer, sizeof m.data.tokenizer, "%s", s->name);
    m.data.tokenizer_blake2b = s->blake2b;
    m.data.tokenizer_blake2b.b[0] = s->blake2b.b[0] = 1;
    assert_int_equal(manifest_validate(&m, errmsg), LOCO_EINVAL);
    assert_non_null(strstr(errmsg, "model.init: 'w.safetensors' is the tok"));
}

/* A run of before keeps its id. */
static void keys_of_other_models_are_absent_from_a_llamas_bytes(void **state)
{
    static const char *const keys[] = {"\xa6layout", "\xa6params"};
    int without;

    (void)state;
    example_manifest(&m);
    without = manifest_encode(&m, bytes, sizeof bytes);
    assert_true(without > 0);
    assert_null(memmem(bytes, (size_t)without, "\xa4init", 5));
    for (size_t i = 0; i < N_OF(keys); i++) {
        assert_null(memmem(bytes, (size_t)without, keys[i], 7));
    }
    example_tensors(&m);
    without = manifest_encode(&m, bytes, sizeof bytes);
    assert_int_equal(manifest_decode(bytes, (size_t)without, &back), 0);
    assert_memory_equal(&m, &back, sizeof m);
    assert_non_null(memmem(bytes, (size_t)without, "\xa4init", 5));
}

static void words_and_ranges_are_checked_where_they_are_set(void **state)
{
    static const char *const rows[][2] = {{"inner.optimizer", "adam"},
                                          {"inner.schedule", "linear"},
                                          {"sync.wire", "fp8"},
                                          {"transport.encryption", ""},
                                          {"round.min_peers", "0"},
                                          {"round.min_peers", "65"},
                                          {"round.fork_after_ms", "0"},
                                          {"sync.period", "0"},
                                          {"sync.fragments", "0"},
                                          {"inner.beta1", "1"},
                                          {"model.layers", "1025"},
                                          {"inner.batch", "0"},
                                          {"version", "2"},
                                          {"stages", "0"},
                                          {"data.shards[0].bytes", "0"}};

    (void)state;
    for (size_t i = 0; i < N_OF(rows); i++) {
        example_manifest(&m);
        assert_int_equal(
            doc_set(manifest_schema(), &m, rows[i][0], rows[i][1], errmsg),
            LOCO_EINVAL);
        assert_memory_equal(errmsg, rows[i][0], strlen(rows[i][0]));
    }
}

static void a_run_needs_something_to_train_on(void **state)
{
    (void)state;
    example_manifest(&m);
    m.data.shards[0].val = m.data.shards[1].val = true;
    assert_int_equal(manifest_validate(&m, errmsg), LOCO_EINVAL);
    assert_non_null(strstr(errmsg, "nothing to train on"));
    m.data.n_shards = 0;
    assert_int_equal(manifest_validate(&m, errmsg), LOCO_EINVAL);
    (void)snprintf(m.inner.schedule, sizeof m.inner.schedule, "%s", "wsd");
    example_manifest(&m);
    (void)snprintf(m.inner.schedule, sizeof m.inner.schedule, "%s", "wsd");
    m.inner.decay = 9901; /* steps 10000, warmup 100 */
    assert_int_equal(manifest_validate(&m, errmsg), LOCO_EINVAL);
    m.inner.decay = 9900;
    assert_int_equal(manifest_validate(&m, errmsg), 0);
}

/* An optional key: where it is off its bytes are not there, so that a run of
 * before keeps its id, and being there with that value is another form. */
static void invited_is_there_only_where_it_is_on(void **state)
{
    static const char key[] = "\xa7"
                              "invited";
    uint8_t *at;
    int without, with;

    (void)state;
    example_manifest(&m);
    without = manifest_encode(&m, bytes, sizeof bytes);
    assert_null(memmem(bytes, (size_t)without, key, sizeof key - 1));
    m.invited = true;
    with = manifest_encode(&m, bytes, sizeof bytes);
    /* The map has 16 keys now: two bytes more for their number. */
    assert_int_equal(with, without + 2 + (int)sizeof key);
    assert_int_equal(manifest_decode(bytes, (size_t)with, &back), 0);
    assert_true(back.invited);
    at = memmem(bytes, (size_t)with, key, sizeof key - 1);
    assert_non_null(at);
    assert_int_equal(at[sizeof key - 1], 0xc3); /* true */
    at[sizeof key - 1] = 0xc2;
    assert_int_equal(manifest_decode(bytes, (size_t)with, &back), LOCO_EPROTO);
    at[sizeof key - 1] = 0xc3;
    at[1] = 'j'; /* no such key, in the right place */
    assert_int_equal(manifest_decode(bytes, (size_t)with, &back), LOCO_EPROTO);
}

/* The same of a word, in a map within the map. */
static void a_word_for_audits_is_there_only_where_it_was_said(void **state)
{
    static const char key[] = "\xa5"
                              "audit"
                              "\xa4"
                              "sums";
    int without, with;

    (void)state;
    example_manifest(&m);
    without = manifest_encode(&m, bytes, sizeof bytes);
    assert_null(memmem(bytes, (size_t)without,
                       "\xa5"
                       "audit",
                       6));
    assert_int_equal(
        doc_set(manifest_schema(), &m, "sync.audit", "texts", errmsg),
        LOCO_EINVAL);
    assert_int_equal(
        doc_set(manifest_schema(), &m, "sync.audit", "work", errmsg), 0);
    assert_int_equal(
        doc_set(manifest_schema(), &m, "sync.audit", "sums", errmsg), 0);
    with = manifest_encode(&m, bytes, sizeof bytes);
    assert_int_equal(with, without + (int)sizeof key - 1);
    assert_non_null(memmem(bytes, (size_t)with, key, sizeof key - 1));
    assert_int_equal(manifest_decode(bytes, (size_t)with, &back), 0);
    assert_string_equal(back.sync.audit, "sums");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tables_are_sorted_and_the_bound_holds),
        cmocka_unit_test(a_manifest_is_read_back_bit_for_bit),
        cmocka_unit_test(every_value_changes_the_run_id),
        cmocka_unit_test(
            a_signed_manifest_passes_and_any_changed_byte_does_not),
        cmocka_unit_test(nobody_else_can_sign_for_the_author),
        cmocka_unit_test(a_signed_manifest_with_senseless_values_is_refused),
        cmocka_unit_test(the_largest_manifest_fits),
        cmocka_unit_test(a_sum_that_would_wrap_is_refused),
        cmocka_unit_test(each_senseless_value_has_its_sentence),
        cmocka_unit_test(a_list_of_tensors_has_its_files_and_no_shape),
        cmocka_unit_test(a_list_of_tensors_needs_no_text),
        cmocka_unit_test(a_llama_may_begin_from_a_file),
        cmocka_unit_test(keys_of_other_models_are_absent_from_a_llamas_bytes),
        cmocka_unit_test(words_and_ranges_are_checked_where_they_are_set),
        cmocka_unit_test(a_run_needs_something_to_train_on),
        cmocka_unit_test(invited_is_there_only_where_it_is_on),
        cmocka_unit_test(a_word_for_audits_is_there_only_where_it_was_said),
    };

    return cmocka_run_group_tests_name("proto/manifest", tests, make_author,
                                       NULL);
}
