/* rounds_json.c - see rounds_json.h. */
#include "daemon/control/rounds_json.h"

#include "daemon/control/json.h"

/* Milliseconds after the begin of the attempt. */
static json_t *since(const struct timeline_attempt *a, uint64_t at_ms)
{
    uint64_t begin_ms = a->at_ms[TIMELINE_TRAIN];

    return at_ms == TIMELINE_NEVER
               ? json_null()
               : json_of_count(at_ms > begin_ms ? at_ms - begin_ms : 0);
}

static json_t *phases_json(const struct timeline_attempt *a, uint64_t now_ms)
{
    json_t *o = json_object();

    for (int i = 0; i < TIMELINE_DONE; i++) {
        enum timeline_phase phase = (enum timeline_phase)i;

        json_object_set_new(
            o, timeline_phase_name(phase),
            a->at_ms[i] == TIMELINE_NEVER
                ? json_null()
                : json_of_count(timeline_phase_ms(a, phase, now_ms)));
    }
    json_object_set_new(o, "scatter", json_of_count(a->scatter_ms));
    json_object_set_new(o, "gather", json_of_count(a->gather_ms));
    return o;
}

static json_t *waited_json(const struct timeline_attempt *a)
{
    uint64_t waited_ms;
    uint32_t who = timeline_waited_for(a, &waited_ms);
    json_t *o;

    if (who >= a->n) {
        return json_null();
    }
    o = json_object();
    json_object_set_new(o, "peer_id", json_of_id(&a->member[who].id));
    json_object_set_new(o, "ms", json_of_count(waited_ms));
    return o;
}

static json_t *culprit_json(const struct timeline_attempt *a)
{
    json_t *o;

    if (a->guilt == TIMELINE_NOBODY) {
        return json_null();
    }
    o = json_object();
    json_object_set_new(o, "peer_id", json_of_id(&a->member[a->culprit].id));
    json_object_set_new(o, "known", json_boolean(a->guilt >= TIMELINE_LEFT));
    json_object_set_new(o, "at_ms", since(a, a->culprit_ms));
    if (a->edge != TIMELINE_NO_EDGE) {
        json_object_set_new(o, "segment", json_of_count(a->edge_done));
        json_object_set_new(
            o, "segments",
            json_of_count(a->edge == TIMELINE_TO ? a->to_send : a->to_receive));
    }
    return o;
}

static json_t *members_json(const struct timeline_attempt *a)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < a->n; i++) {
        const struct timeline_member *m = &a->member[i];
        json_t *o = json_object();

        json_object_set_new(o, "peer_id", json_of_id(&m->id));
        json_object_set_new(o, "self", json_boolean(i == a->self));
        json_object_set_new(o, "in_plan", json_boolean(m->planned));
        json_object_set_new(o, "gateway", json_boolean(m->gateway));
        json_object_set_new(o, "tokens", json_of_count(m->tokens));
        json_object_set_new(o, "ready_ms", since(a, m->ready_ms));
        json_object_set_new(o, "voted_ms", since(a, m->voted_ms));
        json_object_set_new(
            o, "lost", m->lost == NULL ? json_null() : json_string(m->lost));
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *attempt_json(const struct timeline_attempt *a, uint64_t now_ms)
{
    bool failed = a->outcome != TIMELINE_COMMITTED &&
                  a->outcome != TIMELINE_RUNNING &&
                  a->outcome != TIMELINE_ELSEWHERE;
    char reason[TIMELINE_REASON_MAX];
    uint64_t planned = 0;
    json_t *o = json_object();

    for (uint32_t i = 0; i < a->n; i++) {
        planned += a->member[i].planned;
    }
    json_object_set_new(o, "round", json_of_count(a->round));
    json_object_set_new(o, "epoch", json_of_count(a->epoch));
    json_object_set_new(o, "outcome",
                        json_string(timeline_outcome_name(a->outcome)));
    json_object_set_new(o, "began_s", json_of_count(a->wall_s));
    json_object_set_new(o, "took_ms",
                        json_of_count(timeline_took_ms(a, now_ms)));
    json_object_set_new(o, "members_in_view", json_of_count(a->n));
    json_object_set_new(o, "members_in_plan",
                        a->has_plan ? json_of_count(planned) : json_null());
    json_object_set_new(o, "with_this_peer", json_boolean(a->in_plan));
    json_object_set_new(o, "phase_ms", phases_json(a, now_ms));
    json_object_set_new(o, "bytes_sent", json_of_count(a->sent_bytes));
    json_object_set_new(o, "bytes_received", json_of_count(a->received_bytes));
    json_object_set_new(o, "segments_sent", json_of_count(a->sent));
    json_object_set_new(o, "segments_to_send", json_of_count(a->to_send));
    json_object_set_new(o, "segments_received", json_of_count(a->received));
    json_object_set_new(o, "segments_to_receive", json_of_count(a->to_receive));
    json_object_set_new(o, "elements_inherited", json_of_count(a->inherited));
    json_object_set_new(o, "waited_for", waited_json(a));
    timeline_reason(a, reason);
    json_object_set_new(o, "reason",
                        failed ? json_string(reason) : json_null());
    json_object_set_new(o, "trouble",
                        a->why == NULL ? json_null() : json_string(a->why));
    json_object_set_new(o, "culprit", culprit_json(a));
    return o;
}

char *rounds_json(const struct timeline *t,
                  uint64_t round,
                  uint64_t last,
                  uint64_t now_ms)
{
    json_t *o = json_object(), *list = json_array();
    const struct timeline_attempt *a;
    char *text;

    for (uint32_t back = 0; (a = timeline_at(t, back)) != NULL &&
                            (last == 0 || json_array_size(list) < last);
         back++) {
        json_t *one;

        if (round != 0 && a->round != round) {
            continue;
        }
        one = attempt_json(a, now_ms);
        if (round != 0) {
            json_object_set_new(one, "members", members_json(a));
            json_array_insert_new(list, 0, one);
        } else {
            json_array_append_new(list, one);
        }
    }
    json_object_set_new(o, "rounds", list);
    text = json_dumps(o, JSON_COMPACT | JSON_PRESERVE_ORDER);
    json_decref(o);
    return text;
}
