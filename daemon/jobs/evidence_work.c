/* evidence_work.c - whether a file about work convicts: see evidence.h. What it
 * has to show is in p2p/round/conviction.h.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/jobs/evidence_file.h"
#include "p2p/round/conviction.h"
#include "p2p/round/view.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"

/* Whether members of the run make each other's work again. */
static int check_run(struct evidence_file *f)
{
    struct run_vector vector;
    struct run_terms terms;
    int rv = run_vector_terms(&vector, &f->manifest, &terms, f->errmsg);

    return rv != 0 || terms.audits_work
               ? rv
               : errmsg_invalid(f->errmsg,
                                "the run has no audits of work (sync.audit): "
                                "nobody makes the work of another again");
}

static void fill(struct evidence_verdict *v,
                 const struct evidence_file *f,
                 const struct conviction *c)
{
    *v = (struct evidence_verdict){
        .run = f->run,
        .round = c->vote.body.round,
        .epoch = c->view.epoch,
        .accused = view_member_id(&c->view.members[c->accused]),
        .finding = EVIDENCE_BAD_WORK,
        .n_words = c->n_words,
    };
    for (uint32_t i = 0; i < c->view.n_members; i++) {
        if (view_is_full(&c->view, i)) {
            v->member[v->n_members++] = view_member_id(&c->view.members[i]);
        }
    }
}

int evidence_check_work(struct evidence_file *f, struct evidence_verdict *v)
{
    struct conviction *c = calloc(1, sizeof *c);
    int rv;

    if (c == NULL) {
        return errmsg_fail(f->errmsg, LOCO_ENOMEM, "out of memory");
    }
    rv = evidence_read_start(f, EVIDENCE_WORK_MAGIC, EVIDENCE_WORK_VERSION);
    rv =
        rv != 0 ? rv : evidence_read_part(f, &conviction_schema, NULL, c, NULL);
    rv = rv != 0 || f->left == 0
             ? rv
             : evidence_malformed(f, "bytes follow the end");
    rv = rv != 0 ? rv : check_run(f);
    rv = rv != 0 ? rv : conviction_check(c, &f->run, f->signer, f->errmsg);
    if (rv == 0) {
        fill(v, f, c);
    }
    free(c);
    return rv;
}
