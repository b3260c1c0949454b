/* status_dht.c - see status_dht.h. */
#include "daemon/status_dht.h"

static const struct {
    const char *field;
    const char *metric, *type, *help;
} rows[] = {
    {"contacts", "loco_dht_contacts", "gauge", "Peers in the routing table"},
    {"records", "loco_dht_records", "gauge", "Records kept for others"},
    {"lookups", "loco_dht_lookups_total", "counter", "Lookups begun"},
    {"lookups_cut", "loco_dht_lookups_cut_total", "counter",
     "Lookups that a bound ended"},
    {"requests", "loco_dht_requests_total", "counter", "Questions asked"},
    {"timeouts", "loco_dht_timeouts_total", "counter",
     "Questions that nobody answered in time"},
    {"answers", "loco_dht_answers_total", "counter", "Questions answered"},
    {"limited", "loco_dht_limited_total", "counter",
     "Questions of peers that ask too fast, not answered"},
    {"malformed", "loco_dht_malformed_total", "counter",
     "DHT messages that were none"},
    {"unknown_answers", "loco_dht_unknown_answers_total", "counter",
     "Answers to no question of ours: late, repeated or forged"},
    {"self_named", "loco_dht_self_named_total", "counter",
     "Answers that name who gave them, refused"},
};

static json_t *count(uint64_t x)
{
    return json_integer((json_int_t)x);
}

json_t *status_dht_object(const struct node_status *s)
{
    const struct dht_counts *c = &s->dht;
    json_t *o = json_object(), *rejected = json_object();

    json_object_set_new(o, "contacts", count(s->dht_contacts));
    json_object_set_new(o, "records", count(s->dht_records));
    json_object_set_new(o, "lookups", count(c->lookups));
    json_object_set_new(o, "lookups_cut", count(c->lookups_cut));
    json_object_set_new(o, "requests", count(c->requests_sent));
    json_object_set_new(o, "timeouts", count(c->timeouts));
    json_object_set_new(o, "answers", count(c->answers_sent));
    json_object_set_new(o, "limited", count(c->limited));
    json_object_set_new(o, "malformed", count(c->malformed));
    json_object_set_new(o, "unknown_answers", count(c->unknown));
    json_object_set_new(o, "self_named", count(c->self_named));
    for (int i = 0; i < DHT_REJECT_COUNT; i++) {
        json_object_set_new(rejected, dht_reject_name((enum dht_reject)i),
                            count(c->rejected[i]));
    }
    json_object_set_new(o, "rejected", rejected);
    return o;
}

void status_dht_metrics(FILE *to, const json_t *dht)
{
    const json_t *rejected = json_object_get(dht, "rejected");

    if (!json_is_object(rejected)) {
        return;
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        (void)fprintf(
            to, "# HELP %s %s\n# TYPE %s %s\n%s %" JSON_INTEGER_FORMAT "\n",
            rows[i].metric, rows[i].help, rows[i].metric, rows[i].type,
            rows[i].metric,
            json_integer_value(json_object_get(dht, rows[i].field)));
    }
    (void)fprintf(to, "# HELP loco_dht_rejected_total Records that were not "
                      "taken, by reason\n"
                      "# TYPE loco_dht_rejected_total counter\n");
    for (int i = 0; i < DHT_REJECT_COUNT; i++) {
        const char *name = dht_reject_name((enum dht_reject)i);

        (void)fprintf(to,
                      "loco_dht_rejected_total{reason=\"%s\"} "
                      "%" JSON_INTEGER_FORMAT "\n",
                      name,
                      json_integer_value(json_object_get(rejected, name)));
    }
}
