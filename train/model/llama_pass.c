/* llama_pass.c - one layer, forward:
 *
 *   x1 = norm(x) ; qkv = x1 Wqkv' ; rope ; a = attention ; y = a Wo' ; x += y
 *   x2 = norm(x) ; gu = x2 Wgu'   ; h = swiglu(gu) ; y = h Wd' ; x += y
 *
 * The additions happen inside the next norm, which reads both anyway. The
 * backward pass goes the same way up; dx is the gradient of the residual
 * stream, to which every branch adds.
 */
#include "train/model/llama_pass.h"

void pass_project(const struct backend *be,
                  float *y,
                  const float *x,
                  const float *w,
                  int64_t n,
                  int64_t in,
                  int64_t out)
{
    be->matmul(be, &(struct matmul){.m = n,
                                    .n = out,
                                    .k = in,
                                    .a = x,
                                    .lda = in,
                                    .b = w,
                                    .ldb = in,
                                    .tb = true,
                                    .c = y,
                                    .ldc = out,
                                    .alpha = 1});
}

/* One matrix in the backward pass. The head's dy may have columns behind `out`
 * that are 0; `sum` with those that dx is summed over. */
struct back {
    const float *dy; /* (N, ld) */
    const float *x;  /* (N, in) the forward input */
    const float *w;  /* (sum, in) */
    float *dx;       /* (N, in) = */
    float *dw;       /* (out, in) += */
    int64_t n, in, out, sum, ld;
    bool fresh; /* dw is written, not added to */
};

static void project_back(const struct llama *m, const struct back *p)
{
    m->be->matmul(m->be, &(struct matmul){.m = p->n,
                                          .n = p->in,
                                          .k = p->sum,
                                          .a = p->dy,
                                          .lda = p->ld,
                                          .b = p->w,
                                          .ldb = p->in,
                                          .c = p->dx,
                                          .ldc = p->in,
                                          .alpha = 1});
    m->be->matmul(m->be, &(struct matmul){.m = p->out,
                                          .n = p->in,
                                          .k = p->n,
                                          .a = p->dy,
                                          .lda = p->ld,
                                          .ta = true,
                                          .b = p->x,
                                          .ldb = p->in,
                                          .c = p->dw,
                                          .ldc = p->in,
                                          .alpha = 1,
                                          .beta = p->fresh ? 0 : 1,
                                          .to_weight = true});
}

static struct rope rope_of(const struct llama *m, float *x, float sign)
{
    return (struct rope){.x = x,
                         .cos = m->cos,
                         .sin = m->sin,
                         .n = m->n,
                         .t = m->t,
                         .ld = m->qkv_dim,
                         .heads = m->c.heads + m->c.kv_heads,
                         .d = m->dim / m->c.heads,
                         .sign = sign};
}

static struct attention attention_of(const struct llama *m,
                                     const struct layer *l)
{
    return (struct attention){.qkv = l->qkv,
                              .out = l->att,
                              .lse = l->lse,
                              .dout = m->datt,
                              .dqkv = m->dqkv,
                              .scratch = m->scratch,
                              .b = m->b,
                              .t = m->t,
                              .heads = m->c.heads,
                              .kv_heads = m->c.kv_heads,
                              .d = m->dim / m->c.heads};
}

/* Of a tensor in the part's own vector; layers count from its first. */
static int64_t
offset_of(const struct llama *m, enum llama_param id, int64_t layer)
{
    return llama_offset(&m->c, id, layer + m->part.first) - m->part.offset;
}

static const float *at(const struct llama *m,
                       const float *theta,
                       enum llama_param id,
                       int64_t layer)
{
    return theta + offset_of(m, id, layer);
}

/* x += add, then y = norm(x) */
static void norm(const struct llama *m,
                 float *x,
                 const float *add,
                 const float *w,
                 float *y,
                 float *rrms)
{
    m->be->rmsnorm_fwd(m->be, &(struct rmsnorm){.x = x,
                                                .add = add,
                                                .w = w,
                                                .y = y,
                                                .rrms = rrms,
                                                .n = m->n,
                                                .c = m->dim,
                                                .eps = m->c.norm_eps});
}

static void swiglu(const struct llama *m, const struct layer *l)
{
    m->be->swiglu_fwd(
        m->be,
        &(struct swiglu){.gu = l->gu, .h = l->h, .n = m->n, .f = m->ffn});
}

/* All of layer i but its last product. The stream before it is x + add: a
 * stream buffer first holds only its branch's output, and the norm that reads
 * it adds the stream before. */
static void layer_inside(const struct llama *m,
                         const float *theta,
                         int64_t i,
                         float *x,
                         const float *add)
{
    const struct layer *l = &m->layers[i];
    const struct backend *be = m->be;
    struct rope rope = rope_of(m, l->qkv, 1);
    struct attention attention = attention_of(m, l);

    norm(m, x, add, at(m, theta, LLAMA_ATTN_NORM, i), l->x1, l->rrms1);
    pass_project(be, l->qkv, l->x1, at(m, theta, LLAMA_Q, i), m->n, m->dim,
                 m->qkv_dim);
    be->rope(be, &rope);
    be->attention_fwd(be, &attention);
    pass_project(be, l->mid, l->att, at(m, theta, LLAMA_O, i), m->n, m->dim,
                 m->dim);
    norm(m, l->mid, x, at(m, theta, LLAMA_FFN_NORM, i), l->x2, l->rrms2);
    pass_project(be, l->gu, l->x2, at(m, theta, LLAMA_GATE, i), m->n, m->dim,
                 2 * m->ffn);
    swiglu(m, l);
}

static void layer_forward(const struct llama *m,
                          const float *theta,
                          int64_t i,
                          float *x,
                          const float *add)
{
    const struct layer *l = &m->layers[i];

    layer_inside(m, theta, i, x, add);
    pass_project(m->be, l->out, l->h, at(m, theta, LLAMA_DOWN, i), m->n, m->ffn,
                 m->dim);
}

/* The residual stream that layer i reads, complete after the forward pass. */
static float *stream_before(const struct llama *m, int64_t i)
{
    return i == 0 ? m->embed : m->layers[i - 1].out;
}

/* Make again what was not kept of layer i: the same calls, the same bits. */
static void layer_again(const struct llama *m, const float *theta, int64_t i)
{
    const struct layer *l = &m->layers[i];

    if (m->recompute == LLAMA_RECOMPUTE_LAYERS) {
        layer_inside(m, theta, i, stream_before(m, i), NULL);
    } else if (m->recompute == LLAMA_RECOMPUTE_BRANCHES) {
        norm(m, stream_before(m, i), NULL, at(m, theta, LLAMA_ATTN_NORM, i),
             l->x1, l->rrms1);
        norm(m, l->mid, NULL, at(m, theta, LLAMA_FFN_NORM, i), l->x2, l->rrms2);
        swiglu(m, l);
    }
}

int64_t pass_copy_zeros(const struct llama *m)
{
    return m->part.scores ? (m->head_out - m->vocab) * m->dim : 0;
}

void pass_use_theta(const struct llama *m, const float *theta)
{
    struct theta_copy copy = {.memory = m->copy};

    if (m->part.scores) {
        copy.at = offset_of(m, LLAMA_HEAD, 0) + m->vocab * m->dim;
        copy.zeros = pass_copy_zeros(m);
    }
    m->be->use_theta(m->be, theta, m->part.numel, &copy);
}

void pass_select(struct llama *m, uint32_t slot)
{
    const struct llama_slot *s = &m->slots[slot];

    m->layers = s->layers;
    m->embed = s->embed;
    m->b = s->b;
    m->t = s->t;
    m->n = s->n;
}

static void shape_slot(struct llama *m, int64_t b, int64_t t)
{
    m->b = b;
    m->t = t;
    m->n = b * t;
}

/* The stream after the last layer, where no norm follows that adds the one
 * before it: the same sum, so that the next part goes on with the bits of an
 * unsplit model. On a device it is the sum of the norm that would follow, whose
 * own output, in memory of the backward pass, nobody reads. */
static void close_stream(const struct llama *m, const float *theta)
{
    const struct layer *l = &m->layers[m->part.layers - 1];

    if (m->be->device != NULL) {
        norm(m, l->out, l->mid, at(m, theta, LLAMA_ATTN_NORM, 0), m->dnorm,
             m->rrms);
        return;
    }
    for (int64_t i = 0; i < m->n * m->dim; i++) {
        l->out[i] = l->out[i] + l->mid[i];
    }
}

void pass_layers(struct llama *m,
                 const float *theta,
                 const uint32_t *tokens,
                 int64_t b,
                 int64_t t)
{
    int64_t last = (int64_t)m->part.layers - 1;
    float *x = m->embed;
    const float *add = NULL;

    shape_slot(m, b, t);
    if (m->part.embeds) {
        m->be->embed_fwd(m->be, &(struct embed){.tokens = tokens,
                                                .table = theta,
                                                .x = x,
                                                .n = m->n,
                                                .c = m->dim});
    }
    for (int64_t i = 0; i < last; i++) {
        layer_forward(m, theta, i, x, add);
        x = m->layers[i].out;
        add = m->layers[i].mid;
    }
    layer_forward(m, theta, last, x, add);
    if (!m->part.scores) {
        close_stream(m, theta);
        return;
    }
    norm(m, m->layers[last].out, m->layers[last].mid,
         at(m, theta, LLAMA_NORM, 0), m->final, m->rrms);
}

void pass_dx_rrms(const struct llama *m, const float *theta)
{
    norm(m, m->dx, NULL, at(m, theta, LLAMA_ATTN_NORM, 0), m->dnorm, m->rrms);
}

void pass_forward(struct llama *m,
                  const float *theta,
                  const struct llama_batch *batch)
{
    pass_select(m, 0);
    pass_layers(m, theta, batch->tokens, batch->b, batch->t);
}

void pass_logits(const struct llama *m,
                 const float *theta,
                 int64_t from,
                 int64_t rows,
                 float *logits)
{
    m->be->matmul(m->be,
                  &(struct matmul){.m = rows,
                                   .n = m->head_out,
                                   .k = m->dim,
                                   .a = act_at(m->be, m->final, from * m->dim),
                                   .lda = m->dim,
                                   .b = at(m, theta, LLAMA_HEAD, 0),
                                   .ldb = m->dim,
                                   .tb = true,
                                   .c = logits,
                                   .ldc = m->logits_ld,
                                   .alpha = 1});
}

/* Logits and loss of `rows` rows from `from`; with grad also their backward
 * pass into dnorm and the head. */
static void head_rows(struct llama *m,
                      const float *theta,
                      const uint32_t *targets,
                      float *grad,
                      int64_t from,
                      int64_t rows)
{
    const struct backend *be = m->be;
    const float *x = act_at(be, m->final, from * m->dim);
    int64_t head = offset_of(m, LLAMA_HEAD, 0);

    pass_logits(m, theta, from, rows, m->logits);
    be->xent(be, &(struct xent){.logits = m->logits,
                                .targets = targets + from,
                                .loss = m->loss + from,
                                .n = rows,
                                .v = m->vocab,
                                .ld = m->logits_ld,
                                .grad = grad != NULL});
    if (grad != NULL) {
        project_back(m,
                     &(struct back){.dy = m->logits,
                                    .x = x,
                                    .w = theta + head,
                                    .dx = act_at(be, m->dnorm, from * m->dim),
                                    .dw = grad + head,
                                    .n = rows,
                                    .in = m->dim,
                                    .out = m->vocab,
                                    .sum = m->head_out,
                                    .ld = m->logits_ld,
                                    .fresh = m->fresh && from == 0});
    }
}

/* dx += gradient of norm(x) with dy = dnorm; the weight's goes to grad */
static void norm_back(
    const struct llama *m, float *x, float *rrms, const float *w, float *dw)
{
    struct rmsnorm op = {.x = x,
                         .w = w,
                         .rrms = rrms,
                         .dy = m->dnorm,
                         .dx = m->dx,
                         .dw = dw,
                         .n = m->n,
                         .c = m->dim,
                         .eps = m->c.norm_eps};

    m->be->rmsnorm_back(m->be, &op);
}

/* Backward through a matrix of layer i: dx = dy W, dW += dy' x. */
static void matrix_back(const struct llama *m,
                        const float *theta,
                        float *grad,
                        enum llama_param id,
                        int64_t i,
                        struct back p)
{
    int64_t at = offset_of(m, id, i);

    p.w = theta + at;
    p.dw = grad + at;
    p.n = m->n;
    p.sum = p.ld = p.out;
    p.fresh = m->fresh;
    project_back(m, &p);
}

static void
ffn_back(const struct llama *m, const float *theta, float *grad, int64_t i)
{
    const struct layer *l = &m->layers[i];
    int64_t w = offset_of(m, LLAMA_FFN_NORM, i);
    struct back down = {
        .dy = m->dx, .x = l->h, .dx = m->dh, .in = m->ffn, .out = m->dim};
    struct back gate = {.dy = m->dgu,
                        .x = l->x2,
                        .dx = m->dnorm,
                        .in = m->dim,
                        .out = 2 * m->ffn};

    matrix_back(m, theta, grad, LLAMA_DOWN, i, down);
    m->be->swiglu_bwd(
        m->be,
        &(struct swiglu){
            .gu = l->gu, .dh = m->dh, .dgu = m->dgu, .n = m->n, .f = m->ffn});
    matrix_back(m, theta, grad, LLAMA_GATE, i, gate);
    norm_back(m, l->mid, l->rrms2, theta + w, grad + w);
}

static void attention_back(const struct llama *m,
                           const float *theta,
                           float *grad,
                           int64_t i)
{
    const struct layer *l = &m->layers[i];
    int64_t w = offset_of(m, LLAMA_ATTN_NORM, i);
    struct back o = {
        .dy = m->dx, .x = l->att, .dx = m->datt, .in = m->dim, .out = m->dim};
    struct back q = {.dy = m->dqkv,
                     .x = l->x1,
                     .dx = m->dnorm,
                     .in = m->dim,
                     .out = m->qkv_dim};
    struct rope rope = rope_of(m, m->dqkv, -1);
    struct attention attention = attention_of(m, l);

    matrix_back(m, theta, grad, LLAMA_O, i, o);
    m->be->attention_bwd(m->be, &attention);
    m->be->rope(m->be, &rope);
    matrix_back(m, theta, grad, LLAMA_Q, i, q);
    norm_back(m, stream_before(m, i), l->rrms1, theta + w, grad + w);
}

void pass_backward(struct llama *m,
                   const float *theta,
                   const uint32_t *tokens,
                   float *grad)
{
    int64_t last = (int64_t)m->part.layers - 1;

    if (m->part.scores) {
        int64_t w = offset_of(m, LLAMA_NORM, 0);

        m->be->clear(m->be, m->dx, (size_t)(m->n * m->dim * m->be->act_bytes));
        norm_back(m, m->layers[last].out, m->rrms, theta + w, grad + w);
    }
    for (int64_t i = last; i >= 0; i--) {
        layer_again(m, theta, i);
        ffn_back(m, theta, grad, i);
        attention_back(m, theta, grad, i);
    }
    if (m->part.embeds) {
        m->be->embed_bwd(m->be, &(struct embed){.tokens = tokens,
                                                .dx = m->dx,
                                                .dtable = grad,
                                                .n = m->n,
                                                .c = m->dim});
    }
}

/* What the backward pass only ever adds to: vectors, and an embedding that is
 * not the head, whose product comes first. */
static void begin_gradient(const struct llama *m, float *grad)
{
    int n = llama_tensor_count(&m->c);

    for (int i = 0; i < n; i++) {
        struct llama_view v;

        llama_tensor(&m->c, i, &v);
        if (v.ndim == 1 || (v.offset == 0 && !m->c.tied)) {
            m->be->clear(m->be, grad + v.offset,
                         (size_t)v.numel * sizeof *grad);
        }
    }
}

void pass_score(struct llama *m,
                const float *theta,
                const uint32_t *targets,
                float *grad)
{
    for (int64_t from = 0; from < m->n; from += m->head_rows) {
        int64_t left = m->n - from;

        head_rows(m, theta, targets, grad, from,
                  left < m->head_rows ? left : m->head_rows);
    }
}

void pass_score_rows(struct llama *m,
                     const float *theta,
                     const uint32_t *targets,
                     int64_t from,
                     int64_t end)
{
    for (; from < end; from += m->head_rows) {
        int64_t left = end - from;

        head_rows(m, theta, targets, NULL, from,
                  left < m->head_rows ? left : m->head_rows);
    }
}

void pass_get_losses(const struct llama *m)
{
    if (m->losses != m->loss) {
        m->be->get(m->be, m->losses, m->loss, (size_t)m->n * sizeof *m->losses);
    }
}

double pass_loss_sum(const struct llama *m)
{
    double sum = 0;

    pass_get_losses(m);
    for (int64_t n = 0; n < m->n; n++) {
        sum += m->losses[n];
    }
    return sum;
}

double pass_loss(struct llama *m,
                 const float *theta,
                 const struct llama_batch *batch,
                 float *grad)
{
    if (grad != NULL && m->fresh) {
        begin_gradient(m, grad);
    }
    pass_forward(m, theta, batch);
    pass_score(m, theta, batch->targets, grad);
    if (grad != NULL) {
        pass_backward(m, theta, batch->tokens, grad);
    }
    return pass_loss_sum(m);
}
