/* spare.c - see spare.h. */
#include "p2p/uv/spare.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "p2p/uv/shell.h"

#define LOOK_MS 1000
/* Memory of the queues of all links that are a crowd's. */
#define QUEUES_LONG (1U << 20)

void spare_owe(struct shell *s)
{
    struct spare_state *t = &s->spare;

    t->last_ms = shell_now_ms();
    t->since_ms = t->owed ? t->since_ms : t->last_ms;
    t->owed = true;
}

static void give_back(void)
{
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
}

void spare_tick(struct shell *s)
{
    struct spare_state *t = &s->spare;
    uint64_t now_ms = shell_now_ms();

    if (now_ms - t->looked_ms < LOOK_MS) {
        return;
    }
    t->looked_ms = now_ms;
    if (link_all_queued(s) > QUEUES_LONG || bulk_spare(s, now_ms)) {
        spare_owe(s);
    }
    if (t->owed && (now_ms - t->last_ms >= s->opt.spare_ms ||
                    now_ms - t->since_ms >= SPARE_LATE_MS)) {
        t->owed = false;
        s->stats.trims++;
        give_back();
    }
}
