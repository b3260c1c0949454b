/* Each launcher of the plug-in against each fault: no memory at each of its
 * allocations, a context that is broken or breaks at its launch, a GPU that
 * does not answer. The table below has every function of struct plugin_table:
 * the compiler counts them.
 *
 * Each fault has a process of its own, because a GPU that is broken keeps its
 * memory, and with a time limit, because what is to be shown is that nothing
 * waits for ever. Needs the emulator: it injects all of these. */
#include <assert.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/cuda/bench.h"

#define FLOATS      4096
#define ROWS        8
#define TIMEOUT_MS  20
#define PAGES_BYTES 65536 /* whole pages wherever this runs */

static const struct plugin_table *table;
static struct gpu *device;
static float *at[8]; /* (FLOATS) of the GPU, zeros */
static void *pinned; /* FLOATS floats */
static float host[FLOATS];

/* ---- the calls ----------------------------------------------------------- */

static const uint32_t tokens[ROWS] = {0, 1, 2, 3, 1, 1, 0, 2};

static struct matmul make_matmul(void)
{
    return (struct matmul){.m = 16,
                           .n = 16,
                           .k = 16,
                           .a = at[0],
                           .b = at[1],
                           .c = at[2],
                           .lda = 16,
                           .ldb = 16,
                           .ldc = 16,
                           .alpha = 1};
}

static struct embed make_embed(void)
{
    return (struct embed){.tokens = tokens,
                          .table = at[0],
                          .x = at[1],
                          .dx = at[2],
                          .dtable = at[3],
                          .n = ROWS,
                          .c = 16};
}

static struct rmsnorm make_rmsnorm(void)
{
    return (struct rmsnorm){.x = at[0],
                            .w = at[1],
                            .y = at[2],
                            .rrms = at[3],
                            .dy = at[4],
                            .dx = at[5],
                            .dw = at[6],
                            .n = ROWS,
                            .c = 16,
                            .eps = 1e-5F};
}

static struct rope make_rope(void)
{
    return (struct rope){.x = at[0],
                         .cos = at[1],
                         .sin = at[2],
                         .n = ROWS,
                         .t = ROWS,
                         .ld = 16,
                         .heads = 2,
                         .d = 8,
                         .sign = 1};
}

static struct attention make_attention(void)
{
    return (struct attention){.qkv = at[0],
                              .out = at[1],
                              .lse = at[2],
                              .dout = at[3],
                              .dqkv = at[4],
                              .scratch = at[5],
                              .b = 1,
                              .t = ROWS,
                              .heads = 2,
                              .kv_heads = 1,
                              .d = 32};
}

static struct swiglu make_swiglu(void)
{
    return (struct swiglu){
        .gu = at[0], .h = at[1], .dh = at[2], .dgu = at[3], .n = ROWS, .f = 16};
}

static struct xent make_xent(void)
{
    return (struct xent){.logits = at[0],
                         .targets = tokens,
                         .loss = at[1],
                         .n = ROWS,
                         .v = 29,
                         .ld = 32,
                         .grad = true};
}

static struct optimizer_op make_optimizer_op(void)
{
    return (struct optimizer_op){.theta = at[0],
                                 .u = at[1],
                                 .v = at[2],
                                 .grad = at[3],
                                 .n = FLOATS,
                                 .grad_scale = 1,
                                 .eps = 1,
                                 .limit = 1};
}

static struct muon_op make_muon_op(void)
{
    static const struct muon_matrix matrix = {.rows = 8, .columns = 16};

    return (struct muon_op){.theta = at[0],
                            .u = at[1],
                            .grad = at[2],
                            .matrices = &matrix,
                            .n = 1,
                            .lanes = 1,
                            .scratch = (unsigned char *)at[3],
                            .lane_bytes = FLOATS * sizeof(float),
                            .grad_scale = 1,
                            .lr = 1};
}

static struct sumsq make_sumsq(void)
{
    static double partial[1];

    return (struct sumsq){.x = at[0], .partial = partial, .n = FLOATS};
}

static struct wire_op make_wire_op(void)
{
    return (struct wire_op){.wire = CODEC_FP16,
                            .bytes = (uint8_t *)at[0],
                            .x = at[1],
                            .phi = at[2],
                            .theta = at[3],
                            .scale = 1,
                            .n = 1024};
}

static struct outer_op make_outer_op(void)
{
    return (struct outer_op){.lr = 1,
                             .mu = 0.5F,
                             .phi = at[0],
                             .m = at[1],
                             .g = at[2],
                             .phi_out = at[3],
                             .m_out = at[4],
                             .n = FLOATS};
}

static struct shift_op make_shift_op(void)
{
    return (struct shift_op){
        .theta = at[0], .phi_old = at[1], .out = at[2], .n = FLOATS};
}

static struct mix_op make_mix_op(void)
{
    return (struct mix_op){
        .theta = at[0], .phi = at[1], .keep = 0.5F, .n = FLOATS};
}

static struct halves_op make_halves_op(void)
{
    static double norms2[3];

    return (struct halves_op){
        .first = at[0], .second = at[1], .norms2 = norms2, .n = FLOATS};
}

static struct add_op make_add_op(void)
{
    return (struct add_op){.from = at[0], .to = at[1], .n = FLOATS};
}

static struct delayed_op make_delayed_op(void)
{
    return (struct delayed_op){.k = 1,
                               .size = 2,
                               .lr = 1,
                               .g = at[0],
                               .phi = at[1],
                               .phi_out = at[2],
                               .m = at[3],
                               .sum = at[4],
                               .n = FLOATS};
}

static struct pair_op make_pair_op(void)
{
    return (struct pair_op){
        .phi = at[0], .low = at[1], .high = at[2], .out = at[3], .n = FLOATS};
}

#define X(kernel, type, units)                                                 \
    static int call_##kernel(void)                                             \
    {                                                                          \
        const struct type op = make_##type();                                  \
                                                                               \
        return table->kernel(device, &op);                                     \
    }
PLUGIN_KERNELS(X)
#undef X

static int call_take(void)
{
    void *p;

    return table->take(device, &p, 64); /* close() gives it back */
}

static int call_said(void)
{
    (void)table->said(device);
    return table->finish(device);
}

static int call_take_host(void)
{
    void *p;

    return table->take_host(device, &p, 64);
}

/* What gives back says nothing itself: finish() does. */
static int call_give(void)
{
    table->give(device, at[7]);
    at[7] = NULL;
    return table->finish(device);
}

static int call_put(void)
{
    return table->put(device, at[0], host, sizeof host);
}

static int call_get(void)
{
    return table->get(device, host, at[0], sizeof host);
}

static int call_clear(void)
{
    return table->clear(device, at[0], sizeof host);
}

static int call_copy(void)
{
    return table->copy(device, at[0], at[1], sizeof host);
}

static int call_use_theta(void)
{
    static bool second; /* else it is known already, and nothing to do */

    second = !second;
    return table->use_theta(device, at[second], FLOATS,
                            &(struct theta_copy){.memory = at[2]});
}

static int call_finish(void)
{
    return table->finish(device);
}

static int call_pin(void)
{
    void *p = NULL;
    int rv = table->pin(device, &p, 64);

    if (rv == 0) {
        table->unpin(device, p);
    }
    return rv;
}

static int call_unpin(void)
{
    table->unpin(device, pinned);
    pinned = NULL;
    return table->finish(device);
}

static unsigned char *pages; /* of this process, PAGES_BYTES */

static int call_host_register(void)
{
    int rv = table->host_register(device, pages, PAGES_BYTES);

    if (rv == 0) {
        table->host_unregister(device, pages);
    }
    return rv;
}

/* What gives back says nothing itself: finish() does. */
static int call_host_unregister(void)
{
    (void)table->host_register(device, pages, PAGES_BYTES);
    table->host_unregister(device, pages);
    return table->finish(device);
}

static int call_is_registered(void)
{
    return table->is_registered(device, pages, 1) ? LOCO_EBUSY
                                                  : table->finish(device);
}

static int call_put_beside(void)
{
    return table->put_beside(device, at[0], pinned, sizeof host);
}

static int call_get_beside(void)
{
    return table->get_beside(device, pinned, at[0], sizeof host);
}

static int call_copy_from(void)
{
    return table->copy_from(device, at[0], device, at[1], sizeof host);
}

static int call_copies_done(void)
{
    return table->copies_done(device);
}

/* ---- the table ---------------------------------------------------------- */

/* What a call does: launches a kernel; gives its memory to the caller, where
 * the others keep theirs for the next call; takes memory of the host. */
enum { LAUNCHES = 1, GIVES = 2, PINS = 4, REGISTERS = 8 };

static const struct launcher {
    const char *name;
    int (*call)(void);
    int mallocs; /* of the first call: each can fail */
    int what;
} launchers[] = {
    {"said", call_said, 0, 0},
    {"take", call_take, 1, GIVES},
    {"take_host", call_take_host, 1, GIVES | PINS},
    {"give", call_give, 0, 0},
    {"put", call_put, 0, 0},
    {"get", call_get, 0, 0},
    {"clear", call_clear, 0, 0},
    {"copy", call_copy, 0, 0},
    {"copy_from", call_copy_from, 0, 0},
    {"use_theta", call_use_theta, 0, LAUNCHES},
    {"finish", call_finish, 0, 0},
    {"pin", call_pin, 1, GIVES | PINS},
    {"unpin", call_unpin, 0, 0},
    {"host_register", call_host_register, 1, GIVES | REGISTERS},
    {"host_unregister", call_host_unregister, 0, 0},
    {"is_registered", call_is_registered, 0, 0},
    {"put_beside", call_put_beside, 0, 0},
    {"get_beside", call_get_beside, 0, 0},
    {"copies_done", call_copies_done, 0, 0},
    {"matmul", call_matmul, 0, 0}, /* cuBLASLt's */
    {"embed_fwd", call_embed_fwd, 1, LAUNCHES},
    {"embed_bwd", call_embed_bwd, 2, LAUNCHES},
    {"rmsnorm_fwd", call_rmsnorm_fwd, 0, LAUNCHES},
    {"rmsnorm_bwd", call_rmsnorm_bwd, 0, LAUNCHES},
    {"rmsnorm_dw", call_rmsnorm_dw, 1, LAUNCHES},
    {"rope", call_rope, 0, LAUNCHES},
    {"attention_fwd", call_attention_fwd, 0, LAUNCHES},
    {"attention_bwd", call_attention_bwd, 1, LAUNCHES},
    {"swiglu_fwd", call_swiglu_fwd, 0, LAUNCHES},
    {"swiglu_bwd", call_swiglu_bwd, 0, LAUNCHES},
    {"xent", call_xent, 1, LAUNCHES},
    {"adamw", call_adamw, 0, LAUNCHES},
    {"adopt", call_adopt, 0, LAUNCHES},
    {"sgdm", call_sgdm, 0, LAUNCHES},
    {"muon", call_muon, 1, LAUNCHES},
    {"sumsq", call_sumsq, 1, LAUNCHES},
    {"rmsnorm_back", call_rmsnorm_back, 1, LAUNCHES},
    {"encode", call_encode, 1, LAUNCHES},
    {"decode", call_decode, 1, LAUNCHES},
    {"outer", call_outer, 1, LAUNCHES},
    {"shift", call_shift, 1, LAUNCHES},
    {"mix", call_mix, 0, LAUNCHES},
    {"halves", call_halves, 1, LAUNCHES},
    {"add", call_add, 0, LAUNCHES},
    {"pair", call_pair, 0, LAUNCHES},
    {"delayed", call_delayed, 1, LAUNCHES},
};
#define N_LAUNCHERS (sizeof launchers / sizeof launchers[0])

/* A function that is new in the table, and not here, does not compile; open,
 * close and message are those of every case (and of faults_test.c). */
static_assert(sizeof(struct plugin_table) ==
                  offsetof(struct plugin_table, open) +
                      (N_LAUNCHERS + 3) * sizeof(void (*)(void)),
              "each launcher has its row");

/* ---- one fault, in a process of its own ---------------------------------- */

/* What went wrong; 0: nothing. The parent prints it. */
enum trouble {
    FINE,
    NO_GPU,
    NO_MEMORY_LOST, /* an allocation failed and the call did not say ENOMEM */
    NOT_USABLE,     /* it does not work after that */
    OTHER_MALLOCS,  /* than the table says */
    FAULT_NOT_SAID, /* the call, or finish(), did not return its code */
    NO_SENTENCE,    /* of message() */
    NOT_BROKEN,     /* later calls do something */
    CRASHED,        /* or waited for ever */
};

static bool open_device(void)
{
    struct plugin_options opt = {.bf16 = true, .timeout_ms = TIMEOUT_MS};
    char errmsg[PLUGIN_ERRMSG];

    if (open_gpu_with(&gpu, &opt, errmsg) != 0) {
        return false;
    }
    table = device_table(gpu.device);
    device = device_gpu(gpu.device);
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        at[i] = gpu.take(&gpu, sizeof host);
        gpu.clear(&gpu, at[i], sizeof host);
    }
    pages = aligned_alloc(PAGES_BYTES, PAGES_BYTES);
    return pages != NULL && table->pin(device, &pinned, sizeof host) == 0 &&
           gpu.finish(&gpu) == 0;
}

/* Each allocation of the first call fails once; then it works. */
static enum trouble no_memory(const struct launcher *l)
{
    int64_t *fail = (l->what & PINS) != 0        ? &emu->fail_pin
                    : (l->what & REGISTERS) != 0 ? &emu->fail_register
                                                 : &emu->fail_malloc;
    int failed = 0;
    bool hit;

    do { /* what failed before is taken first */
        int rv;

        *fail = failed == 0 ? 1 : 2;
        rv = l->call();
        hit = *fail == 0;
        *fail = 0;
        if (rv != (hit ? LOCO_ENOMEM : 0)) {
            return NO_MEMORY_LOST;
        }
        if (hit && table->message(device)[0] == '\0') {
            return NO_SENTENCE;
        }
        failed += hit;
    } while (hit && (l->what & GIVES) == 0);
    if (failed != l->mallocs) {
        return OTHER_MALLOCS;
    }
    return l->call() == 0 && table->finish(device) == 0 ? FINE : NOT_USABLE;
}

/* From now on all return `code`, and nothing is asked of the GPU. */
static enum trouble stays_broken(int code)
{
    uint64_t launches = emu->launches, mallocs = emu->mallocs;

    if (table->message(device)[0] == '\0') {
        return NO_SENTENCE;
    }
    emu->sticky = emu->hanging = 0; /* it would work again */
    for (size_t i = 0; i < N_LAUNCHERS; i++) {
        if (launchers[i].call() != code) {
            return NOT_BROKEN;
        }
    }
    emu->hanging = code == LOCO_ETIMEOUT;
    backend_close(&gpu);
    return emu->launches == launches && emu->mallocs == mallocs ? FINE
                                                                : NOT_BROKEN;
}

static enum trouble broken_context(const struct launcher *l)
{
    emu->sticky = 700; /* an illegal address, by an earlier kernel */
    return l->call() != LOCO_ECUDA ? FAULT_NOT_SAID : stays_broken(LOCO_ECUDA);
}

static enum trouble breaks_at_launch(const struct launcher *l)
{
    if ((l->what & LAUNCHES) == 0) {
        return FINE;
    }
    emu->fail_launch = 1;
    return l->call() != LOCO_ECUDA ? FAULT_NOT_SAID : stays_broken(LOCO_ECUDA);
}

static enum trouble no_answer(const struct launcher *l)
{
    int rv;

    (void)call_clear(); /* something that does not end */
    emu->hanging = 1;
    rv = l->call();
    if ((rv != 0 && rv != LOCO_ETIMEOUT) ||
        table->finish(device) != LOCO_ETIMEOUT) {
        return FAULT_NOT_SAID;
    }
    return stays_broken(LOCO_ETIMEOUT);
}

static enum trouble in_a_child(enum trouble (*fault)(const struct launcher *),
                               const struct launcher *l)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        (void)alarm(60); /* of processor and others' load; it takes 0.1 s */
        _exit(open_device() ? (int)fault(l) : NO_GPU);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? (enum trouble)WEXITSTATUS(status) : CRASHED;
}

static void each(enum trouble (*fault)(const struct launcher *))
{
    static const char *const what[] = {
        "fine",
        "no GPU",
        "no memory, but not LOCO_ENOMEM",
        "does not work after it had no memory",
        "asks for memory another number of times than the table says",
        "does not return the fault",
        "leaves no sentence",
        "goes on with a broken GPU",
        "crashes or waits for ever",
    };
    int troubles = 0;

    for (size_t i = 0; i < N_LAUNCHERS; i++) {
        enum trouble t = in_a_child(fault, &launchers[i]);

        if (t != FINE) {
            print_error("%s: %s\n", launchers[i].name, what[t]);
            troubles++;
        }
    }
    assert_int_equal(troubles, 0);
}

static void without_memory_each_says_so_and_works_later(void **state)
{
    (void)state;
    each(no_memory);
}

static void on_a_broken_context_each_says_so_and_stops(void **state)
{
    (void)state;
    each(broken_context);
}

static void each_whose_launch_fails_says_so_and_stops(void **state)
{
    (void)state;
    each(breaks_at_launch);
}

static void without_an_answer_none_waits_for_ever(void **state)
{
    (void)state;
    each(no_answer);
}

static int setup(void **state)
{
    (void)state;
    open_gpu(false);
    backend_close(&gpu);
    return emu == NULL ? -1 : 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_memory_each_says_so_and_works_later),
        cmocka_unit_test(on_a_broken_context_each_says_so_and_stops),
        cmocka_unit_test(each_whose_launch_fails_says_so_and_stops),
        cmocka_unit_test(without_an_answer_none_waits_for_ever),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
