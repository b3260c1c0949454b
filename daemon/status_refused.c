/* status_refused.c - see status_refused.h. */
#include "daemon/status_refused.h"

static void add(json_t *o, const char *what, uint64_t n)
{
    json_object_set_new(o, what, json_integer((json_int_t)n));
}

json_t *status_refused_object(const struct node_status *s,
                              const struct status_refused *r)
{
    json_t *o = json_object();

    add(o, "connections", r->connections);
    add(o, "accept_pauses", r->pauses);
    add(o, "handshakes", r->handshakes);
    add(o, "frames", r->frames);
    add(o, "segments", r->segments);
    add(o, "queues", r->queues);
    add(o, "messages", s->malformed);
    add(o, "stale", s->stale);
    add(o, "forwards", s->forwards_refused);
    add(o, "relays", s->relays_refused);
    add(o, "probes", s->probes_refused);
    return o;
}

void status_refused_metrics(FILE *to, const json_t *refused)
{
    const char *what;
    const json_t *value;

    if (!json_is_object(refused)) {
        return;
    }
    (void)fprintf(to, "# HELP loco_refused_total Connections, frames and "
                      "messages turned away, by what they were\n"
                      "# TYPE loco_refused_total counter\n");
    json_object_foreach((json_t *)(uintptr_t)refused, what, value)
    {
        (void)fprintf(to,
                      "loco_refused_total{what=\"%s\"} "
                      "%" JSON_INTEGER_FORMAT "\n",
                      what, json_integer_value(value));
    }
}
