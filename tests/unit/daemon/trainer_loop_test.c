/* trainer_loop_test.c - a trainer whose steps another process makes: here the
 * test is that process, on a real socket. */
#include "daemon/machine/trainer.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"

#define EVENTS_MAX 256
#define PERIOD     4
#define BATCH      2
#define SEQ        16
/* Five windows of 16 targets: two batches of two, and one of one. */
#define EVAL_TOKENS 80

struct inbox {
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    unsigned n;
    struct local_event events[EVENTS_MAX];
};

/* The loop's side. */
struct loop {
    int fd;
    struct trainer_welcome welcome;
    uint8_t *shared;
    float *theta;
};

static uint8_t text[4000];
static struct shard shard;
static struct inbox inbox = {.mutex = PTHREAD_MUTEX_INITIALIZER,
                             .wake = PTHREAD_COND_INITIALIZER};
static char dir[] = "/tmp/trainer_loop_XXXXXX";
static uint32_t hold_ms;
static bool measures; /* what the loop says of itself */

static void post(void *self, const struct local_event *event)
{
    struct inbox *in = self;

    (void)pthread_mutex_lock(&in->mutex);
    if (in->n < EVENTS_MAX) {
        in->events[in->n++] = *event;
    }
    (void)pthread_cond_signal(&in->wake);
    (void)pthread_mutex_unlock(&in->mutex);
}

/* Taken while nothing may be hashed to its end. */
static pthread_mutex_t hashing = PTHREAD_MUTEX_INITIALIZER;

static void drop_snapshot(void *self, struct snapshot *s)
{
    (void)self;
    (void)pthread_mutex_lock(&hashing);
    (void)pthread_mutex_unlock(&hashing);
    snapshot_free(s);
}

/* The next event of this type; others before it are dropped. */
static struct local_event wait_for(enum local_type type)
{
    struct local_event found = {0};
    bool got = false;

    (void)pthread_mutex_lock(&inbox.mutex);
    while (!got) {
        while (inbox.n == 0) {
            (void)pthread_cond_wait(&inbox.wake, &inbox.mutex);
        }
        got = inbox.events[0].type == type;
        found = inbox.events[0];
        memmove(inbox.events, inbox.events + 1,
                --inbox.n * sizeof inbox.events[0]);
    }
    (void)pthread_mutex_unlock(&inbox.mutex);
    return found;
}

static const struct llama_config model = {.dim = 16,
                                          .layers = 1,
                                          .heads = 2,
                                          .kv_heads = 2,
                                          .ffn = 16,
                                          .vocab = 256,
                                          .seq = SEQ,
                                          .tied = true,
                                          .rope_theta = 10000,
                                          .norm_eps = 1e-5F};

static struct replica_options replica(uint32_t overlap)
{
    return (struct replica_options){
        .model = model,
        .method = {.period = PERIOD,
                   .fragments = 1,
                   .overlap = overlap,
                   .rule = {.lr = 1.0F}},
        .codec = codec_find("fp32"),
        .batch = BATCH,
        .micro_batch = BATCH,
        .seq = SEQ,
        .seed = 3,
        .peer = 9,
        .train = &shard,
        .n_train = 1,
        .val = &shard,
        .eval_tokens = EVAL_TOKENS,
        .threads = 1,
        .reference = true,
        .shared = true,
    };
}

static struct trainer *open_trainer(uint32_t overlap)
{
    struct tensor_list list;
    struct loop_socket_options loop = {.dir = dir,
                                       .list = &list,
                                       .has_text = true,
                                       .hold_ms = hold_ms,
                                       .welcome = {.batch = BATCH,
                                                   .seq = SEQ,
                                                   .vocab = 256,
                                                   .period = PERIOD,
                                                   .tokens_most = BATCH * SEQ,
                                                   .n_run_name = 4,
                                                   .run_name = "test"}};
    struct trainer_options opt = {.replica = replica(overlap),
                                  .self = &inbox,
                                  .post = post,
                                  .take_snapshot = drop_snapshot,
                                  .loop = &loop};
    struct trainer *t = NULL;
    char errmsg[ERRMSG_SIZE];

    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = (uint8_t)('a' + i % 23);
    }
    shard_from_text(&shard, text, sizeof text);
    inbox.n = 0;
    assert_int_equal(tensor_list_of_llama(&list, &model), 0);
    assert_int_equal(trainer_open(&t, &opt, errmsg), 0);
    tensor_list_free(&list);
    return t;
}

/* ---- the loop ----------------------------------------------------------- */

static void send_msg(const struct loop *l, const struct trainer_msg *m)
{
    uint8_t packet[TRAINER_PACKET_MAX];
    int n = trainer_msg_encode(m, packet);

    assert_true(n > 0);
    assert_int_equal(send(l->fd, packet, (size_t)n, MSG_NOSIGNAL), n);
}

static void say(const struct loop *l, enum trainer_msg_type type)
{
    const struct trainer_msg m = {.type = type};

    send_msg(l, &m);
}

static void step(const struct loop *l, uint64_t tokens)
{
    struct trainer_msg m = {.type = TRAINER_MSG_STEP, .step.tokens = tokens};
    double loss = 2.5;

    memcpy(&m.step.loss, &loss, sizeof loss);
    send_msg(l, &m);
}

/* The next message, of which type it must be. */
static struct trainer_msg expect(const struct loop *l,
                                 enum trainer_msg_type type)
{
    uint8_t packet[TRAINER_PACKET_MAX];
    struct trainer_msg m;
    ssize_t n = recv(l->fd, packet, sizeof packet, 0);

    assert_true(n > 0);
    assert_int_equal(
        trainer_msg_decode(packet, (size_t)n, TRAINER_SENDER_DAEMON, &m), 0);
    assert_int_equal(m.type, type);
    return m;
}

static void expect_end(const struct loop *l)
{
    uint8_t packet[TRAINER_PACKET_MAX];
    ssize_t n = recv(l->fd, packet, sizeof packet, 0);

    assert_true(n == 0 || (n < 0 && errno == ECONNRESET));
}

static void dial(struct loop *l)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    (void)snprintf(a.sun_path, sizeof a.sun_path, "%s/%s", dir, TRAINER_SOCKET);
    l->fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    assert_true(l->fd >= 0);
    assert_int_equal(connect(l->fd, (struct sockaddr *)&a, sizeof a), 0);
}

static void hello(const struct loop *l, uint16_t version)
{
    const struct trainer_msg m = {.type = TRAINER_MSG_HELLO,
                                  .hello = {.version = version,
                                            .pid = (uint32_t)getpid(),
                                            .measures = measures,
                                            .n_name = 4,
                                            .name = "test"}};

    send_msg(l, &m);
}

/* WELCOME with its file. */
static void welcome(struct loop *l)
{
    uint8_t packet[TRAINER_PACKET_MAX];
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec iov = {packet, sizeof packet};
    struct msghdr h = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof control};
    struct trainer_msg m;
    ssize_t n = recvmsg(l->fd, &h, 0);
    int file = -1;
    void *at;

    assert_true(n > 0);
    assert_int_equal(
        trainer_msg_decode(packet, (size_t)n, TRAINER_SENDER_DAEMON, &m), 0);
    assert_int_equal(m.type, TRAINER_MSG_WELCOME);
    assert_non_null(CMSG_FIRSTHDR(&h));
    memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&h)), sizeof file);
    l->welcome = m.welcome;
    assert_int_equal(ftruncate(file, 1), -1); /* sealed */
    at = mmap(NULL, m.welcome.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file,
              0);
    assert_true(at != MAP_FAILED);
    (void)close(file);
    l->shared = at;
    l->theta = (float *)(void *)(l->shared + m.welcome.theta_at);
}

static void join(struct loop *l)
{
    dial(l);
    hello(l, TRAINER_MSG_VERSION);
    welcome(l);
}

static void leave(struct loop *l)
{
    (void)close(l->fd);
    (void)munmap(l->shared, l->welcome.bytes);
}

static struct trainer_msg take(const struct loop *l)
{
    struct trainer_msg m = expect(l, TRAINER_MSG_TAKE);

    say(l, TRAINER_MSG_TAKEN);
    return m;
}

static uint64_t go(const struct loop *l)
{
    return expect(l, TRAINER_MSG_GO).go.steps;
}

/* All parameters are `x` more than `base` (n). */
static void assert_more(const struct loop *l, const float *base, float x)
{
    for (uint64_t i = 0; i < l->welcome.n; i++) {
        assert_true(fabsf(l->theta[i] - (base[i] + x)) < 1e-5F);
    }
}

/* "Training": every parameter grows. */
static void add(const struct loop *l, const float *base, float x)
{
    for (uint64_t i = 0; i < l->welcome.n; i++) {
        l->theta[i] = base[i] + x;
    }
}

static float *copy_theta(const struct loop *l)
{
    float *copy = malloc(l->welcome.n * sizeof *copy);

    assert_non_null(copy);
    memcpy(copy, l->theta, l->welcome.n * sizeof *copy);
    return copy;
}

/* ---- the node ------------------------------------------------------------ */

static void load(struct trainer *t)
{
    const struct trainer_command c = {
        .job = {.type = JOB_LOAD, .load.from_seed = true}};

    assert_true(trainer_post(t, &c));
    assert_int_equal(wait_for(LOCAL_LOADED).rc, 0);
}

static void train(struct trainer *t)
{
    const struct trainer_command c = {
        .job.type = JOB_TRAIN,
        .lease = {.n_ranges = 1, .ranges = {{5, PERIOD}}}};

    assert_true(trainer_post(t, &c));
}

/* The commit of `round`: an average of `mean` in every element. */
static void
apply(struct trainer *t, uint64_t n, uint64_t round, float mean, double share)
{
    static float wire[8192];
    const struct trainer_command c = {
        .job = {.type = JOB_APPLY, .apply = {.round = round, .share = share}},
        .wire = (const uint8_t *)wire};

    assert_true(n <= sizeof wire / sizeof wire[0]);
    for (uint64_t i = 0; i < n; i++) {
        wire[i] = mean;
    }
    assert_true(trainer_post(t, &c));
}

/* ---- tests ----------------------------------------------------------------
 */

static void a_round_is_one_give_and_one_take(void **state)
{
    struct trainer *t = open_trainer(0);
    struct local_event e;
    struct loop l;
    float *phi;

    (void)state;
    load(t);
    join(&l);
    assert_int_equal(l.welcome.n, llama_numel(&model));
    assert_int_equal(take(&l).take.round, 0);
    phi = copy_theta(&l);
    train(t);
    assert_int_equal(go(&l), PERIOD);
    for (int i = 0; i < PERIOD; i++) {
        step(&l, BATCH * SEQ);
    }
    (void)expect(&l, TRAINER_MSG_GIVE);
    add(&l, phi, 0.5F);
    say(&l, TRAINER_MSG_GIVEN);
    e = wait_for(LOCAL_TRAINED);
    assert_int_equal(e.rc, 0);
    assert_int_equal(e.trained.tokens, PERIOD * BATCH * SEQ);
    assert_true(e.trained.loss == 2.5F);
    for (uint64_t i = 0; i < l.welcome.n; i++) { /* phi - theta */
        assert_true(fabsf(trainer_contribution(t)[i] + 0.5F) < 1e-5F);
    }
    apply(t, l.welcome.n, 1, -0.25F, 0.5);
    assert_int_equal(wait_for(LOCAL_APPLIED).rc, 0);
    assert_int_equal(take(&l).take.round, 1);
    assert_more(&l, phi, 0.25F);
    train(t);
    assert_int_equal(go(&l), PERIOD);
    trainer_stop(t);
    assert_int_equal(expect(&l, TRAINER_MSG_STOP).stop.code, 0);
    expect_end(&l);
    leave(&l);
    trainer_close(t);
    free(phi);
}

static void the_loop_does_not_wait_for_hashes(void **state)
{
    struct trainer *t = open_trainer(0);
    struct local_event e;
    struct loop l;

    (void)state;
    load(t);
    join(&l);
    (void)take(&l);
    train(t);
    assert_int_equal(go(&l), PERIOD);
    for (int i = 0; i < PERIOD; i++) {
        step(&l, BATCH * SEQ);
    }
    (void)expect(&l, TRAINER_MSG_GIVE);
    say(&l, TRAINER_MSG_GIVEN);
    assert_int_equal(wait_for(LOCAL_TRAINED).rc, 0);
    (void)pthread_mutex_lock(&hashing);
    apply(t, l.welcome.n, 1, 0.25F, 0.5);
    e = wait_for(LOCAL_PLACED);
    assert_true(e.placed.round == 1 && e.placed.inner_step == PERIOD);
    assert_true(e.placed.tokens == PERIOD * BATCH * SEQ);
    assert_int_equal(take(&l).take.round, 1);
    train(t);
    assert_int_equal(go(&l), PERIOD);
    for (int i = 0; i < PERIOD; i++) {
        step(&l, BATCH * SEQ);
    }
    (void)expect(&l, TRAINER_MSG_GIVE);
    say(&l, TRAINER_MSG_GIVEN);
    (void)pthread_mutex_unlock(&hashing);
    e = wait_for(LOCAL_APPLIED);
    assert_true(e.applied.round == 1 && e.applied.inner_step == PERIOD);
    assert_false(hash32_is_zero(&e.applied.params_hash));
    assert_true(e.applied.tokens == PERIOD * BATCH * SEQ);
    assert_int_equal(wait_for(LOCAL_TRAINED).trained.inner_step, 2 * PERIOD);
    leave(&l);
    trainer_close(t);
}

static void a_commit_without_this_peer_keeps_what_the_loop_did(void **state)
{
    struct trainer *t = open_trainer(0);
    struct loop l;
    float *phi;

    (void)state;
    load(t);
    join(&l);
    (void)take(&l);
    phi = copy_theta(&l);
    train(t);
    assert_int_equal(go(&l), PERIOD);
    step(&l, BATCH * SEQ);
    (void)wait_for(LOCAL_PROGRESS);
    apply(t, l.welcome.n, 1, -1.0F, 0.0);
    (void)expect(&l, TRAINER_MSG_GIVE);
    step(&l, BATCH * SEQ); /* it was under way */
    add(&l, phi, 0.5F);
    say(&l, TRAINER_MSG_GIVEN);
    assert_int_equal(wait_for(LOCAL_APPLIED).rc, 0);
    assert_int_equal(take(&l).take.round, 1);
    assert_more(&l, phi, 1.5F);
    assert_int_equal(go(&l), PERIOD - 2);
    trainer_close(t);
    leave(&l);
    free(phi);
}

static void a_loop_that_leaves_takes_only_its_steps_along(void **state)
{
    struct trainer *t = open_trainer(0);
    struct local_event e;
    struct loop l;
    float *phi;

    (void)state;
    load(t);
    train(t); /* nobody is here yet */
    join(&l);
    (void)take(&l);
    phi = copy_theta(&l);
    assert_int_equal(go(&l), PERIOD);
    for (int i = 0; i < PERIOD; i++) {
        step(&l, BATCH * SEQ);
    }
    (void)expect(&l, TRAINER_MSG_GIVE);
    add(&l, phi, NAN); /* it dies while it writes */
    leave(&l);
    join(&l);
    (void)take(&l);
    assert_more(&l, phi, 0.0F);
    assert_int_equal(go(&l), PERIOD);
    for (int i = 0; i < PERIOD; i++) {
        step(&l, 1);
    }
    (void)expect(&l, TRAINER_MSG_GIVE);
    add(&l, phi, 0.5F);
    say(&l, TRAINER_MSG_GIVEN);
    e = wait_for(LOCAL_TRAINED);
    assert_int_equal(e.rc, 0);
    assert_int_equal(e.trained.tokens, PERIOD);
    leave(&l); /* its contribution is ours already */
    apply(t, l.welcome.n, 1, -0.5F, 1.0);
    assert_int_equal(wait_for(LOCAL_APPLIED).rc, 0);
    join(&l);
    assert_int_equal(take(&l).take.round, 1);
    assert_more(&l, phi, 0.5F);
    trainer_close(t);
    leave(&l);
    free(phi);
}

static void a_parameter_that_is_no_number_is_not_contributed(void **state)
{
    struct trainer *t = open_trainer(0);
    struct trainer_command again = {
        .job = {.type = JOB_LOAD, .load = {.anew = true}}};
    struct trainer_msg m;
    struct loop l;
    float *phi;

    (void)state;
    load(t);
    join(&l);
    (void)take(&l);
    phi = copy_theta(&l);
    train(t);
    assert_int_equal(go(&l), PERIOD);
    for (int i = 0; i < PERIOD; i++) {
        step(&l, 1);
    }
    (void)expect(&l, TRAINER_MSG_GIVE);
    add(&l, phi, 1.0F);
    l.theta[7] = NAN;
    say(&l, TRAINER_MSG_GIVEN);
    assert_int_equal(wait_for(LOCAL_TRAINED).rc, LOCO_ENUMERIC);
    again.state = phi; /* what the node does then */
    assert_true(trainer_post(t, &again));
    assert_int_equal(wait_for(LOCAL_LOADED).rc, 0);
    m = take(&l);
    assert_true(m.take.reset);
    assert_more(&l, phi, 0.0F);
    trainer_close(t);
    leave(&l);
    free(phi);
}

static void steps_go_on_beside_a_round(void **state)
{
    struct trainer *t = open_trainer(2);
    struct loop l;
    float *phi;

    (void)state;
    load(t);
    join(&l);
    (void)take(&l);
    phi = copy_theta(&l);
    train(t);
    assert_int_equal(go(&l), PERIOD - 2); /* a round begins so much earlier */
    for (int i = 0; i < PERIOD - 2; i++) {
        step(&l, 1);
    }
    (void)expect(&l, TRAINER_MSG_GIVE);
    add(&l, phi, 0.5F);
    say(&l, TRAINER_MSG_GIVEN);
    assert_int_equal(wait_for(LOCAL_TRAINED).rc, 0);
    assert_int_equal(go(&l), 2); /* beside it */
    apply(t, l.welcome.n, 1, -0.25F, 0.5);
    step(&l, 1);
    step(&l, 1);
    (void)expect(&l, TRAINER_MSG_GIVE);
    say(&l, TRAINER_MSG_GIVEN);
    assert_int_equal(wait_for(LOCAL_APPLIED).rc, 0);
    assert_int_equal(take(&l).take.round, 1);
    trainer_close(t);
    leave(&l);
    free(phi);
}

static void text_is_that_of_the_lease(void **state)
{
    struct replica_options o = replica(0);
    struct trainer *t = open_trainer(0);
    uint32_t want[BATCH * SEQ], targets[BATCH * SEQ];
    struct loader_options lo = {.shards = &shard,
                                .n_shards = 1,
                                .seq = SEQ,
                                .batch = BATCH,
                                .seed = o.seed,
                                .peer = 0};
    struct trainer_msg m;
    struct loader loader;
    char errmsg[ERRMSG_SIZE];
    struct loop l;

    (void)state;
    load(t);
    join(&l);
    (void)take(&l);
    train(t);
    assert_int_equal(go(&l), PERIOD);
    assert_int_equal(loader_open(&loader, &lo, errmsg), 0);
    for (uint64_t k = 0; k < 3; k++) {
        say(&l, TRAINER_MSG_READ);
        m = expect(&l, TRAINER_MSG_TEXT);
        assert_int_equal(m.text.position, 5 + k);
        assert_int_equal(m.text.rows, BATCH);
        assert_false(m.text.own);
        assert_int_equal(loader_batch(&loader, 5 + k, want, targets), 0);
        assert_memory_equal(l.shared + l.welcome.tokens_at, want, sizeof want);
        assert_memory_equal(l.shared + l.welcome.targets_at, targets,
                            sizeof targets);
        step(&l, BATCH * SEQ);
    }
    loader_close(&loader);
    say(&l, TRAINER_MSG_READ);
    (void)expect(&l, TRAINER_MSG_TEXT);
    say(&l, TRAINER_MSG_READ);
    m = expect(&l, TRAINER_MSG_STOP);
    assert_int_equal(m.stop.code, 1);
    expect_end(&l);
    leave(&l);
    trainer_close(t);
}

static void a_loop_that_does_not_keep_to_it_gets_a_sentence(void **state)
{
    struct trainer *t = open_trainer(0);
    struct loop l, second;
    struct trainer_msg m;

    (void)state;
    load(t);
    dial(&l);
    hello(&l, TRAINER_MSG_VERSION + 1);
    m = expect(&l, TRAINER_MSG_REFUSED);
    assert_true(m.refused.n_text > 0);
    expect_end(&l);
    (void)close(l.fd);
    join(&l);
    (void)take(&l);
    dial(&second);
    m = expect(&second, TRAINER_MSG_REFUSED);
    assert_true(m.refused.n_text > 0);
    expect_end(&second);
    (void)close(second.fd);
    train(t);
    assert_int_equal(go(&l), PERIOD); /* the first one goes on */
    step(&l, BATCH * SEQ + 1);
    m = expect(&l, TRAINER_MSG_STOP);
    assert_int_equal(m.stop.code, 1);
    expect_end(&l);
    leave(&l);
    dial(&l);
    assert_int_equal(send(l.fd, "\377rubbish", 8, 0), 8);
    expect_end(&l);
    (void)close(l.fd);
    join(&l); /* and the daemon is there for the next one */
    (void)take(&l);
    trainer_close(t);
    leave(&l);
}

static void evaluate(struct trainer *t)
{
    const struct trainer_command c = {.job.type = JOB_EVAL};

    assert_true(trainer_post(t, &c));
}

/* All batches of an evaluation, a nat for each position that is scored. */
static void score_all(const struct loop *l)
{
    static const uint32_t rows[] = {2, 2, 1};
    struct trainer_msg m = {.type = TRAINER_MSG_SCORED};
    const uint32_t *targets =
        (const uint32_t *)(const void *)(l->shared + l->welcome.targets_at);

    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        double nats = 0;

        assert_int_equal(expect(l, TRAINER_MSG_WINDOWS).windows.rows, rows[k]);
        for (size_t i = 0; i < (size_t)rows[k] * SEQ; i++) {
            nats += targets[i] != TRAINER_NO_TARGET;
        }
        memcpy(&m.scored.nats, &nats, sizeof nats);
        send_msg(l, &m);
    }
}

/* One nat a byte. */
static void assert_evaluated(void)
{
    struct local_event e = wait_for(LOCAL_EVALUATED);

    assert_int_equal(e.rc, 0);
    assert_true(fabs(e.evaluated.bits_per_byte - 1.4426950408889634) < 1e-12);
}

/* What is measured is the commit, also where the loop has made steps since. */
static void a_loop_measures_the_last_commit(void **state)
{
    struct trainer *t = open_trainer(0);
    struct loop l;
    float *phi;

    (void)state;
    load(t);
    evaluate(t); /* nobody is here */
    assert_int_equal(wait_for(LOCAL_EVALUATED).rc, LOCO_ENOENT);
    join(&l);
    (void)take(&l);
    evaluate(t); /* it said that it does not measure */
    assert_int_equal(wait_for(LOCAL_EVALUATED).rc, LOCO_ENOENT);
    leave(&l);
    measures = true;
    join(&l);
    measures = false;
    (void)take(&l);
    phi = copy_theta(&l);
    evaluate(t);
    score_all(&l);
    assert_evaluated();
    train(t);
    assert_int_equal(go(&l), PERIOD);
    step(&l, BATCH * SEQ);
    (void)wait_for(LOCAL_PROGRESS);
    evaluate(t);
    (void)expect(&l, TRAINER_MSG_GIVE);
    add(&l, phi, 0.5F);
    say(&l, TRAINER_MSG_GIVEN);
    (void)take(&l);
    assert_more(&l, phi, 0.0F);
    score_all(&l);
    assert_evaluated();
    (void)take(&l); /* its own parameters come back */
    assert_more(&l, phi, 0.5F);
    assert_int_equal(go(&l), PERIOD - 1);
    trainer_close(t);
    leave(&l);
    free(phi);
}

/* It leaves in the middle of it: its steps are safe, they were given. */
static void a_loop_that_leaves_while_it_measures(void **state)
{
    struct trainer *t = open_trainer(0);
    struct loop l;
    float *phi;

    (void)state;
    measures = true;
    load(t);
    join(&l);
    measures = false;
    (void)take(&l);
    phi = copy_theta(&l);
    train(t);
    assert_int_equal(go(&l), PERIOD);
    step(&l, BATCH * SEQ);
    (void)wait_for(LOCAL_PROGRESS);
    evaluate(t);
    (void)expect(&l, TRAINER_MSG_GIVE);
    add(&l, phi, 0.5F);
    say(&l, TRAINER_MSG_GIVEN);
    (void)take(&l);
    (void)expect(&l, TRAINER_MSG_WINDOWS);
    leave(&l);
    assert_int_equal(wait_for(LOCAL_EVALUATED).rc, LOCO_ENOENT);
    join(&l);
    (void)take(&l);
    assert_more(&l, phi, 0.5F);
    assert_int_equal(go(&l), PERIOD - 1);
    say(&l, TRAINER_MSG_SCORED); /* what nobody asked */
    assert_int_equal(expect(&l, TRAINER_MSG_STOP).stop.code, 1);
    trainer_close(t);
    leave(&l);
    free(phi);
}

static void a_loop_is_told_when_the_run_is_over(void **state)
{
    const struct trainer_command over = {.job.type = JOB_OVER};
    struct trainer *t = open_trainer(0);
    struct loop l;
    float *phi;

    (void)state;
    load(t);
    join(&l);
    (void)take(&l);
    phi = copy_theta(&l);
    train(t);
    assert_int_equal(go(&l), PERIOD);
    step(&l, 1);
    apply(t, l.welcome.n, 1, -1.0F, 0.0);
    assert_true(trainer_post(t, &over));
    (void)expect(&l, TRAINER_MSG_GIVE);
    add(&l, phi, 0.5F);
    say(&l, TRAINER_MSG_GIVEN);
    assert_int_equal(wait_for(LOCAL_APPLIED).rc, 0);
    assert_int_equal(take(&l).take.round, 1); /* the last parameters first */
    assert_more(&l, phi, 1.0F); /* without the step that no commit has */
    assert_int_equal(expect(&l, TRAINER_MSG_STOP).stop.code, 0);
    expect_end(&l);
    leave(&l);
    trainer_close(t);
    free(phi);
}

/* The last commit was without this peer, and it went on before it heard that
 * this was the last one. */
static void at_the_end_a_loop_loses_steps_that_no_commit_has(void **state)
{
    const struct trainer_command over = {.job.type = JOB_OVER};
    struct trainer *t = open_trainer(0);
    struct loop l;
    float *phi;

    (void)state;
    load(t);
    join(&l);
    (void)take(&l);
    phi = copy_theta(&l);
    train(t);
    assert_int_equal(go(&l), PERIOD);
    step(&l, 1);
    (void)wait_for(LOCAL_PROGRESS);
    assert_true(trainer_post(t, &over));
    (void)expect(&l, TRAINER_MSG_GIVE);
    add(&l, phi, 0.5F);
    say(&l, TRAINER_MSG_GIVEN);
    assert_int_equal(take(&l).take.round, 0);
    assert_more(&l, phi, 0);
    assert_int_equal(expect(&l, TRAINER_MSG_STOP).stop.code, 0);
    expect_end(&l);
    leave(&l);
    trainer_close(t);
    free(phi);
}

static void a_pause_holds_the_loop_between_two_steps(void **state)
{
    struct trainer *t = open_trainer(0);
    struct loop l;

    (void)state;
    load(t);
    join(&l);
    (void)take(&l);
    train(t);
    assert_int_equal(go(&l), PERIOD);
    step(&l, 1);
    trainer_pause(t, true);
    (void)expect(&l, TRAINER_MSG_GIVE);
    say(&l, TRAINER_MSG_GIVEN);
    trainer_pause(t, false);
    assert_int_equal(go(&l), PERIOD - 1);
    trainer_close(t);
    leave(&l);
}

static void a_loop_that_hangs_is_let_go(void **state)
{
    struct trainer *t;
    struct loop l;

    (void)state;
    hold_ms = 1;
    t = open_trainer(0);
    hold_ms = 0;
    load(t);
    join(&l);
    (void)expect(&l, TRAINER_MSG_TAKE); /* and never TAKEN */
    apply(t, l.welcome.n, 1, -1.0F, 0.0);
    assert_int_equal(expect(&l, TRAINER_MSG_STOP).stop.code, 1);
    expect_end(&l);
    leave(&l);
    assert_int_equal(wait_for(LOCAL_APPLIED).rc, 0);
    trainer_close(t);
}

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) == NULL;
}

static int remove_dir(void **state)
{
    (void)state;
    return rmdir(dir); /* the sockets are gone */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_round_is_one_give_and_one_take),
        cmocka_unit_test(the_loop_does_not_wait_for_hashes),
        cmocka_unit_test(a_commit_without_this_peer_keeps_what_the_loop_did),
        cmocka_unit_test(a_loop_that_leaves_takes_only_its_steps_along),
        cmocka_unit_test(a_parameter_that_is_no_number_is_not_contributed),
        cmocka_unit_test(steps_go_on_beside_a_round),
        cmocka_unit_test(text_is_that_of_the_lease),
        cmocka_unit_test(a_loop_that_does_not_keep_to_it_gets_a_sentence),
        cmocka_unit_test(a_loop_measures_the_last_commit),
        cmocka_unit_test(a_loop_that_leaves_while_it_measures),
        cmocka_unit_test(a_loop_is_told_when_the_run_is_over),
        cmocka_unit_test(at_the_end_a_loop_loses_steps_that_no_commit_has),
        cmocka_unit_test(a_pause_holds_the_loop_between_two_steps),
        cmocka_unit_test(a_loop_that_hangs_is_let_go),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
