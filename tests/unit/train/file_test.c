/* file_test.c - a file is there whole or not at all. */
#include "proto/base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "tests/unit/train/disk_fault.h"
#include "tests/unit/train/tmpdir.h"

static struct tmpdir dir;
static char errmsg[ERRMSG_SIZE];

static int setup(void **state)
{
    (void)state;
    tmpdir_make(&dir);
    errmsg[0] = '\0';
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tmpdir_remove(&dir);
    return 0;
}

/* A few writes around the buffer's size; the file's bytes are 0,1,2,... */
static int write_pattern(const char *path, size_t size)
{
    struct file_out f;
    uint8_t *data = malloc(size);
    size_t at = 0;
    size_t step = 1;
    int rv = file_out_open(&f, path, errmsg);

    for (size_t i = 0; i < size; i++) {
        data[i] = (uint8_t)(i * 7);
    }
    while (rv == 0 && at < size) {
        size_t n = step < size - at ? step : size - at;

        rv = file_out_write(&f, data + at, n, errmsg);
        at += n;
        step = step * 3 + 1;
    }
    free(data);
    if (rv != 0) {
        file_out_abort(&f);
        return rv;
    }
    return file_out_commit(&f, errmsg);
}

static void what_was_written_in_pieces_is_read_back_whole(void **state)
{
    static const size_t sizes[] = {0, 1, FILE_BUF_SIZE - 1, FILE_BUF_SIZE,
                                   3 * FILE_BUF_SIZE + 5};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct file_map m;

        assert_int_equal(write_pattern(tmpdir_file(&dir, "a"), sizes[i]), 0);
        assert_int_equal(file_map_open(&m, tmpdir_file(&dir, "a"), errmsg), 0);
        assert_int_equal(m.size, sizes[i]);
        for (size_t k = 0; k < m.size; k++) {
            assert_true(m.data[k] == (uint8_t)(k * 7));
        }
        file_map_close(&m);
        file_map_close(&m);
        assert_int_equal(tmpdir_count(&dir), 1);
    }
}

static void nothing_is_at_the_path_before_the_commit(void **state)
{
    struct file_out f;

    (void)state;
    tmpdir_put(&dir, "a", "old", 3);
    assert_int_equal(file_out_open(&f, tmpdir_file(&dir, "a"), errmsg), 0);
    assert_int_equal(file_out_write(&f, "new", 3, errmsg), 0);
    size_t len;
    char *text = tmpdir_get(&dir, "a", &len);
    assert_string_equal(text, "old");
    free(text);
    file_out_abort(&f);
    text = tmpdir_get(&dir, "a", &len);
    assert_string_equal(text, "old");
    free(text);
    assert_int_equal(tmpdir_count(&dir), 1);
}

static void a_large_file_goes_to_the_disk_as_it_is_written(void **state)
{
    enum { CHUNK = 5 << 20, CHUNKS = 8 };
    uint8_t *chunk = malloc(CHUNK);
    struct file_out f;
    struct file_map m;

    (void)state;
    assert_non_null(chunk);
    assert_int_equal(file_out_open(&f, tmpdir_file(&dir, "a"), errmsg), 0);
    for (int i = 0; i < CHUNKS; i++) {
        memset(chunk, i + 1, CHUNK);
        assert_int_equal(file_out_write(&f, chunk, CHUNK, errmsg), 0);
        file_out_pace(&f);
        /* In steps of at least FILE_PACE: behind 20 MB, and behind 40. */
        assert_int_equal(f.paced / CHUNK, (i + 1) / 4 * 4);
    }
    assert_int_equal(file_out_commit(&f, errmsg), 0);
    assert_int_equal(file_map_open(&m, tmpdir_file(&dir, "a"), errmsg), 0);
    assert_int_equal(m.size, (size_t)CHUNKS * CHUNK);
    for (int i = 0; i < CHUNKS; i++) {
        memset(chunk, i + 1, CHUNK);
        assert_memory_equal(m.data + (size_t)i * CHUNK, chunk, CHUNK);
    }
    file_map_close(&m);
    free(chunk);
}

static void any_failing_call_leaves_the_old_file_or_the_new_one(void **state)
{
    bool hit = true;
    unsigned n_faults = 0;

    (void)state;
    for (unsigned nth = 0; hit; nth++) {
        size_t len;
        char *text;
        int rv;

        tmpdir_put(&dir, "a", "old", 3);
        disk_fault_arm(nth, ENOSPC);
        rv = file_write_whole(tmpdir_file(&dir, "a"), "fresh", 5, errmsg);
        hit = disk_fault_disarm();
        text = tmpdir_get(&dir, "a", &len);
        if (!hit) {
            assert_int_equal(rv, 0);
            assert_string_equal(text, "fresh");
        } else {
            assert_int_equal(rv, LOCO_EDISK);
            assert_non_null(strstr(errmsg, "No space left on device"));
            /* The last call flushes the directory, after the rename. */
            assert_string_equal(text, nth < 3 ? "old" : "fresh");
            n_faults++;
        }
        free(text);
        assert_int_equal(tmpdir_count(&dir), 1);
    }
    assert_int_equal(n_faults, 4); /* write, fsync, rename, fsync */
}

static void an_interrupted_attempt_does_not_stop_the_next(void **state)
{
    size_t len;
    char *text;

    (void)state;
    tmpdir_put(&dir, "a.tmp", "half of some earlier attempt", 28);
    assert_int_equal(file_write_whole(tmpdir_file(&dir, "a"), "x", 1, errmsg),
                     0);
    text = tmpdir_get(&dir, "a", &len);
    assert_string_equal(text, "x");
    free(text);
    assert_int_equal(tmpdir_count(&dir), 1);
}

static void errors_have_their_code_and_name_the_file(void **state)
{
    struct file_map m;
    char name[FILE_PATH_MAX + 10];
    char joined[FILE_PATH_MAX];
    struct file_out f;

    (void)state;
    assert_int_equal(file_map_open(&m, tmpdir_file(&dir, "none"), errmsg),
                     LOCO_ENOENT);
    assert_non_null(strstr(errmsg, "/none: No such file"));
    assert_int_equal(file_map_open(&m, dir.path, errmsg), LOCO_EINVAL);
    assert_non_null(strstr(errmsg, "not a regular file"));
    assert_int_equal(
        file_write_whole(tmpdir_file(&dir, "no/such"), "x", 1, errmsg),
        LOCO_ENOENT);
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(file_out_open(&f, name, errmsg), LOCO_ERANGE);
    assert_int_equal(file_path_join(joined, dir.path, name, NULL), LOCO_ERANGE);
}

static void a_small_file_is_read_whole_or_not_at_all(void **state)
{
    char path[FILE_PATH_MAX], *text;
    size_t size;

    (void)state;
    assert_int_equal(file_path_join(path, dir.path, "small", errmsg), 0);
    assert_int_equal(file_read_whole(path, 5, &text, &size, errmsg),
                     LOCO_ENOENT);
    assert_null(text);
    assert_int_equal(file_write_whole(path, "12345", 5, errmsg), 0);
    assert_int_equal(file_read_whole(path, 5, &text, &size, errmsg), 0);
    assert_int_equal(size, 5);
    assert_string_equal(text, "12345");
    free(text);
    assert_int_equal(file_read_whole(path, 4, &text, &size, errmsg),
                     LOCO_EINVAL);
    assert_null(text);
    assert_int_equal(file_read_whole(dir.path, 5, &text, &size, errmsg),
                     LOCO_EIO);
}

static void a_file_lies_in_a_folder_beside_others(void **state)
{
    static const char *const rows[][3] = {
        {"run.yaml", "./", "./key"},
        {"/run.yaml", "/", "/key"},
        {"a/b/run.yaml", "a/b/", "a/b/key"},
    };
    char out[FILE_PATH_MAX], longest[FILE_PATH_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        file_folder(out, rows[i][0]);
        assert_string_equal(out, rows[i][1]);
        file_beside(out, rows[i][0], "key");
        assert_string_equal(out, rows[i][2]);
    }
    memset(longest, 'x', sizeof longest - 1);
    longest[0] = longest[sizeof longest - 2] = '/';
    longest[sizeof longest - 1] = '\0';
    file_beside(out, longest, "key");
    assert_string_equal(out, "");
}

static void folders_are_made_down_to_the_last_slash(void **state)
{
    char path[FILE_PATH_MAX];

    (void)state;
    assert_int_equal(file_path_join(path, dir.path, "a/b/file", errmsg), 0);
    assert_int_equal(file_make_folders(path, errmsg), 0);
    assert_int_equal(file_make_folders(path, errmsg), 0);
    assert_int_equal(file_write_whole(path, "x", 1, errmsg), 0);
    assert_int_equal(file_path_join(path, dir.path, "a/b/file/c/d", errmsg), 0);
    assert_true(file_make_folders(path, errmsg) < 0);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(what_was_written_in_pieces_is_read_back_whole),
        CASE(nothing_is_at_the_path_before_the_commit),
        CASE(a_large_file_goes_to_the_disk_as_it_is_written),
        CASE(any_failing_call_leaves_the_old_file_or_the_new_one),
        CASE(an_interrupted_attempt_does_not_stop_the_next),
        CASE(errors_have_their_code_and_name_the_file),
        CASE(a_small_file_is_read_whole_or_not_at_all),
        CASE(a_file_lies_in_a_folder_beside_others),
        CASE(folders_are_made_down_to_the_last_slash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
