/* checkpoint_test.c - a state survives; a damaged one is refused. */
#include "train/replica/checkpoint.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/hash64.h"
#include "proto/base/rng.h"
#include "tests/unit/train/disk_fault.h"
#include "tests/unit/train/tmpdir.h"

#define N 37

static struct tmpdir dir;
static char errmsg[ERRMSG_SIZE];
static float vectors[5][N];
static const struct checkpoint_vector beside[4] = {{"m", vectors[1]},
                                                   {"theta", vectors[2]},
                                                   {"adam_u", vectors[3]},
                                                   {"adam_v", vectors[4]}};

static int setup(void **state)
{
    uint64_t seed = 1;

    (void)state;
    tmpdir_make(&dir);
    errmsg[0] = '\0';
    for (unsigned v = 0; v < 5; v++) {
        for (unsigned i = 0; i < N; i++) {
            vectors[v][i] = rng_float(&seed) - 0.5F;
        }
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tmpdir_remove(&dir);
    return 0;
}

static struct checkpoint_state sample(uint64_t round)
{
    struct checkpoint_state s = {.n = N,
                                 .phi = vectors[0],
                                 .more = beside,
                                 .n_more = 4,
                                 .round = round,
                                 .inner_step = 500 * round + 3,
                                 .moment_steps = 500 * round - 100,
                                 .tokens = UINT64_MAX - round,
                                 .run_id = "7f3a"};
    return s;
}

static int save(uint64_t round, unsigned keep)
{
    struct checkpoint_state s = sample(round);
    const struct st_meta extra[2] = {{"model", "quickstart-1m"},
                                     {"params_hash", "00ff"}};

    return checkpoint_save(dir.path, &s, extra, 2, keep, errmsg);
}

/* Which of the rounds 1..9 are in the directory, as digits. */
static const char *rounds_there(void)
{
    static char out[16];
    size_t n = 0;

    for (unsigned r = 1; r <= 9; r++) {
        char name[64];

        (void)snprintf(name, sizeof name, "round-%08u.safetensors", r);
        if (access(tmpdir_file(&dir, name), F_OK) == 0) {
            out[n++] = (char)('0' + r);
        }
    }
    out[n] = '\0';
    return out;
}

static void a_state_is_loaded_as_it_was_saved(void **state)
{
    struct checkpoint c;

    (void)state;
    assert_int_equal(save(4, 2), 0);
    assert_int_equal(
        checkpoint_open(&c, tmpdir_file(&dir, "round-00000004.safetensors"),
                        errmsg),
        0);
    assert_int_equal(c.state.n, N);
    assert_int_equal(c.state.round, 4);
    assert_int_equal(c.state.inner_step, 2003);
    assert_int_equal(c.state.moment_steps, 1900);
    assert_true(c.state.tokens == UINT64_MAX - 4);
    assert_string_equal(c.state.run_id, "7f3a");
    assert_string_equal(checkpoint_text(&c, "model"), "quickstart-1m");
    assert_null(checkpoint_text(&c, "colour"));
    assert_memory_equal(c.state.phi, vectors[0], sizeof vectors[0]);
    for (int i = 0; i < 4; i++) {
        assert_memory_equal(checkpoint_vector(&c, beside[i].name),
                            beside[i].data, sizeof vectors[0]);
    }
    checkpoint_close(&c);
    checkpoint_close(&c);
}

static void vectors_that_are_absent_stay_absent(void **state)
{
    struct checkpoint c;
    struct checkpoint_state s = sample(1);

    (void)state;
    s.more = &beside[1];
    s.n_more = 1;
    assert_int_equal(checkpoint_save(dir.path, &s, NULL, 0, 1, errmsg), 0);
    assert_int_equal(checkpoint_open_newest(&c, dir.path, errmsg), 0);
    assert_non_null(c.state.phi);
    assert_non_null(checkpoint_vector(&c, "theta"));
    assert_null(checkpoint_vector(&c, "m"));
    assert_null(checkpoint_vector(&c, "adam_u"));
    assert_null(checkpoint_vector(&c, "adam_v"));
    checkpoint_close(&c);
    s.phi = NULL;
    assert_int_equal(checkpoint_save(dir.path, &s, NULL, 0, 1, errmsg),
                     LOCO_EINVAL);
}

static void vectors_of_the_callers_naming_come_back(void **state)
{
    struct checkpoint_vector more[3] = {{"residual", vectors[3]},
                                        {"u_shared", vectors[4]},
                                        {"phi", vectors[0]}};
    struct checkpoint_state s = sample(2);
    struct checkpoint c;

    (void)state;
    s.more = more;
    s.n_more = 2;
    assert_int_equal(checkpoint_save(dir.path, &s, NULL, 0, 1, errmsg), 0);
    assert_int_equal(checkpoint_open_newest(&c, dir.path, errmsg), 0);
    assert_memory_equal(checkpoint_vector(&c, "residual"), vectors[3],
                        sizeof vectors[3]);
    assert_memory_equal(checkpoint_vector(&c, "u_shared"), vectors[4],
                        sizeof vectors[4]);
    assert_memory_equal(checkpoint_vector(&c, "phi"), c.state.phi,
                        sizeof vectors[0]);
    assert_null(checkpoint_vector(&c, "v_shared"));
    checkpoint_close(&c);
    s.n_more = 3; /* a name of ours */
    assert_int_equal(checkpoint_save(dir.path, &s, NULL, 0, 1, errmsg),
                     LOCO_EINVAL);
    more[2].name = "residual"; /* twice */
    assert_int_equal(checkpoint_save(dir.path, &s, NULL, 0, 1, errmsg),
                     LOCO_EINVAL);
    more[2].name = "../x";
    assert_int_equal(checkpoint_save(dir.path, &s, NULL, 0, 1, errmsg),
                     LOCO_EINVAL);
    s.n_more = CHECKPOINT_MORE_MAX + 1;
    assert_int_equal(checkpoint_save(dir.path, &s, NULL, 0, 1, errmsg),
                     LOCO_EINVAL);
}

/* SIGKILL before every call that changes the disk, a write half made. */
static void a_kill_at_any_moment_leaves_a_whole_checkpoint(void **state)
{
    bool survived = false, old = false, new = false;

    (void)state;
    for (unsigned nth = 0; !survived; nth++) {
        struct checkpoint c;
        int status;
        pid_t pid;

        assert_true(nth < 1000);
        assert_int_equal(save(4, 2), 0);
        (void)unlink(tmpdir_file(&dir, "round-00000005.safetensors"));
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            disk_fault_kill(nth);
            _exit(save(5, 2) == 0 ? 0 : 1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        survived = WEXITSTATUS(status) == 0;
        assert_true(survived || WEXITSTATUS(status) == DISK_FAULT_KILLED);
        assert_int_equal(checkpoint_open_newest(&c, dir.path, errmsg), 0);
        assert_int_equal(c.n_damaged, 0);
        assert_true(c.state.round == 4 || c.state.round == 5);
        old = old || c.state.round == 4;
        new = new || c.state.round == 5;
        assert_true(!survived || c.state.round == 5);
        checkpoint_close(&c);
        assert_int_equal(save(6, 2), 0); /* what is left is in nobody's way */
        (void)unlink(tmpdir_file(&dir, "round-00000006.safetensors"));
    }
    assert_true(old && new);
}

static void only_the_newest_are_kept(void **state)
{
    (void)state;
    for (unsigned r = 1; r <= 5; r++) {
        assert_int_equal(save(r, 3), 0);
    }
    assert_string_equal(rounds_there(), "345");
    tmpdir_put(&dir, "round-1.safetensors", "not our name", 12);
    tmpdir_put(&dir, "identity.key", "secret", 6);
    assert_int_equal(save(6, 1), 0);
    assert_string_equal(rounds_there(), "6");
    assert_int_equal(tmpdir_count(&dir), 3);
}

static void a_save_of_a_lower_round_ends_the_branch_that_was_left(void **state)
{
    struct checkpoint c;

    (void)state;
    assert_int_equal(save(5, 3), 0);
    assert_int_equal(save(7, 3), 0);
    assert_int_equal(save(6, 3), 0);
    assert_string_equal(rounds_there(), "56");
    assert_int_equal(checkpoint_open_newest(&c, dir.path, errmsg), 0);
    assert_int_equal(c.state.round, 6);
    checkpoint_close(&c);
}

static void
the_newest_whole_one_is_opened_and_damaged_ones_are_counted(void **state)
{
    struct checkpoint c;
    size_t len;
    char *bytes;

    (void)state;
    assert_int_equal(checkpoint_open_newest(&c, dir.path, errmsg), LOCO_ENOENT);
    assert_non_null(strstr(errmsg, "no checkpoint in"));
    for (unsigned r = 1; r <= 3; r++) {
        assert_int_equal(save(r, 9), 0);
    }
    bytes = tmpdir_get(&dir, "round-00000003.safetensors", &len);
    tmpdir_put(&dir, "round-00000003.safetensors", bytes, len / 2);
    bytes[len - 1] ^= 1;
    tmpdir_put(&dir, "round-00000002.safetensors", bytes, len);
    assert_int_equal(checkpoint_open_newest(&c, dir.path, errmsg), 0);
    assert_int_equal(c.state.round, 1);
    assert_int_equal(c.n_damaged, 2);
    checkpoint_close(&c);
    tmpdir_put(&dir, "round-00000001.safetensors", "", 0);
    assert_int_equal(checkpoint_open_newest(&c, dir.path, errmsg), LOCO_ENOENT);
    assert_int_equal(c.n_damaged, 3);
    assert_non_null(strstr(errmsg, "round-00000001"));
    free(bytes);
}

static bool has_same(const struct checkpoint *c, int i)
{
    const float *x = checkpoint_vector(c, beside[i].name);

    return x != NULL && memcmp(x, beside[i].data, sizeof vectors[0]) == 0;
}

/* Whether two opened states differ in nothing that matters. */
static bool same_state(const struct checkpoint *c)
{
    return c->state.n == N && c->state.round == 4 &&
           c->state.inner_step == 2003 && c->state.tokens == UINT64_MAX - 4 &&
           strcmp(c->state.run_id, "7f3a") == 0 &&
           memcmp(c->state.phi, vectors[0], sizeof vectors[0]) == 0 &&
           has_same(c, 0) && has_same(c, 1) && has_same(c, 2) &&
           has_same(c, 3) &&
           strcmp(checkpoint_text(c, "model"), "quickstart-1m") == 0;
}

static void no_flipped_bit_changes_what_is_loaded(void **state)
{
    size_t len;
    char *bytes;
    unsigned n_refused = 0;

    (void)state;
    assert_int_equal(save(4, 1), 0);
    bytes = tmpdir_get(&dir, "round-00000004.safetensors", &len);
    for (size_t bit = 0; bit < 8 * len; bit++) {
        struct checkpoint c;
        int rv;

        bytes[bit / 8] ^= (char)(1 << bit % 8);
        rv = checkpoint_open_memory(&c, (uint8_t *)bytes, len, errmsg);
        if (rv == 0) { /* only white space or "format" can have changed */
            assert_true(same_state(&c));
        } else {
            assert_true(rv == LOCO_EFORMAT || rv == LOCO_EHASH);
            n_refused++;
        }
        checkpoint_close(&c);
        bytes[bit / 8] ^= (char)(1 << bit % 8);
    }
    /* Every bit of the vectors, and most of the header's. */
    assert_true(n_refused >= sizeof vectors * 8 + 1000);
    free(bytes);
}

static void every_truncation_is_refused(void **state)
{
    size_t len;
    char *bytes;
    struct checkpoint c;

    (void)state;
    assert_int_equal(save(4, 1), 0);
    bytes = tmpdir_get(&dir, "round-00000004.safetensors", &len);
    for (size_t n = 0; n < len; n++) {
        assert_int_equal(
            checkpoint_open_memory(&c, (uint8_t *)bytes, n, errmsg),
            LOCO_EFORMAT);
    }
    free(bytes);
}

static void a_full_disk_leaves_the_previous_checkpoint_in_place(void **state)
{
    bool hit = true;
    unsigned n_faults = 0;

    (void)state;
    assert_int_equal(save(4, 1), 0);
    for (unsigned nth = 0; hit; nth++) {
        struct checkpoint c;
        int rv;

        disk_fault_arm(nth, ENOSPC);
        rv = save(5, 1);
        hit = disk_fault_disarm();
        assert_int_equal(rv, hit ? LOCO_EDISK : 0);
        n_faults += hit;
        assert_int_equal(checkpoint_open_newest(&c, dir.path, errmsg), 0);
        assert_int_equal(c.n_damaged, 0);
        /* After the rename the new one is there too. */
        assert_int_equal(c.state.round, nth < 3 ? 4 : 5);
        checkpoint_close(&c);
        if (nth < 3) {
            assert_int_equal(tmpdir_count(&dir), 1);
        }
    }
    assert_true(n_faults >= 4);
    assert_string_equal(rounds_there(), "5");
}

static void another_error_of_the_disk_is_not_called_full(void **state)
{
    (void)state;
    disk_fault_arm(0, EIO);
    assert_int_equal(save(4, 1), LOCO_EIO);
    assert_true(disk_fault_disarm());
}

static void a_safetensors_file_that_is_no_checkpoint_is_refused(void **state)
{
    static const struct st_meta meta[] = {{"loco", "1"},
                                          {"round", "1"},
                                          {"inner_step", "2"},
                                          {"tokens", "x3"},
                                          {"run_id", "7f"}};
    struct st_tensor t = {"phi", ST_F32, 1, {N}, vectors[0], sizeof vectors[0],
                          0};
    const char *path = tmpdir_file(&dir, "a");
    struct checkpoint c;

    (void)state;
    assert_int_equal(safetensors_write(path, &t, 1, NULL, 0, errmsg), 0);
    assert_int_equal(checkpoint_open(&c, path, errmsg), LOCO_EFORMAT);
    assert_non_null(strstr(errmsg, "not a checkpoint"));
    assert_int_equal(safetensors_write(path, &t, 1, meta, 5, errmsg), 0);
    assert_int_equal(checkpoint_open(&c, path, errmsg), LOCO_EFORMAT);
    assert_non_null(strstr(errmsg, "malformed"));
    t.name = "chi";
    assert_int_equal(safetensors_write(path, &t, 1, meta, 3, errmsg), 0);
    assert_int_equal(checkpoint_open(&c, path, errmsg), LOCO_EFORMAT);
}

/* A file with that metadata, and its checksum. */
static void write_with(const char *path, struct st_meta *meta, size_t n)
{
    struct st_tensor t = {"phi", ST_F32, 1, {N}, vectors[0], sizeof vectors[0],
                          0};
    uint64_t h = 0;
    char checksum[17];

    for (size_t i = 0; i < n; i++) {
        h = hash64(meta[i].key, strlen(meta[i].key) + 1, h);
        h = hash64(meta[i].value, strlen(meta[i].value) + 1, h);
    }
    h = hash64(t.name, strlen(t.name) + 1, h);
    h = hash64(t.data, (size_t)t.bytes, h);
    (void)snprintf(checksum, sizeof checksum, "%016" PRIx64, h);
    meta[n] = (struct st_meta){"checksum", checksum};
    assert_int_equal(safetensors_write(path, &t, 1, meta, n + 1, errmsg), 0);
}

static void a_file_of_old_has_moments_of_all_inner_steps(void **state)
{
    struct st_meta meta[7] = {{"loco", "1"},
                              {"round", "1"},
                              {"inner_step", "250"},
                              {"tokens", "3"},
                              {"run_id", "7f"}};
    const char *path = tmpdir_file(&dir, "round-00000001.safetensors");
    struct checkpoint c;

    (void)state;
    write_with(path, meta, 5);
    assert_int_equal(checkpoint_open(&c, path, errmsg), 0);
    assert_int_equal(c.state.moment_steps, 250);
    checkpoint_close(&c);
    meta[5] = (struct st_meta){"moment_steps", "20"};
    write_with(path, meta, 6);
    assert_int_equal(checkpoint_open(&c, path, errmsg), 0);
    assert_int_equal(c.state.moment_steps, 20);
    checkpoint_close(&c);
    meta[5].value = "-1";
    write_with(path, meta, 6);
    assert_int_equal(checkpoint_open(&c, path, errmsg), LOCO_EFORMAT);
    assert_non_null(strstr(errmsg, "moment_steps"));
}

static void metadata_that_is_ours_or_too_much_is_refused(void **state)
{
    struct checkpoint_state s = sample(1);
    struct st_meta extra[CHECKPOINT_META_MAX] = {{"round", "9"}};
    char keys[CHECKPOINT_META_MAX][8];
    struct checkpoint c;

    (void)state;
    assert_int_equal(checkpoint_save(dir.path, &s, extra, 1, 1, errmsg),
                     LOCO_EINVAL);
    extra[0].key = "checksum";
    assert_int_equal(checkpoint_save(dir.path, &s, extra, 1, 1, errmsg),
                     LOCO_EINVAL);
    for (unsigned i = 0; i < CHECKPOINT_META_MAX; i++) {
        (void)snprintf(keys[i], sizeof keys[i], "k%u", i);
        extra[i] = (struct st_meta){keys[i], "v"};
    }
    assert_int_equal(checkpoint_save(dir.path, &s, extra, 57, 1, errmsg),
                     LOCO_EINVAL);
    assert_int_equal(tmpdir_count(&dir), 0);
    assert_int_equal(checkpoint_save(dir.path, &s, extra, 56, 1, errmsg), 0);
    assert_int_equal(checkpoint_open_newest(&c, dir.path, errmsg), 0);
    assert_string_equal(checkpoint_text(&c, "k55"), "v");
    checkpoint_close(&c);
}

static void the_checksum_sees_every_bit_length_and_order(void **state)
{
    uint8_t data[100] = {0};
    uint64_t h = hash64(data, sizeof data, 0);

    (void)state;
    for (unsigned bit = 0; bit < 8 * sizeof data; bit++) {
        data[bit / 8] ^= (uint8_t)(1U << bit % 8);
        assert_true(hash64(data, sizeof data, 0) != h);
        data[bit / 8] ^= (uint8_t)(1U << bit % 8);
    }
    assert_true(hash64(data, 99, 0) != h);
    assert_true(hash64(data, 0, 0) != hash64(data, 1, 0));
    assert_true(hash64(data, sizeof data, 1) != h);
    data[0] = 1;
    h = hash64(data, sizeof data, 0);
    data[0] = 0;
    data[8] = 1;
    assert_true(hash64(data, sizeof data, 0) != h);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_state_is_loaded_as_it_was_saved),
        CASE(vectors_that_are_absent_stay_absent),
        CASE(vectors_of_the_callers_naming_come_back),
        CASE(a_kill_at_any_moment_leaves_a_whole_checkpoint),
        CASE(only_the_newest_are_kept),
        CASE(a_save_of_a_lower_round_ends_the_branch_that_was_left),
        CASE(the_newest_whole_one_is_opened_and_damaged_ones_are_counted),
        CASE(no_flipped_bit_changes_what_is_loaded),
        CASE(every_truncation_is_refused),
        CASE(a_full_disk_leaves_the_previous_checkpoint_in_place),
        CASE(another_error_of_the_disk_is_not_called_full),
        CASE(a_safetensors_file_that_is_no_checkpoint_is_refused),
        CASE(a_file_of_old_has_moments_of_all_inner_steps),
        CASE(metadata_that_is_ours_or_too_much_is_refused),
        CASE(the_checksum_sees_every_bit_length_and_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
