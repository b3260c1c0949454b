/* method_manifest_test.c - which runs no machine would train, and what an
 * author is told. */
#include "daemon/settings/method_manifest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/jobs/run_vector.h"
#include "p2p/terms.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"

/* A run of two stages. */
static void opendiloco(struct manifest *f, struct method *m)
{
    const struct preset *preset;
    char errmsg[ERRMSG_SIZE];

    assert_int_equal(preset_find("opendiloco", &preset, errmsg), 0);
    manifest_default(f);
    manifest_from_preset(f, preset);
    f->stages = 2;
    assert_int_equal(method_from_manifest(m, f, SCOPE_RUN, errmsg), 0);
}

static void
refused(const struct method *m, const struct manifest *f, const char *why)
{
    char errmsg[ERRMSG_SIZE] = "";

    assert_int_equal(rules_check(m, f, SCOPE_RUN, errmsg), LOCO_EINVAL);
    assert_non_null(strstr(errmsg, why));
}

static void a_model_that_is_not_cut_is_not_looked_at(void **state)
{
    static struct manifest f;
    struct method m;
    char errmsg[ERRMSG_SIZE];

    (void)state;
    opendiloco(&f, &m);
    f.sites = 3;
    refused(&m, &f, "sites are not built for stages");
    f.stages = 1;
    assert_int_equal(rules_check(&m, &f, SCOPE_RUN, errmsg), 0);
}

/* A manifest comes from others: more stages than any table has room for. */
static void more_than_64_stages_are_refused(void **state)
{
    static struct manifest f;
    struct method m;

    (void)state;
    opendiloco(&f, &m);
    f.stages = 64;
    f.inner.micro_batch = 1;
    f.inner.seq = 128;
    f.model.dim = 64;
    assert_int_equal(rules_check(&m, &f, SCOPE_RUN, NULL), 0);
    f.stages = 65;
    refused(&m, &f, "64 stages");
}

/* What peers cannot do yet, the laboratory plays. */
static void the_laboratory_plays_what_peers_cannot(void **state)
{
    static struct manifest f;
    struct method m;

    (void)state;
    opendiloco(&f, &m);
    f.sites = 3;
    refused(&m, &f, "sites");
    assert_int_equal(rules_check(&m, &f, SCOPE_SETTINGS, NULL), 0);
}

/* Segments that do not fit into what one step may say would never go out. */
static void activations_that_cannot_be_posted_are_refused(void **state)
{
    static struct manifest f;
    struct method m;

    (void)state;
    opendiloco(&f, &m);
    f.inner.micro_batch = 8;
    f.inner.seq = 1024;
    f.model.dim = 2048;
    assert_int_equal(rules_check(&m, &f, SCOPE_RUN, NULL), 0);
    f.inner.micro_batch = 64;
    refused(&m, &f, "inner.micro_batch");
}

/* ---- settings that do not go together ---------------------------------- */

static struct manifest *of(const char *preset)
{
    static struct manifest f;
    const struct preset *p;

    assert_int_equal(preset_find(preset, &p, NULL), 0);
    manifest_default(&f);
    manifest_from_preset(&f, p);
    f.model.layers = 5;
    return &f;
}

static int check(const struct manifest *f, char *errmsg)
{
    struct method m;

    return method_from_manifest(&m, f, SCOPE_RUN, errmsg);
}

/* One sentence: a reason, and what to do. */
static void says(const struct manifest *f, const char *why)
{
    char errmsg[ERRMSG_SIZE] = "";

    assert_int_equal(check(f, errmsg), LOCO_EINVAL);
    if (strstr(errmsg, why) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", errmsg, why);
    }
}

static void text(char *field, size_t size, const char *value)
{
    (void)snprintf(field, size, "%s", value);
}

#define SET(F, FIELD, VALUE) text((F)->FIELD, sizeof(F)->FIELD, VALUE)

static void every_preset_is_a_run_as_it_stands(void **state)
{
    char errmsg[ERRMSG_SIZE] = "";

    (void)state;
    for (size_t i = 0; preset_at(i) != NULL; i++) {
        if (check(of(preset_at(i)->name), errmsg) != 0) {
            fail_msg("%s: %s", preset_at(i)->name, errmsg);
        }
    }
}

static void a_topology_that_cannot_carry_the_method_is_refused(void **state)
{
    struct manifest *f = of("async-dn");

    (void)state;
    SET(f, sync.topology, "butterfly");
    says(f, "set sync.topology=ring");
    f = of("opendiloco");
    SET(f, sync.topology, "owners");
    says(f, "set sync.topology=ring, or sync.preset=async-dn");
    f = of("opendiloco");
    SET(f, sync.wire, "int8");
    says(f, "set sync.topology=butterfly, or sync.wire=fp16");
    SET(f, sync.topology, "butterfly");
    assert_int_equal(check(f, NULL), 0);
    f->sites = 4;
    says(f, "set sites=0");
}

static void pairs_are_told_what_they_cannot_know(void **state)
{
    struct manifest *f = of("noloco");

    (void)state;
    f->stop.tokens = 1000;
    says(f, "or rather stop.rounds");
    f->stop.tokens = 0;
    f->sites = 2;
    says(f, "set sites=0");
}

static void a_norm_clip_is_for_differences_of_all(void **state)
{
    struct manifest *f = of("opendiloco");

    (void)state;
    f->sync.norm_clip = 2;
    says(f, "set sync.topology=butterfly");
    SET(f, sync.topology, "butterfly");
    assert_int_equal(check(f, NULL), 0);
    f = of("desloc");
    f->sync.norm_clip = 2;
    SET(f, sync.topology, "butterfly");
    says(f, "moments are no differences; set sync.norm_clip=0");
    f = of("adloco");
    f->sync.norm_clip = 2;
    SET(f, sync.topology, "butterfly");
    says(f, "set sync.norm_clip=0");
}

static void audits_of_work_are_refused_where_they_cannot_be(void **state)
{
    struct manifest *f = of("favg-keep");

    (void)state;
    SET(f, sync.topology, "butterfly");
    SET(f, sync.audit, "work");
    assert_int_equal(check(f, NULL), 0);
    SET(f, sync.wire, "e3m0");
    assert_int_equal(check(f, NULL), 0);
    SET(f, sync.wire, "int2");
    says(f, "two bits an element leave too little of honest work");
    SET(f, sync.wire, "sparse");
    f->sync.error_feedback = true;
    says(f, "few elements leave too little of honest work");
    f->sync.error_feedback = false;
    SET(f, sync.wire, "e3m0");
    f->sync.error_feedback = true;
    says(f, "each contribution has what rounding took from those before");
    SET(f, sync.audit, "sums");
    assert_int_equal(check(f, NULL), 0);
}

/* Else all of favg-reset would need an excuse, and nobody would ever be named.
 */
static void terms_know_whose_moments_begin_anew(void **state)
{
    static const char *const names[] = {"favg-keep", "favg-reset"};

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct manifest *f = of(names[i]);
        struct run_vector v;
        struct run_terms t = {0};

        SET(f, sync.topology, "butterfly");
        SET(f, sync.audit, "work");
        assert_int_equal(run_vector_read(&v, f, NULL), 0);
        run_vector_cut(&v, &t);
        assert_true(t.audits_work);
        assert_int_equal(t.moments_anew, i);
    }
}

/* Nobody makes sums again, so an owner's own contribution need not be encoded;
 * a segment is not as long as its few bits allow. */
static void parts_without_audits_are_raw(void **state)
{
    static const char *const audits[] = {"off", "sums"};

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct manifest *f = of("localsgd");
        struct run_vector v;
        struct run_terms t = {0};

        SET(f, sync.topology, "butterfly");
        SET(f, sync.wire, "sparse");
        SET(f, sync.audit, audits[i]);
        f->sync.error_feedback = true;
        assert_int_equal(run_vector_read(&v, f, NULL), 0);
        assert_int_equal(v.raw, i == 0);
        run_vector_cut(&v, &t);
        assert_int_equal(t.segment_elements, RUN_SEGMENT_ELEMENTS);
        SET(f, sync.wire, "int2");
        assert_int_equal(run_vector_read(&v, f, NULL), 0);
        assert_false(v.raw);
        run_vector_cut(&v, &t);
        assert_int_equal(t.segment_elements,
                         RUN_SEGMENT_BYTES / 260 * CODEC_INT2_BLOCK);
    }
}

static void moments_that_the_optimizer_has_not_are_no_stream(void **state)
{
    struct manifest *f = of("desloc");

    (void)state;
    SET(f, inner.optimizer, "sgdm");
    says(f, "set sync.period_v=0, or inner.optimizer=adamw");
    f->sync.period_v = 0;
    assert_int_equal(check(f, NULL), 0);
    SET(f, inner.optimizer, "sgd");
    says(f, "set sync.period_u=0, or inner.optimizer=sgdm");
    f->sync.period_u = 0;
    assert_int_equal(check(f, NULL), 0);
    f = of("desloc");
    SET(f, inner.optimizer, "muon");
    says(f, "set sync.period_v=0, or inner.optimizer=adamw");
    f->sync.period_v = 0; /* its momentum may be averaged */
    assert_int_equal(check(f, NULL), 0);
}

/* A preset may name an inner optimizer; what a person sets comes after it. */
static void a_preset_of_muon_sets_the_inner_optimizer(void **state)
{
    struct manifest *f = of("diloco");
    struct method m;

    (void)state;
    assert_string_equal(f->inner.optimizer, "adamw");
    f = of("muloco");
    assert_string_equal(f->inner.optimizer, "muon");
    SET(f, inner.optimizer, "adamw");
    assert_int_equal(check(f, NULL), 0);
    f = of("muon-avg");
    assert_string_equal(f->inner.optimizer, "muon");
    assert_string_equal(f->sync.topology, "butterfly");
    assert_true(f->sync.error_feedback);
    f = of("ddp"); /* the laboratory has one kind of processor */
    SET(f, inner.optimizer, "muon");
    says(f, "set inner.optimizer=adamw");
    assert_int_equal(method_from_manifest(&m, f, SCOPE_SETTINGS, NULL), 0);
}

/* The laboratory takes it (method_from_manifest), a run does not. */
static void
owners_are_a_choice_of_asynchronous_presets_in_the_laboratory(void **state)
{
    static const char *const presets[] = {"async-dn", "async-naive"};
    struct method m;

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct manifest *f = of(presets[i]);

        assert_int_equal(method_from_manifest(&m, f, SCOPE_SETTINGS, NULL), 0);
        assert_int_equal(m.group, METHOD_QUORUM);
        SET(f, sync.topology, "owners");
        assert_int_equal(method_from_manifest(&m, f, SCOPE_SETTINGS, NULL), 0);
        assert_int_equal(m.group, METHOD_OWNERS);
        says(f, "set sync.topology=ring");
        SET(f, sync.wire, "int8"); /* a piece is never summed on the way */
        assert_int_equal(method_from_manifest(&m, f, SCOPE_SETTINGS, NULL), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_that_is_not_cut_is_not_looked_at),
        cmocka_unit_test(the_laboratory_plays_what_peers_cannot),
        cmocka_unit_test(more_than_64_stages_are_refused),
        cmocka_unit_test(activations_that_cannot_be_posted_are_refused),
        cmocka_unit_test(every_preset_is_a_run_as_it_stands),
        cmocka_unit_test(a_topology_that_cannot_carry_the_method_is_refused),
        cmocka_unit_test(pairs_are_told_what_they_cannot_know),
        cmocka_unit_test(a_norm_clip_is_for_differences_of_all),
        cmocka_unit_test(audits_of_work_are_refused_where_they_cannot_be),
        cmocka_unit_test(terms_know_whose_moments_begin_anew),
        cmocka_unit_test(parts_without_audits_are_raw),
        cmocka_unit_test(moments_that_the_optimizer_has_not_are_no_stream),
        cmocka_unit_test(a_preset_of_muon_sets_the_inner_optimizer),
        cmocka_unit_test(
            owners_are_a_choice_of_asynchronous_presets_in_the_laboratory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
