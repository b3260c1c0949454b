/* rules_test.c - each row of rules.def is met by an example, and what it calls
 * the nearest valid setting is valid. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/machine/refuse.h"
#include "daemon/settings/method_manifest.h"
#include "proto/base/err.h"
#include "tests/unit/proto/example.h"

#define TEXT_MAX 64

/* A run that one row refuses, and no row before it. */
struct example {
    const char *preset;
    const char *set; /* "a.b=1 c=2": keys of the manifest, or of the machine */
    void (*alter)(struct method *m); /* what no manifest can say */
};

static void average_gradients(struct method *m)
{
    m->gradients = true;
    m->period = 0;
}

static void no_baseline(struct method *m)
{
    m->baseline = false;
}

static void be_delayed(struct method *m)
{
    m->delayed = true;
}

static void be_trainers(struct method *m)
{
    m->group = METHOD_TRAINER;
}

static void reset_moments(struct method *m)
{
    m->moments = METHOD_RESET;
}

#define CUT "model.tied=false stages=2"
#define TENSORS                                                                \
    "model.params=100 model.layout=l.json model.init=i.st model.dim=0 "        \
    "model.layers=0 model.heads=0 model.kv_heads=0 model.ffn=0 "               \
    "model.vocab=0 model.seq=0 model.tied=false model.norm_eps=0 "             \
    "model.rope_theta=0 data.shards[3].name=l.json data.shards[3].bytes=90 "   \
    "data.shards[4].name=i.st data.shards[4].bytes=500 "

/* clang-format off */
static const struct example examples[] = {
    [CONFLICT_heads] = {"diloco", "model.heads=3", NULL},
    [CONFLICT_head_size] = {"diloco", "model.dim=132", NULL},
    [CONFLICT_kv_heads] = {"diloco", "model.kv_heads=3", NULL},
    [CONFLICT_seq] = {"diloco", "inner.seq=257", NULL},
    [CONFLICT_micro_batch] = {"diloco", "inner.micro_batch=3", NULL},
    [CONFLICT_forward_pass] =
        {"diloco", "inner.micro_batch=1048576 inner.batch=1048576", NULL},
    [CONFLICT_lr_min] = {"diloco", "inner.lr_min=1", NULL},
    [CONFLICT_warmup] = {"diloco", "inner.warmup=10001", NULL},
    [CONFLICT_decay] =
        {"diloco", "inner.schedule=wsd inner.decay=9901", NULL},
    [CONFLICT_byte_vocab] = {"diloco", "model.vocab=255", NULL},
    [CONFLICT_stages_layers] = {"diloco", CUT " stages=6", NULL},
    [CONFLICT_stages_tied] = {"diloco", "stages=2", NULL},
    [CONFLICT_tensors_stages] = {"diloco", TENSORS "stages=2", NULL},
    [CONFLICT_tensors_gradients] = {"ddp", TENSORS, NULL},
    [CONFLICT_tensors_moments] = {"local-adam", TENSORS, NULL},
    [CONFLICT_tensors_trainers] = {"adloco", TENSORS, NULL},
    [CONFLICT_tensors_rollback] =
        {"opendiloco", TENSORS "sync.rollback=0.5", NULL},
    [CONFLICT_ddp_alone] = {"ddp", "sync.period_u=7", NULL},
    [CONFLICT_ddp_period] = {"ddp", "sync.period=4", NULL},
    [CONFLICT_fragments_period] = {"streaming", "sync.fragments=3", NULL},
    [CONFLICT_fragments_layers] = {"streaming", "model.layers=2", NULL},
    [CONFLICT_overlap_turn] = {"streaming", "sync.overlap=25", NULL},
    [CONFLICT_overlap_eager] = {"diloco", "sync.overlap=500", NULL},
    [CONFLICT_eager_group] = {"eager", "", be_trainers},
    [CONFLICT_pull_partner] = {"diloco", "sync.gamma=0.5", NULL},
    [CONFLICT_pull_needed] = {"noloco", "sync.gamma=0", NULL},
    [CONFLICT_pull_most] = {"noloco", "sync.outer_momentum=0.9", NULL},
    [CONFLICT_pairs_fragments] = {"noloco", "sync.fragments=2", NULL},
    [CONFLICT_pairs_overlap] = {"noloco", "sync.overlap=1", NULL},
    [CONFLICT_pairs_moments] = {"noloco", "sync.period_u=100", NULL},
    [CONFLICT_pairs_feedback] = {"noloco", "sync.error_feedback=true", NULL},
    [CONFLICT_pairs_reset] = {"noloco", "", reset_moments},
    [CONFLICT_pairs_mix] = {"noloco", "sync.mix=0.5", NULL},
    [CONFLICT_pairs_wire] =
        {"noloco", "sync.wire=e3m0 sync.topology=butterfly", NULL},
    [CONFLICT_pairs_tokens] = {"noloco", "stop.tokens=1000", NULL},
    [CONFLICT_pairs_sites] = {"noloco", "sites=2", NULL},
    [CONFLICT_pairs_probation] = {"noloco", "probation_rounds=3", NULL},
    [CONFLICT_arrivals_gradients] = {"async-dn", "sync.period=1",
                                      average_gradients},
    [CONFLICT_arrivals_fragments] = {"async-dn", "sync.fragments=2", NULL},
    [CONFLICT_arrivals_overlap] = {"async-dn", "sync.overlap=1", NULL},
    [CONFLICT_arrivals_moments] = {"async-dn", "sync.period_v=50", NULL},
    [CONFLICT_arrivals_mix] = {"async-dn", "sync.mix=0.5", NULL},
    [CONFLICT_arrivals_momentum] = {"async-naive", "", no_baseline},
    [CONFLICT_delayed_arrivals] = {"diloco", "", be_delayed},
    [CONFLICT_quorum_butterfly] =
        {"async-dn", "sync.topology=butterfly", NULL},
    [CONFLICT_owners_group] = {"diloco", "sync.topology=owners", NULL},
    [CONFLICT_owners_run] = {"async-dn", "sync.topology=owners", NULL},
    [CONFLICT_moments_wire] =
        {"local-adam", "sync.wire=e3m0 sync.topology=butterfly", NULL},
    [CONFLICT_squares_wire] = {"desloc", "sync.wire=fp16", NULL},
    [CONFLICT_moments_feedback] = {"desloc", "sync.error_feedback=true", NULL},
    [CONFLICT_sparse_feedback] =
        {"diloco", "sync.wire=sparse sync.topology=butterfly", NULL},
    [CONFLICT_sparse_clip] = {"diloco",
                              "sync.wire=sparse sync.error_feedback=true "
                              "sync.topology=butterfly sync.norm_clip=1",
                              NULL},
    [CONFLICT_ring_wire] = {"diloco", "sync.wire=int8", NULL},
    [CONFLICT_clip_topology] = {"diloco", "sync.norm_clip=2", NULL},
    [CONFLICT_robust_radius] =
        {"diloco", "sync.robust=centred sync.topology=butterfly", NULL},
    [CONFLICT_rollback_group] = {"noloco", "sync.rollback=0.5", NULL},
    [CONFLICT_rollback_overlap] = {"streaming", "sync.rollback=0.5", NULL},
    [CONFLICT_rollback_stages] =
        {"diloco", CUT " stages=2 sync.rollback=0.5", NULL},
    [CONFLICT_audit_group] =
        {"adloco", "sync.audit=sums sync.topology=butterfly", NULL},
    [CONFLICT_audit_overlap] =
        {"eager", "sync.audit=sums sync.topology=butterfly", NULL},
    [CONFLICT_audit_moments] =
        {"desloc", "sync.audit=sums sync.topology=butterfly", NULL},
    [CONFLICT_audit_stages] =
        {"diloco", CUT " sync.audit=sums sync.topology=butterfly", NULL},
    [CONFLICT_audit_sites] = {"diloco", "sites=4 sync.audit=sums", NULL},
    [CONFLICT_audit_topology] = {"diloco", "sync.audit=sums", NULL},
    [CONFLICT_robust_off] =
        {"diloco", "sync.robust=off sync.norm_clip=2 sync.topology=butterfly",
         NULL},
    [CONFLICT_clip_pairs] =
        {"noloco", "sync.norm_clip=2 sync.topology=butterfly", NULL},
    [CONFLICT_clip_moments] =
        {"desloc", "sync.norm_clip=2 sync.topology=butterfly", NULL},
    [CONFLICT_clip_trainers] =
        {"adloco", "sync.norm_clip=2 sync.topology=butterfly", NULL},
    [CONFLICT_mix_share] = {"streaming", "sync.mix=1", NULL},
    [CONFLICT_mix_eager] = {"eager", "sync.mix=0.5", NULL},
    [CONFLICT_second_moment] = {"desloc", "inner.optimizer=sgdm", NULL},
    [CONFLICT_first_moment] =
        {"desloc", "inner.optimizer=sgd sync.period_v=0", NULL},
    [CONFLICT_muon_lr] = {"diloco", "inner.muon_lr=4", NULL},
    [CONFLICT_muon_gradients] = {"ddp", "inner.optimizer=muon", NULL},
    [CONFLICT_trainers_only] = {"diloco", "sync.trainers=2", NULL},
    [CONFLICT_batch_trainers] = {"diloco", "sync.batch_test=norm", NULL},
    [CONFLICT_batch_tuned] = {"adloco", "sync.batch_vartheta=0.1", NULL},
    [CONFLICT_trainers_batch] = {"adloco", "sync.batch_test=fixed", NULL},
    [CONFLICT_trainers_count] = {"adloco", "sync.trainers=0", NULL},
    [CONFLICT_trainers_merge] = {"adloco", "sync.merge_every=22", NULL},
    [CONFLICT_trainers_most] = {"adloco", "sync.batch_most=0", NULL},
    [CONFLICT_trainers_rule] = {"adloco", "sync.outer_momentum=0.9", NULL},
    [CONFLICT_trainers_fragments] = {"adloco", "sync.fragments=2", NULL},
    [CONFLICT_trainers_overlap] = {"adloco", "sync.overlap=5", NULL},
    [CONFLICT_trainers_moments] = {"adloco", "sync.period_u=200", NULL},
    [CONFLICT_trainers_mix] = {"adloco", "sync.mix=0.5", NULL},
    [CONFLICT_trainers_feedback] = {"adloco", "sync.error_feedback=true", NULL},
    [CONFLICT_trainers_wire] =
        {"adloco", "sync.wire=e3m0 sync.topology=butterfly", NULL},
    [CONFLICT_sites_topology] =
        {"diloco", "sites=4 sync.topology=butterfly", NULL},
    [CONFLICT_site_rtt] = {"diloco", "site_rtt_ms=5", NULL},
    [CONFLICT_stages_pairs] = {"noloco", CUT, NULL},
    [CONFLICT_stages_trainers] = {"adloco", CUT, NULL},
    [CONFLICT_stages_quorum] = {"async-dn", CUT, NULL},
    [CONFLICT_stages_gradients] = {"ddp", CUT, NULL},
    [CONFLICT_stages_eager] = {"eager", CUT, NULL},
    [CONFLICT_stages_overlap] = {"streaming", CUT " sync.fragments=1", NULL},
    [CONFLICT_stages_fragments] = {"streaming", CUT " sync.overlap=0", NULL},
    [CONFLICT_stages_sites] = {"diloco", CUT " sites=2", NULL},
    [CONFLICT_stages_most] =
        {"diloco", CUT " stages=65 model.layers=70 inner.micro_batch=1"
         " inner.seq=128", NULL},
    [CONFLICT_stages_wide] =
        {"diloco", CUT " model.dim=2048 model.seq=1024 inner.seq=1024"
         " inner.batch=64 inner.micro_batch=64", NULL},
    [CONFLICT_machine_plain] = {"diloco", "encryption=off", NULL},
    [CONFLICT_run_plain] = {"diloco", "transport.encryption=off", NULL},
    [CONFLICT_upload_cap] = {"diloco", "upload_bytes_per_s=1000", NULL},
    [CONFLICT_download_cap] = {"diloco", "download_bytes_per_s=1000", NULL},
};
/* clang-format on */
_Static_assert(sizeof examples / sizeof examples[0] == CONFLICT_COUNT,
               "a row without an example");

static struct manifest f;
static struct machine_limits o;
static struct method m;
static char errmsg[LOCO_ERRMSG_MAX];

/* One key of the manifest or of this machine's settings. */
static bool set(const char *key, const char *value)
{
    char text[DOC_TEXT_MAX];

    if (strcmp(key, "encryption") == 0) {
        o.encryption = strcmp(value, "on") == 0;
    } else if (strcmp(key, "upload_bytes_per_s") == 0) {
        o.upload_bytes_per_s = strtoull(value, NULL, 10);
    } else if (strcmp(key, "download_bytes_per_s") == 0) {
        o.download_bytes_per_s = strtoull(value, NULL, 10);
    } else {
        return doc_set(manifest_schema(), &f, key, value, text) == 0;
    }
    return true;
}

/* "a.b=1, c=d.e": the value of another key where there is such a key. */
static void set_all(enum conflict_id id, const char *list)
{
    char text[1024], value[DOC_TEXT_MAX];
    char *rest = text;

    (void)snprintf(text, sizeof text, "%s", list);
    for (char *key; (key = strtok_r(rest, ", ", &rest)) != NULL;) {
        char *equals = strchr(key, '=');

        if (equals == NULL) {
            fail_msg("%s: '%s' sets nothing", conflicts[id].name, key);
        }
        *equals = '\0';
        if (strchr(equals + 1, '.') == NULL ||
            doc_get(manifest_schema(), &f, equals + 1, value, NULL) != 0) {
            (void)snprintf(value, sizeof value, "%s", equals + 1);
        }
        if (!set(key, value)) {
            fail_msg("%s: %s=%s is no setting", conflicts[id].name, key, value);
        }
    }
}

static void resolve(void)
{
    /* No rule is asked. */
    assert_int_equal(method_from_manifest(&m, &f, SCOPE_FORMAT, errmsg), 0);
}

static bool refused(enum conflict_id id)
{
    return rules_refuse(id, &m, &f) || machine_refuses(id, &f, &o);
}

/* The example of a row, and the sentence that people get. */
static void refuse(enum conflict_id id)
{
    const struct example *e = &examples[id];
    const struct preset *preset;

    assert_int_equal(preset_find(e->preset, &preset, NULL), 0);
    example_manifest(&f);
    manifest_from_preset(&f, preset);
    o = (struct machine_limits){.encryption = true};
    set_all(id, e->set);
    resolve();
    if (e->alter != NULL) {
        e->alter(&m);
    }
    if (!refused(id)) {
        fail_msg("%s: the example is not refused", conflicts[id].name);
    }
    if (conflicts[id].scope == SCOPE_FORMAT) {
        assert_int_equal(manifest_validate(&f, errmsg), LOCO_EINVAL);
    } else if (conflicts[id].scope == SCOPE_MACHINE) {
        assert_int_equal(machine_check(&f, &o, errmsg), LOCO_EINVAL);
    } else {
        assert_int_equal(rules_check(&m, &f, SCOPE_RUN, errmsg), LOCO_EINVAL);
    }
}

static void each_rule_refuses_its_example_with_its_sentence(void **state)
{
    (void)state;
    for (unsigned id = 0; id < CONFLICT_COUNT; id++) {
        refuse((enum conflict_id)id);
        if (strstr(errmsg, conflicts[id].reason) == NULL ||
            strlen(errmsg) >= sizeof errmsg - 1) {
            fail_msg("%s: %s", conflicts[id].name, errmsg);
        }
    }
}

static void the_nearest_valid_setting_is_valid(void **state)
{
    char nearest[256], *advice;

    (void)state;
    for (unsigned id = 0; id < CONFLICT_COUNT; id++) {
        refuse((enum conflict_id)id);
        (void)snprintf(nearest, sizeof nearest, "%s", conflicts[id].nearest);
        advice = strstr(nearest, ", or ");
        if (advice != NULL) {
            *advice = '\0';
        }
        set_all((enum conflict_id)id, nearest);
        resolve();
        if (refused((enum conflict_id)id)) {
            fail_msg("%s: still refused", conflicts[id].name);
        }
        if (rules_check(&m, &f, SCOPE_RUN, errmsg) != 0 ||
            machine_check(&f, &o, errmsg) != 0 ||
            manifest_validate(&f, errmsg) != 0) {
            fail_msg("%s: then %s", conflicts[id].name, errmsg);
        }
    }
}

static void a_sentence_has_the_values_that_it_is_about(void **state)
{
    (void)state;
    refuse(CONFLICT_pull_partner);
    assert_string_equal(
        errmsg,
        "sync.gamma=0.5, sync.preset=diloco: the pull goes "
        "towards a partner, and with this method all members "
        "hold the same anchor; set sync.gamma=0, or sync.preset=noloco");
    refuse(CONFLICT_seq);
    assert_string_equal(errmsg,
                        "inner.seq=257, model.seq=256: a sequence is longer "
                        "than the longest context of the model; set "
                        "inner.seq=256");
    refuse(CONFLICT_upload_cap);
    assert_string_equal(errmsg,
                        "upload_bytes_per_s=1000, "
                        "round.progress_floor_bytes_per_s=32768: this run "
                        "counts a peer below its floor as gone; set "
                        "upload_bytes_per_s=32768");
}

/* Without the manifest (method_check), and cut where there is no room. */
static void a_sentence_without_values_names_the_settings(void **state)
{
    char small[16];

    (void)state;
    conflict_say(CONFLICT_seq, NULL, NULL, errmsg, sizeof errmsg);
    assert_non_null(strstr(errmsg, "inner.seq, model.seq: "));
    assert_non_null(strstr(errmsg, "; set inner.seq=model.seq"));
    conflict_say(CONFLICT_seq, NULL, NULL, small, sizeof small);
    assert_string_equal(small, "inner.seq, mode");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rule_refuses_its_example_with_its_sentence),
        cmocka_unit_test(the_nearest_valid_setting_is_valid),
        cmocka_unit_test(a_sentence_has_the_values_that_it_is_about),
        cmocka_unit_test(a_sentence_without_values_names_the_settings),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
