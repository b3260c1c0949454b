/* model_stages_test.c - checkpoints of stages, put together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/model/stages.h"
#include "proto/base/err.h"
#include "proto/base/file.h"

#define STAGES 3
#define HOSTS  4 /* hosts 0 to 2 hold stages 0 to 2, host 3 stage 1 */

static const struct llama_config config = {.dim = 8,
                                           .layers = 4,
                                           .heads = 2,
                                           .kv_heads = 2,
                                           .ffn = 16,
                                           .vocab = 256,
                                           .seq = 8,
                                           .rope_theta = 10000,
                                           .norm_eps = 1e-5F};

static char base[] = "model-stages-XXXXXX";
static char dir[HOSTS][FILE_PATH_MAX];
static const char *dirs[HOSTS];
static char errmsg[ERRMSG_SIZE];

static float *theta_of(uint64_t round)
{
    float *theta = malloc((size_t)llama_numel(&config) * sizeof *theta);

    assert_non_null(theta);
    llama_init_params(&config, theta, round);
    return theta;
}

/* What the host of that directory has of a round. */
static void save(uint32_t host, uint32_t stage, uint64_t round)
{
    float *theta = theta_of(round);
    char path[FILE_PATH_MAX], number[12];
    struct llama_part part;
    const struct st_meta extra = {.key = "stage", .value = number};
    struct checkpoint_state c = {.round = round, .run_id = "run"};

    assert_int_equal(llama_part_of_stage(&config, STAGES, stage, &part, NULL),
                     0);
    (void)snprintf(number, sizeof number, "%u", stage);
    c.n = (uint64_t)part.numel;
    c.phi = theta + part.offset;
    assert_int_equal(file_path_join(path, dir[host], "checkpoints", errmsg), 0);
    assert_int_equal(checkpoint_save(path, &c, &extra, 1, 3, errmsg), 0);
    free(theta);
}

static int setup(void **state)
{
    (void)state;
    if (mkdtemp(base) == NULL) {
        return -1;
    }
    for (uint32_t h = 0; h < HOSTS; h++) {
        char path[FILE_PATH_MAX + 16];

        (void)snprintf(dir[h], sizeof dir[h], "%s/%u", base, h);
        (void)snprintf(path, sizeof path, "%s/checkpoints", dir[h]);
        dirs[h] = dir[h];
        if (mkdir(dir[h], 0700) != 0 || mkdir(path, 0700) != 0) {
            return -1;
        }
    }
    return 0;
}

static int
remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static int teardown(void **state)
{
    (void)state;
    return nftw(base, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void assert_holds(const struct model_stages *s, uint64_t round)
{
    float *theta = theta_of(round);
    int count = llama_tensor_count(&config);

    for (int i = 0; i < count; i++) {
        struct llama_view v;

        llama_tensor(&config, i, &v);
        assert_memory_equal(model_stages_at(s, v.offset), theta + v.offset,
                            (size_t)v.numel * sizeof *theta);
    }
    free(theta);
}

static void expect(size_t n, const char *const *from, uint64_t round)
{
    struct model_stages s;

    assert_int_equal(model_stages_open(&s, &config, STAGES, from, n, errmsg),
                     0);
    assert_int_equal(s.stage[0].checkpoint.state.round, round);
    assert_holds(&s, round);
    model_stages_close(&s);
    model_stages_close(&s);
}

static void the_newest_round_of_all_stages_is_the_model(void **state)
{
    const char *turned[HOSTS];

    (void)state;
    for (uint32_t k = 0; k < STAGES; k++) {
        save(k, k, 5);
        save(k, k, 6);
    }
    expect(3, dirs, 6);
    save(0, 0, 7); /* one stage is ahead */
    save(2, 2, 7);
    expect(3, dirs, 6);
    save(3, 1, 7); /* another host of stage 1 has it already */
    expect(3, dirs, 6);
    expect(4, dirs, 7);
    for (uint32_t h = 0; h < HOSTS; h++) {
        turned[h] = dirs[HOSTS - 1 - h];
    }
    expect(4, turned, 7); /* in any order */
}

static void a_damaged_checkpoint_is_passed_over(void **state)
{
    char path[FILE_PATH_MAX + 64];
    FILE *f;

    (void)state;
    (void)snprintf(path, sizeof path,
                   "%s/checkpoints/round-00000007.safetensors", dir[2]);
    f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -8, SEEK_END), 0);
    assert_int_equal(fwrite("damaged!", 1, 8, f), 8);
    assert_int_equal(fclose(f), 0);
    expect(4, dirs, 6);
}

static void a_missing_stage_is_named(void **state)
{
    struct model_stages s;

    (void)state;
    assert_int_equal(model_stages_open(&s, &config, STAGES, dirs, 1, errmsg),
                     LOCO_ENOENT);
    assert_non_null(strstr(errmsg, "stage 2, 3:"));
    model_stages_close(&s);
    assert_int_equal(
        model_stages_open(&s, &config, STAGES, dirs + 1, 3, errmsg),
        LOCO_ENOENT);
    assert_non_null(strstr(errmsg, "stage 1:"));
    model_stages_close(&s);
}

static void stages_without_a_common_round_say_so(void **state)
{
    struct model_stages s;

    (void)state;
    for (uint64_t round = 8; round < 11; round++) {
        save(0, 0, round); /* three are kept */
    }
    assert_int_equal(model_stages_open(&s, &config, STAGES, dirs, 4, errmsg),
                     LOCO_ENOENT);
    assert_non_null(strstr(errmsg, "no round"));
    model_stages_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_round_of_all_stages_is_the_model),
        cmocka_unit_test(a_damaged_checkpoint_is_passed_over),
        cmocka_unit_test(a_missing_stage_is_named),
        cmocka_unit_test(stages_without_a_common_round_say_so),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
