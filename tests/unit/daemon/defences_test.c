/* defences_test.c - which run can have which defence, and the page that says
 * so.
 *
 * `test_daemon_defences --print > daemon/DEFENCES.md` writes the page.
 */
#include "daemon/settings/defences.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/settings/method_manifest.h"
#include "proto/base/errmsg.h"
#include "tests/unit/proto/example.h"

#define PAGE_MAX 16384
#define N_OF(a)  (sizeof(a) / sizeof((a)[0]))

/* In two parts: a string of C99 has 4,095 characters at most. */
static const char head[] =
    "# Defences against members that lie\n"
    "\n"
    "Made of `daemon/settings/defences.def` by\n"
    "`build/tests/test_daemon_defences --print > daemon/DEFENCES.md`. *no*: it "
    "cannot work\n"
    "there; the reasons are below.\n"
    "\n"
    "`loco run create` gives an open run (anybody may join) a robust mean: it "
    "sets\n"
    "`sync.topology=butterfly`, `sync.norm_clip=1` and `sync.robust=centred`. "
    "`--set\n"
    "sync.robust=off` turns it off. Where a run cannot have one, a warning "
    "says so and\n"
    "names the nearest run that can. In a run for invited peers `--set "
    "sync.robust=centred`\n"
    "turns it on. It needs 3 members or more: of two contributions nobody can "
    "say which\n"
    "one is wrong. What it costs, and what is left of a lie: "
    "`tests/bench/README.md`.\n"
    "\n"
    "A lie that keeps within the noise of one round passes a robust mean. So "
    "in a run with one\n"
    "each member watches the slices that it sums, at places that nobody else "
    "knows. It names\n"
    "whose contributions go another way than those of the others, round after "
    "round, and whom\n"
    "at least half of the members name is in no plan for 64, 128, then 256 "
    "rounds (`strays` in\n"
    "`loco status --json`; `proto/PROTOCOL.md`, *Members that stray*). Nobody "
    "is convicted by\n"
    "it. It takes some rounds, and a lie in slices that less than half of "
    "the members see\n"
    "is not named at all.\n"
    "\n"
    "An open run with held-out text has a gate, too (`sync.rollback=0.5`, bits "
    "per byte):\n"
    "members measure the model after each round on windows that nobody knows "
    "before, and\n"
    "a round that most find worse is taken back (`proto/PROTOCOL.md`, *A "
    "rollback*).\n"
    "\n"
    "An open run with a robust mean has an *audit of sums*, too, where its "
    "method allows it\n"
    "(`sync.audit=sums`; `--set sync.audit=off` turns it off). The owner of a "
    "slice sums it\n"
    "alone, so it could put any bytes there. After each round each member "
    "draws up to 16\n"
    "blocks of the slices of others (at most 3 % of the bytes of the round), "
    "fetches what\n"
    "all members sent for these blocks, with proofs, and makes the sums again. "
    "In a large\n"
    "model all members together look at about 16 blocks of each slice, so an "
    "owner that\n"
    "alters a share f of its slice is found with probability about 1 - (1 - "
    "f)^16 a round:\n"
    "81 % for a tenth of it, 15 % for a hundredth, and again in each round in "
    "which it\n"
    "lies. What convicts it, it signed itself: anybody checks the proof "
    "offline (`loco\n"
    "verify --evidence FILE`).\n"
    "\n"
    "An audit of sums sees wrong sums only. It does not see false "
    "contributions: what a\n"
    "member made up and announced is summed as it is. Nor can a sum be "
    "repeated if one\n"
    "member serves its contribution to nobody. That member is not convicted, "
    "as its line\n"
    "may be down. But all look at the same block then, and whom more than half "
    "find silent\n"
    "is in no plan for 2, 4, 8 .. 64 rounds, so it sums nothing, but in rounds "
    "of which a\n"
    "member that lies makes the plan (`audits.unanswered`, `audits.silent` in "
    "`loco status\n"
    "--json`). In rounds shorter than two seconds nobody is known to be silent "
    "in time.\n"
    "\n";

static const char more[] =
    "It costs one more hash over the own contribution a round, a copy of the "
    "encoded\n"
    "contribution for two rounds in memory, and a proof beside each segment: "
    "at most two\n"
    "hashes a level of the tree over its blocks.\n"
    "\n"
    "An *audit of work* is in a run that asks for it (`--set "
    "sync.audit=work`, which has\n"
    "audits of sums, too). Each member makes the work of another one again, "
    "one round in\n"
    "20, which is 5 % of its time: from the same state, text and inner "
    "moments. Where that\n"
    "is not what the other contributed it says so, all others look, and of "
    "whom more than\n"
    "half read bad work is left out of views. Their signed words are kept as "
    "evidence, too,\n"
    "which a member reads when it starts again, and anybody checks. So "
    "somebody looks at\n"
    "each member once in 20 rounds in the mean, and in the simulator who makes "
    "work up is\n"
    "in 27 rounds until it is out. It needs 3 full members. It is new, and no "
    "run has it by itself:\n"
    "machines of different kinds were measured for small models only "
    "(`p2p/round/STRANGERS.md`,\n"
    "section 5, which has what it does not see, too). Moments are kept for "
    "others, so it takes\n"
    "memory (`loco join` and `loco doctor` count it). Work that comes later "
    "than\n"
    "`round.grace_ms` after that of most is dropped and not kept for the next "
    "round: so the\n"
    "grace has to be longer than what the slowest machine needs beyond the "
    "others.\n"
    "\n"
    "A butterfly sends as many bytes as a ring, but between every two members. "
    "Where two\n"
    "cannot connect (both behind routers that map no port) a third one passes "
    "on what they\n"
    "send each other; a ring often finds an order without such neighbours.\n"
    "\n";

static char page[PAGE_MAX];
static size_t n_page;
static struct manifest f;
static struct method m;
static char errmsg[ERRMSG_SIZE];

static void put(const char *text)
{
    n_page += (size_t)snprintf(page + n_page, sizeof page - n_page, "%s", text);
    if (n_page >= sizeof page) {
        abort();
    }
}

static void cell(const char *text)
{
    put(" ");
    put(text);
    put(" |");
}

/* The run of a preset as the network trains it. */
static void begin(const struct preset *preset)
{
    example_manifest(&f);
    manifest_from_preset(&f, preset);
    if (method_from_manifest(&m, &f, SCOPE_RUN, errmsg) != 0) {
        (void)fprintf(stderr, "%s: %s\n", preset->name, errmsg);
        abort();
    }
}

static void make_presets(void)
{
    put("| preset |");
    for (unsigned d = 0; d < DEFENCE_COUNT; d++) {
        cell(defence_title((enum defence)d));
    }
    put("\n|---|---|---|---|---|\n");
    for (size_t i = 0; preset_at(i) != NULL; i++) {
        begin(preset_at(i));
        put("| `");
        put(preset_at(i)->name);
        put("` |");
        for (unsigned d = 0; d < DEFENCE_COUNT; d++) {
            cell(defence_lack((enum defence)d, &m, &f) != NULL ? "no" : "yes");
        }
        put("\n");
    }
}

static void make_reasons(void)
{
    const struct defence_lack *lack;

    put("\n| defence | runs without it | why | nearest that can have it "
        "|\n|---|---|---|---|\n");
    for (size_t i = 0; (lack = defence_lack_at(i)) != NULL; i++) {
        put("|");
        cell(defence_title(lack->of));
        cell(lack->who);
        cell(lack->reason);
        put(" `");
        put(lack->nearest);
        put("` |\n");
    }
}

static void make_page(void)
{
    n_page = 0;
    put(head);
    put(more);
    make_presets();
    make_reasons();
}

static void the_page_is_what_the_table_makes(void **state)
{
    static char have[PAGE_MAX];
    FILE *file = fopen(DEFENCES_MD, "rb");

    (void)state;
    assert_non_null(file);
    assert_true(fread(have, 1, sizeof have - 1, file) > 0);
    assert_int_equal(fclose(file), 0);
    make_page();
    if (strcmp(have, page) != 0) {
        fail_msg("daemon/DEFENCES.md is another one; see the top of this "
                 "test's source");
    }
}

/* No run is given what its peers would refuse. */
static void a_robust_mean_is_where_the_rules_allow_it(void **state)
{
    (void)state;
    for (size_t i = 0; preset_at(i) != NULL; i++) {
        bool can, allowed;

        begin(preset_at(i));
        can = defence_lack(DEFENCE_ROBUST_MEAN, &m, &f) == NULL;
        defence_robust(&f.sync);
        assert_true(defence_is_robust(&f.sync));
        allowed = method_from_manifest(&m, &f, SCOPE_RUN, errmsg) == 0;
        if (can != allowed) {
            fail_msg("%s: %s", preset_at(i)->name, errmsg);
        }
    }
}

static void an_audit_of_sums_is_where_the_rules_allow_it(void **state)
{
    (void)state;
    for (size_t i = 0; preset_at(i) != NULL; i++) {
        bool can, allowed;

        begin(preset_at(i));
        assert_false(defence_is_audited(&f.sync));
        can = defence_lack(DEFENCE_AUDIT_OF_SUMS, &m, &f) == NULL;
        defence_audit(&f.sync);
        assert_true(defence_is_audited(&f.sync));
        allowed = method_from_manifest(&m, &f, SCOPE_RUN, errmsg) == 0;
        if (can != allowed) {
            fail_msg("%s: %s", preset_at(i)->name, errmsg);
        }
    }
}

/* But that of cost, which is the author's matter. */
static void a_gate_is_where_the_rules_allow_it(void **state)
{
    (void)state;
    for (size_t i = 0; preset_at(i) != NULL; i++) {
        bool can, allowed;

        begin(preset_at(i));
        f.sync.period = f.sync.period == 1 ? 1 : 200;
        can = defence_lack(DEFENCE_GATE, &m, &f) == NULL;
        defence_gate(&f.sync);
        assert_true(f.sync.rollback > 0);
        allowed = method_from_manifest(&m, &f, SCOPE_RUN, errmsg) == 0;
        if (can ? !allowed : allowed && f.sync.period > 1) {
            fail_msg("%s: %s", preset_at(i)->name, errmsg);
        }
    }
}

/* What the advice says, done to f. */
static void follow(const char *advice)
{
    char path[DOC_PATH_MAX];
    const struct preset *preset;
    const char *equals = strchr(advice, '=');

    if (strncmp(advice, "--sync ", 7) == 0) {
        assert_int_equal(preset_find(advice + 7, &preset, errmsg), 0);
        manifest_from_preset(&f, preset);
    } else {
        assert_int_equal(strncmp(advice, "--set ", 6), 0);
        assert_non_null(equals);
        (void)snprintf(path, sizeof path, "%.*s", (int)(equals - advice - 6),
                       advice + 6);
        assert_int_equal(
            doc_set(manifest_schema(), &f, path, equals + 1, errmsg), 0);
    }
    assert_int_equal(method_from_manifest(&m, &f, SCOPE_RUN, errmsg), 0);
}

static void whoever_follows_the_advice_has_the_defence(void **state)
{
    (void)state;
    for (size_t i = 0; preset_at(i) != NULL; i++) {
        for (unsigned d = 0; d < DEFENCE_COUNT; d++) {
            const struct defence_lack *lack;

            begin(preset_at(i));
            lack = defence_lack((enum defence)d, &m, &f);
            if (lack != NULL) {
                assert_int_equal(lack->of, d);
                follow(lack->nearest);
                assert_null(defence_lack((enum defence)d, &m, &f));
            }
        }
    }
}

static void lacks_until_advised(enum defence d)
{
    const struct defence_lack *lack = defence_lack(d, &m, &f);

    assert_non_null(lack);
    assert_int_equal(lack->of, d);
    follow(lack->nearest);
    assert_null(defence_lack(d, &m, &f));
}

static void a_cut_model_and_sites_have_no_owners_to_defend(void **state)
{
    static const enum defence of_owners[] = {DEFENCE_ROBUST_MEAN,
                                             DEFENCE_AUDIT_OF_SUMS};
    const struct preset *preset;

    (void)state;
    assert_int_equal(preset_find("opendiloco", &preset, errmsg), 0);
    for (size_t i = 0; i < N_OF(of_owners); i++) {
        begin(preset);
        assert_null(defence_lack(of_owners[i], &m, &f));
        f.sites = 4;
        lacks_until_advised(of_owners[i]);
        f.stages = 2;
        f.model.tied = false;
        lacks_until_advised(of_owners[i]);
    }
}

/* The rule says the same of runs that the author sets up so. */
static void a_cut_model_and_sites_are_refused_an_audit(void **state)
{
    const struct preset *preset;

    (void)state;
    assert_int_equal(preset_find("opendiloco", &preset, errmsg), 0);
    begin(preset);
    defence_audit(&f.sync);
    assert_int_equal(method_from_manifest(&m, &f, SCOPE_RUN, errmsg), 0);
    f.model.tied = false;
    f.stages = 2;
    assert_int_not_equal(method_from_manifest(&m, &f, SCOPE_RUN, errmsg), 0);
    assert_non_null(strstr(errmsg, "sync.audit=sums, stages=2"));
    f.stages = 1;
    f.sites = 4;
    assert_int_not_equal(method_from_manifest(&m, &f, SCOPE_RUN, errmsg), 0);
    assert_non_null(strstr(errmsg, "sync.audit=sums, sites=4"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_page_is_what_the_table_makes),
        cmocka_unit_test(a_robust_mean_is_where_the_rules_allow_it),
        cmocka_unit_test(an_audit_of_sums_is_where_the_rules_allow_it),
        cmocka_unit_test(a_gate_is_where_the_rules_allow_it),
        cmocka_unit_test(whoever_follows_the_advice_has_the_defence),
        cmocka_unit_test(a_cut_model_and_sites_have_no_owners_to_defend),
        cmocka_unit_test(a_cut_model_and_sites_are_refused_an_audit),
    };

    if (argc == 2 && strcmp(argv[1], "--print") == 0) {
        make_page();
        (void)fputs(page, stdout);
        return 0;
    }
    return cmocka_run_group_tests_name("daemon/defences", tests, NULL, NULL);
}
