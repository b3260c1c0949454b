/* method_manifest_test.c - which methods can train a model that is cut. */
#include "daemon/method_manifest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "train/errmsg.h"

static void opendiloco(struct manifest *f, struct method *m)
{
    const struct preset *preset;
    char errmsg[ERRMSG_SIZE];

    assert_int_equal(preset_find("opendiloco", &preset, errmsg), 0);
    manifest_default(f);
    manifest_from_preset(&f->sync, preset);
    assert_int_equal(method_from_manifest(m, &f->sync, errmsg), 0);
    f->stages = 2;
    assert_int_equal(method_check_stages(m, f, errmsg), 0);
}

static void
refused(const struct method *m, const struct manifest *f, const char *why)
{
    char errmsg[ERRMSG_SIZE] = "";

    assert_int_equal(method_check_stages(m, f, errmsg), LOCO_EINVAL);
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
    f.stages = 1;
    assert_int_equal(method_check_stages(&m, &f, errmsg), 0);
}

static void what_stages_cannot_do_is_refused_with_the_reason(void **state)
{
    static struct manifest f;
    struct method m, other;

    (void)state;
    opendiloco(&f, &m);
    other = m;
    other.group = METHOD_PAIR;
    refused(&other, &f, "pairs");
    other = m;
    other.group = METHOD_QUORUM;
    refused(&other, &f, "quorum");
    other = m;
    other.gradients = true;
    refused(&other, &f, "ddp");
    other = m;
    other.overlap = 1;
    refused(&other, &f, "sync.overlap");
    other = m;
    other.fragments = 4;
    refused(&other, &f, "sync.fragments");
    f.sites = 2;
    refused(&m, &f, "sites");
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
    assert_int_equal(method_check_stages(&m, &f, (char[ERRMSG_SIZE]){0}), 0);
    f.stages = 65;
    refused(&m, &f, "64 stages");
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
    assert_int_equal(method_check_stages(&m, &f, (char[ERRMSG_SIZE]){0}), 0);
    f.inner.micro_batch = 64;
    refused(&m, &f, "inner.micro_batch");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_that_is_not_cut_is_not_looked_at),
        cmocka_unit_test(what_stages_cannot_do_is_refused_with_the_reason),
        cmocka_unit_test(more_than_64_stages_are_refused),
        cmocka_unit_test(activations_that_cannot_be_posted_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
