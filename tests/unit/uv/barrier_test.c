/* barrier_test.c - a disk that takes its time: what rests on the record waits
 * for it, in order, and nothing else does. The disk is a semaphore. */
#include "tests/unit/uv/toy.h"

/* Two nodes and a link from a to b, whose disk waits for `disk`. */
static uint32_t slow_disk(struct node *a,
                          struct node *b,
                          uv_loop_t *loop,
                          uv_sem_t *disk,
                          uint32_t held_bytes_max)
{
    struct shell_options opt;

    uv_loop_init(loop);
    opt = node_init(a, 1);
    opt.held_bytes_max = held_bytes_max;
    node_open(a, loop, &opt);
    node_start(b, loop, 2);
    assert_int_equal(uv_sem_init(disk, 0), 0);
    a->disk = disk;
    return connect_nodes(a, b, loop);
}

static void
slow_disk_end(struct node *a, struct node *b, uv_loop_t *loop, uv_sem_t *disk)
{
    node_close(a, loop);
    node_close(b, loop);
    loop_end(loop);
    uv_sem_destroy(disk);
}

static uint32_t heard(const struct node *n, uint32_t i)
{
    return node_event(n, EVENT_RECV, i)->first;
}

static void a_slow_disk_holds_up_promises_and_no_sign_of_life(void **state)
{
    uv_loop_t loop;
    uv_sem_t disk;
    struct node a, b;
    uint32_t link = slow_disk(&a, &b, &loop, &disk, 1000000);

    (void)state;
    node_act(&a, ACTION_SAVE)->save.len = 5;
    send_message(&a, link, 1, 1, 4);
    RUN_UNTIL(&loop, a.toy.at == a.toy.n_queue);
    send_message(&a, link, 1, 2, 4); /* another step */
    node_act(&a, ACTION_SAVE)->save.len = 5;
    send_message(&a, link, 1, 3, 4);
    node_act(&a, ACTION_SAVE)->save.len = 5; /* in the place of the second */
    send_message(&a, link, 1, 4, 4);
    send_message(&a, link, TOY_UNBOUND, 9, 4);
    RUN_UNTIL(&loop, b.toy.counts[EVENT_RECV] == 1);
    assert_int_equal(heard(&b, 0), 9); /* the sign of life */
    run_quiet(&loop);
    assert_int_equal(b.toy.counts[EVENT_RECV], 1);
    send_message(&b, node_event(&b, EVENT_LINK_UP, 0)->event.link_up.link, 1, 7,
                 4);
    RUN_UNTIL(&loop, a.toy.counts[EVENT_RECV] == 1); /* it goes on */
    uv_sem_post(&disk);
    RUN_UNTIL(&loop, b.toy.counts[EVENT_RECV] == 3);
    run_quiet(&loop);
    assert_int_equal(b.toy.counts[EVENT_RECV], 3);
    uv_sem_post(&disk);
    RUN_UNTIL(&loop, b.toy.counts[EVENT_RECV] == 5);
    for (uint32_t i = 1; i < 5; i++) {
        assert_int_equal(heard(&b, i), i); /* in order */
    }
    assert_int_equal(a.n_saved, 2);
    slow_disk_end(&a, &b, &loop, &disk);
}

static void a_held_goodbye_comes_before_its_hang_up(void **state)
{
    uv_loop_t loop;
    uv_sem_t disk;
    struct node a, b;
    uint32_t link = slow_disk(&a, &b, &loop, &disk, 1000000);

    (void)state;
    node_act(&a, ACTION_SAVE)->save.len = 5;
    send_message(&a, link, 1, 1, 4);
    node_act(&a, ACTION_HANG_UP)->hang_up.link = link;
    RUN_UNTIL(&loop, a.toy.at == a.toy.n_queue);
    run_quiet(&loop);
    assert_int_equal(a.toy.counts[EVENT_LINK_DOWN], 0);
    a.save_rc = LOCO_EDISK; /* the hang-up comes all the same */
    uv_sem_post(&disk);
    RUN_UNTIL(&loop, b.toy.counts[EVENT_LINK_DOWN] == 1);
    assert_int_equal(b.toy.counts[EVENT_RECV], 0);
    assert_int_equal(a.toy.counts[EVENT_SAVE_FAILED], 1);
    a.save_rc = 0;
    link = connect_nodes(&a, &b, &loop);
    node_act(&a, ACTION_SAVE)->save.len = 5;
    send_message(&a, link, 1, 1, 4);
    node_act(&a, ACTION_HANG_UP)->hang_up.link = link;
    uv_sem_post(&disk);
    RUN_UNTIL(&loop, b.toy.counts[EVENT_LINK_DOWN] == 2);
    assert_int_equal(b.toy.counts[EVENT_RECV], 1);
    slow_disk_end(&a, &b, &loop, &disk);
}

static void a_shell_that_closes_waits_for_its_disk(void **state)
{
    uv_loop_t loop;
    uv_sem_t disk;
    struct node a, b;
    uint32_t link = slow_disk(&a, &b, &loop, &disk, 1000000);
    uint32_t n_steps;

    (void)state;
    node_act(&a, ACTION_SAVE)->save.len = 5;
    send_message(&a, link, 1, 1, 4);
    RUN_UNTIL(&loop, a.toy.at == a.toy.n_queue);
    a.closing = true;
    shell_close(a.shell, node_on_closed, &a);
    n_steps = a.toy.n_log + a.toy.n_ticks;
    send_message(&b, node_event(&b, EVENT_LINK_UP, 0)->event.link_up.link, 1, 7,
                 4);
    run_quiet(&loop);
    assert_false(a.closed);
    assert_int_equal(b.toy.counts[EVENT_LINK_DOWN], 0);
    uv_sem_post(&disk);
    RUN_UNTIL(&loop, b.toy.counts[EVENT_LINK_DOWN] == 1);
    assert_int_equal(b.toy.counts[EVENT_RECV], 1);
    assert_int_equal(a.n_saved, 1);
    assert_int_equal(a.toy.n_log + a.toy.n_ticks, n_steps); /* no more steps */
    slow_disk_end(&a, &b, &loop, &disk);
}

static void what_is_held_is_bounded(void **state)
{
    uv_loop_t loop;
    uv_sem_t disk;
    struct node a, b, c;
    uint32_t link = slow_disk(&a, &b, &loop, &disk, 4096), other;

    (void)state;
    node_start(&c, &loop, 3);
    other = connect_nodes(&a, &c, &loop);
    node_act(&a, ACTION_SAVE)->save.len = 5;
    send_message(&a, other, 1, 7, 4);
    for (uint32_t i = 0; i < 8; i++) {
        send_message(&a, link, 2, i, 1000);
    }
    RUN_UNTIL(&loop, a.toy.counts[EVENT_LINK_DOWN] == 1);
    assert_int_equal(node_event(&a, EVENT_LINK_DOWN, 0)->event.link_down.rc,
                     LOCO_EBUSY);
    assert_int_equal(node_event(&a, EVENT_LINK_DOWN, 0)->event.link_down.link,
                     link);
    assert_int_equal(node_stats(&a).links_full, 1);
    send_message(&a, other, 2, 8, 3000); /* in the room of what is gone */
    RUN_UNTIL(&loop, a.toy.at == a.toy.n_queue);
    uv_sem_post(&disk);
    RUN_UNTIL(&loop, c.toy.counts[EVENT_RECV] == 2); /* others are spared */
    link = connect_nodes(&a, &b, &loop); /* and there is room again */
    node_act(&a, ACTION_SAVE)->save.len = 5;
    send_message(&a, link, 2, 9, 1000);
    uv_sem_post(&disk);
    RUN_UNTIL(&loop, b.toy.counts[EVENT_RECV] == 1);
    assert_int_equal(heard(&b, 0), 9);
    node_close(&c, &loop);
    slow_disk_end(&a, &b, &loop, &disk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_disk_holds_up_promises_and_no_sign_of_life),
        cmocka_unit_test(a_held_goodbye_comes_before_its_hang_up),
        cmocka_unit_test(a_shell_that_closes_waits_for_its_disk),
        cmocka_unit_test(what_is_held_is_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
