/* internal.h - what the files of the laboratory share; see lab.h.
 *
 * lab.c opens, steps, evaluates and closes; lab/wire.c averages through the
 * codecs; lab/clock.c knows what that costs; lab/all.c, lab/pair.c,
 * lab/quorum.c, lab/owners.c and lab/trainer.c run one kind of group each;
 * lab/stage.c runs pipelines, whose stages are such groups one after the other
 * (lab_focus).
 */
#ifndef LOCO_TRAIN_LAB_INTERNAL_H
#define LOCO_TRAIN_LAB_INTERNAL_H

#include "proto/base/errmsg.h"
#include "train/data/loader.h"
#include "train/lab/lab.h"
#include "train/model/llama_stage.h"
#include "train/sync/engine.h"
#include "train/sync/trainers.h"

struct lab_peer {
    bool used, alive;
    uint32_t number;
    struct lab_machine machine;
    struct engine e;
    struct optimizer optimizer;
    bool has_optimizer;
    float *vectors;  /* all of the engine's, one allocation */
    float *residual; /* (n) error feedback; NULL without */
    uint64_t row;    /* sequences taken from its own order of the data */
    uint64_t steps;  /* inner steps ever */
    double clock_s;
    uint64_t sent; /* bytes */

    uint32_t trainer, rows, asked; /* AdLoCo: for whom it works, with batches of
                                      so many rows; and what it asks for */
    uint64_t pending;              /* tokens since the last round */

    uint32_t stage;
    struct llama_part part; /* of the model: all of it without stages */
    uint32_t summed;        /* stages: micro-batches in its gradient */
};

#define LAB_STAGES_ALL UINT32_MAX

struct lab {
    struct lab_options opt;
    uint64_t n; /* parameters: of the model, or of the stage in focus */
    struct trainers trainers; /* AdLoCo: count is 0 without */
    float *anchors, *numbers; /* their state, the same at all peers */
    uint32_t stage; /* whose hosts alone are looked at; LAB_STAGES_ALL */
    struct backend backend;
    const struct backend *kernels; /* of the optimizer: this, or an auditor's */
    struct llama *llama;
    bool has_backend;
    struct loader loaders[LAB_PEERS_MAX];
    bool has_loader[LAB_PEERS_MAX];
    struct lab_peer peers[LAB_PEERS_MAX];
    float *grad;     /* (n) where peers need none of their own */
    float *micro;    /* (n) one micro-batch's gradient (AdLoCo) */
    float *mean;     /* (longest) */
    float *mean_phi; /* (n) */
    float *owned;    /* (n) owners: what all slices hold; else NULL */
    float *packed[LAB_PEERS_MAX];
    uint8_t *wire;  /* room for `longest` encoded values; pairs: four of them,
                     * butterflies: one of each peer */
    float *decoded; /* (n) owners: what one of them reads */
    uint32_t *tokens, *targets;
    uint64_t used_tokens, tokens_per_step, next_eval;
    size_t next_event;
    double loss_sum;
    uint64_t loss_n;
    double tail_sum; /* the last tenth */
    uint64_t tail_n;
    uint64_t turns, stream_turns[METHOD_STREAMS_MAX];
    bool stopped;
    struct lab_work *work;   /* NULL without audits */
    struct lab_watch *watch; /* NULL without a centred mean */
    struct lab_result *result;
    size_t room; /* for points */
    char *errmsg;
};

/* ---- lab.c -------------------------------------------------------------- */

/* From now on lab_alive() and all averaging are of that stage's hosts. */
void lab_focus(struct lab *lab, uint32_t stage);

/* Live peers in order of their numbers; returns how many. */
uint32_t lab_alive(const struct lab *lab, uint32_t out[LAB_PEERS_MAX]);

bool lab_goes_on(const struct lab *lab);

/* Gradient sum of `rows` sequences at the peer's theta into its grad, scaled
 * by nothing; advances its data. */
int lab_gradient(struct lab *lab, struct lab_peer *p, uint32_t rows);

/* Inner optimizer on the gradient, a sum over so many positions. */
int lab_optimize(struct lab *lab, struct lab_peer *p, uint64_t positions);

/* What was read and its loss, for the figures. */
void lab_note_loss(struct lab *lab, double loss, uint64_t positions);

/* The same for `rows` sequences; its clock advances by the time of these. */
int lab_update(struct lab *lab, struct lab_peer *p, uint32_t rows);

/* Both for the usual batch, or for that of its trainer. */
int lab_step(struct lab *lab, struct lab_peer *p);

/* The inner steps of a period, of all that live. */
int lab_period(struct lab *lab);

/* Events that are due: deaths, leaves, speeds; joins only `at_boundary`. */
int lab_events(struct lab *lab, bool at_boundary);

/* A turn of stream s is over: count, measure, tell. `theta` (n) is what would
 * be evaluated. */
int lab_point(struct lab *lab, size_t s, const float *theta);

/* Held-out bits per byte of theta. */
int lab_eval(struct lab *lab, const float *theta, double *bits_per_byte);

/* ---- lab/wire.c ---------------------------------------------------------- */

/* What goes into one average: x (len) of member i with its weight. */
struct lab_part {
    const float *x;
    float *residual; /* error feedback of these elements; NULL: none */
    double weight;
};

/* out = weighted mean of the parts as the wire would give it: partial sums in
 * a ring's wire type, chunk by chunk, or a butterfly for the other types. */
int lab_average(struct lab *lab,
                const struct lab_part *parts,
                uint32_t n_parts,
                uint64_t len,
                float *out);

/* Bytes of len values on the wire. */
uint64_t lab_wire_bytes(const struct lab *lab, uint64_t len);

/* ---- watch.c --------------------------------------------------------------
 */

/* Nothing of these happens without a centred mean. Of those who average, and
 * their parts, those stay that do not rest; returns how many. What a slice of
 * them showed; its sum, encoded. Their average was made: who strays? */
int lab_watch_open(struct lab *lab, uint64_t longest);
void lab_watch_close(struct lab *lab);
uint32_t lab_watch_begin(struct lab *lab,
                         const uint32_t *who,
                         uint32_t n,
                         struct lab_part *parts);
int lab_watch_see(struct lab *lab,
                  const struct codec *codec,
                  uint64_t begin,
                  const struct codec_sum *sum,
                  const uint8_t *encoded);
void lab_watch_end(struct lab *lab);

/* all.c: whether that peer is one of the liars. */
bool lab_lies(const struct lab *lab, uint32_t peer);

/* ---- lab/work.c ---------------------------------------------------------- */

/* Nothing of these happens without audits. A round may begin; everybody has
 * packed its work; the mean of these was made. */
int lab_work_open(struct lab *lab);
void lab_work_close(struct lab *lab);
void lab_work_begin(struct lab *lab);
int lab_work_measure(struct lab *lab);
void lab_work_end(struct lab *lab, const float *mean);

/* ---- lab/clock.c --------------------------------------------------------- */

double lab_latest(const struct lab *lab, const uint32_t *who, uint32_t n);

/* Seconds of an all-reduce among these; counts what each of them sends. */
double
lab_ring(struct lab *lab, const uint32_t *who, uint32_t n, uint64_t bytes);

/* Seconds until a has b's payload and b has a's; counts `total` each, of which
 * `late` bytes could not be sent early. */
double lab_swap(
    struct lab *lab, uint32_t a, uint32_t b, uint64_t late, uint64_t total);

/* One upload of `bytes` to slices at all others and one download. */
double
lab_scatter(struct lab *lab, uint32_t who, uint32_t members, uint64_t bytes);

/* One way from a to b: seconds of the bytes alone, and of the way. 0 where both
 * are one. */
double lab_way(const struct lab *lab, uint32_t a, uint32_t b, uint64_t bytes);
double lab_delay(const struct lab *lab, uint32_t a, uint32_t b);

/* ---- one kind of group each ---------------------------------------------- */

/* Of the stage in focus, after an inner step: what is due of all streams; with
 * gradients, before it; turn t of its pairs. */
struct lab_flight {
    bool any;
    struct stream_turn turn;
    double due_s;
    uint32_t members;
};
int lab_turns_all(struct lab *lab, struct lab_flight *flights);
int lab_gradients_all(struct lab *lab);
int lab_turn_pairs(struct lab *lab, uint64_t t, uint64_t epoch);

/* Tasks: inner steps of the next one of p, which take so many seconds; doing it
 * and packing what it came to. */
uint32_t lab_task_steps(const struct lab *lab,
                        const struct lab_peer *p,
                        double *seconds);
int lab_task(struct lab *lab, struct lab_peer *p, uint32_t steps);

/* The gradient of a trainer's next batch, of *rows sequences. */
int lab_trainer_gradient(struct lab *lab, struct lab_peer *p, uint32_t *rows);

int lab_run_all(struct lab *lab);
int lab_run_pairs(struct lab *lab);
int lab_run_quorum(struct lab *lab);
int lab_run_owners(struct lab *lab);
int lab_run_trainers(struct lab *lab);
int lab_run_stages(struct lab *lab);

#endif
